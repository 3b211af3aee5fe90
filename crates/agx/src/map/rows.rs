//! Inputs of jobs as the sources have them.

/// Input, or the reason why it cannot be one.
pub(super) type SourceValue = Result<String, String>;
/// One value of each source, or the reason why these values cannot be an input.
pub(crate) type InputRow = Result<Vec<String>, String>;
