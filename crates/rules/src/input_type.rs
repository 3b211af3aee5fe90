//! Rules of typed inputs: legal types, and the check of a value.

use std::collections::BTreeMap;

use agenix_protocol::documents::InputType;
use serde_json::Value;

/// Checks the types of a plan. `is_used` returns true for a field that a placeholder names.
pub(crate) fn check_types(
    inputs: &BTreeMap<String, InputType>,
    is_used: impl Fn(&str) -> bool,
) -> Result<(), String> {
    for (field, input_type) in inputs {
        let invalid = |reason: &str| Err(format!("{}: {reason}", field.escape_debug()));
        if !is_used(field) {
            return invalid("no placeholder of the plan names this field");
        }
        match input_type {
            InputType::Path { under } if !is_normal_path(under) && under != "/" => {
                return invalid("under is not an absolute path without '.', '..' and empty parts");
            }
            InputType::Int { min: Some(min), max: Some(max) } if min > max => {
                return invalid("min is greater than max");
            }
            InputType::Enum { values } if values.is_empty() => return invalid("values is empty"),
            _ => {}
        }
    }
    Ok(())
}

/// Checks a value. The error is the end of a sentence about the value.
pub(crate) fn check(input_type: &InputType, value: &Value) -> Result<(), String> {
    if let InputType::Int { min, max } = input_type {
        return check_number(*min, *max, value);
    }
    let Some(text) = value.as_str() else { return Err("is not a string".into()) };
    match input_type {
        InputType::Text {} | InputType::Int { .. } => Ok(()),
        InputType::Path { under } if is_below(text, under) => Ok(()),
        InputType::Path { under } => {
            Err(format!("is not a path below {under}, without '.', '..' and empty parts"))
        }
        InputType::Name {} if InputType::is_name(text) => Ok(()),
        InputType::Name {} => Err(
            "is not a name: use letters, digits, '_', '.', '-', ':', and begin with one of the first three"
                .into(),
        ),
        InputType::Enum { values } if values.iter().any(|value| value == text) => Ok(()),
        InputType::Enum { values } => Err(format!("is not one of {}", values.join(", "))),
    }
}

fn check_number(min: Option<i64>, max: Option<i64>, value: &Value) -> Result<(), String> {
    let is_digits = |text: &&str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let number = match value {
        Value::String(text) => Some(text.as_str()).filter(is_digits).and_then(|text| text.parse().ok()),
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

/// Returns true for an absolute path without `.`, `..`, empty parts and NUL, except `/`.
fn is_normal_path(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    !path.contains('\0') && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part))
}

fn is_below(path: &str, under: &str) -> bool {
    let under = under.trim_end_matches('/');
    is_normal_path(path) && path.strip_prefix(under).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::InputType;
    use serde_json::{Value, json};

    use super::check;

    fn holds(input_type: &str, value: &Value) -> bool {
        check(&serde_json::from_str::<InputType>(input_type).unwrap(), value).is_ok()
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
