//! Types of the inputs of a plan, which agq checks when it accepts an input.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of a field of the inputs of a plan. The type of a list of arguments is that of its
/// elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum InputType {
    /// Text.
    Text {},
    /// Absolute path below a directory, without `.`, `..` and empty components.
    Path {
        /// Directory.
        under: String,
    },
    /// Whole number, or a text with one.
    Int {
        /// Minimum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<i64>,
        /// Maximum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<i64>,
    },
    /// Letters, digits, `_`, `.`, `-` and `:`. The first one is a letter, a digit or `_`.
    Name {},
    /// One of these texts.
    Enum {
        /// Texts.
        values: Vec<String>,
    },
}

impl InputType {
    /// Returns true if `text` is a name.
    pub fn is_name(text: &str) -> bool {
        text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte))
    }
}
