//! Types of the inputs of a plan, which agq checks when it accepts an input.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// Returns the end of a sentence about the value: `is not a whole number`.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        if let Self::Int { min, max } = self {
            return check_number(*min, *max, value);
        }
        let Some(text) = value.as_str() else { return Err("is not a string".into()) };
        match self {
            Self::Text {} | Self::Int { .. } => Ok(()),
            Self::Path { under } if is_below(text, under) => Ok(()),
            Self::Path { under } => {
                Err(format!("is not a path below {under}, without '.', '..' and empty parts"))
            }
            Self::Name {} if Self::is_name(text) => Ok(()),
            Self::Name {} => Err(
                "is not a name: use letters, digits, '_', '.', '-', ':', and begin with one of the first three"
                    .into(),
            ),
            Self::Enum { values } if values.iter().any(|value| value == text) => Ok(()),
            Self::Enum { values } => Err(format!("is not one of {}", values.join(", "))),
        }
    }

    /// Returns true for an absolute path without `.`, `..`, empty parts and NUL, except `/`.
    pub fn is_normal_path(path: &str) -> bool {
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        !path.contains('\0') && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part))
    }
}

fn check_number(min: Option<i64>, max: Option<i64>, value: &Value) -> Result<(), String> {
    let number = match value {
        // Another form, as "-0" or "007", is an option of some programs, or another number.
        Value::String(text) => text.parse().ok().filter(|number: &i64| number.to_string() == *text),
        value => value.as_i64(),
    };
    match number {
        None => Err("is not a whole number".into()),
        Some(number) if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) => {
            let bound = |bound: Option<i64>| bound.map_or_else(|| "any".into(), |bound| bound.to_string());
            Err(format!("is not between {} and {}", bound(min), bound(max)))
        }
        Some(_) => Ok(()),
    }
}

fn is_below(path: &str, under: &str) -> bool {
    let under = under.trim_end_matches('/');
    InputType::is_normal_path(path) && path.strip_prefix(under).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::InputType;

    fn holds(input_type: &str, value: &Value) -> bool {
        serde_json::from_str::<InputType>(input_type).unwrap().check(value).is_ok()
    }

    #[test]
    fn values_have_their_types_and_no_others() {
        let path = r#"{"type": "path", "under": "/data"}"#;
        assert!(
            holds(path, &json!("/data/a/b c")) && holds(r#"{"type": "path", "under": "/"}"#, &json!("/a"))
        );
        for wrong in [
            "/data",
            "/data/",
            "/database/a",
            "data/a",
            "../../etc/passwd",
            "/data/../etc",
            "/data/./a",
            "/data//a",
            "",
            "-o/data/a",
            "/etc/passwd",
        ] {
            assert!(!holds(path, &json!(wrong)), "{wrong}");
        }
        let int = r#"{"type": "int", "min": 0, "max": 9}"#;
        assert!(holds(int, &json!(9)) && holds(int, &json!("0")) && holds(r#"{"type": "int"}"#, &json!(-1)));
        for wrong in
            [json!(-1), json!(10), json!(1.5), json!("1e1"), json!(""), json!("-"), json!([1]), json!(null)]
                .into_iter()
                .chain(["-0", "+1", "07", " 1"].map(|text| json!(text)))
        {
            assert!(!holds(int, &wrong), "{wrong}");
        }
        let name = r#"{"type": "name"}"#;
        assert!(holds(name, &json!("a.b-c")) && !holds(name, &json!("-a")) && !holds(name, &json!("../a")));
        let choice = r#"{"type": "enum", "values": ["a", "b"]}"#;
        assert!(holds(choice, &json!("a")) && !holds(choice, &json!("c")) && !holds(choice, &json!(1)));
        assert!(holds(r#"{"type": "text"}"#, &json!("-o")) && !holds(r#"{"type": "text"}"#, &json!(1)));
    }

    #[test]
    fn types_have_no_unknown_fields() {
        for wrong in
            [r#"{"type": "text", "under": "/"}"#, r#"{"type": "path"}"#, r#"{"type": "regex"}"#, "{}"]
        {
            assert!(serde_json::from_str::<InputType>(wrong).is_err(), "{wrong}");
        }
    }
}
