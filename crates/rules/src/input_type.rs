//! Rules of typed inputs: the legal types.

use std::collections::BTreeMap;

use agenix_protocol::documents::InputType;

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
            InputType::Path { under } if !InputType::is_normal_path(under) && under != "/" => {
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
