//! Progress of an action: counts, failures and unmet needs.

pub(crate) mod failures;
pub(crate) mod idle_reason;
pub(crate) mod progress;
pub(crate) mod unmet_needs;
