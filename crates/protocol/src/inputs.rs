//! Fields of the inputs of a plan: the placeholders that name them, and the check of an input.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    documents::{InputType, Plan},
    template,
};

/// Field that a placeholder names, and the first place that names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedField {
    /// Dotted path of the field.
    pub field: String,
    /// First place that names the field, as `task 1 args[0]`.
    pub place: String,
    /// True if each element of the field becomes an argument.
    pub is_list: bool,
}

/// Returns the fields that the placeholders of a plan name.
pub fn named_fields(plan: &Plan) -> BTreeSet<NamedField> {
    let mut seen = BTreeSet::new();
    let mut named = BTreeSet::new();
    for task in &plan.tasks {
        for (place, text) in task.templates() {
            let list = template::list(text);
            let fields = list.map_or_else(|| template::fields(text).unwrap_or_default(), |field| vec![field]);
            for field in fields {
                if seen.insert((field.to_owned(), list.is_some())) {
                    named.insert(NamedField {
                        field: field.to_owned(),
                        place: format!("task {} {place}", task.task_number),
                        is_list: list.is_some(),
                    });
                }
            }
        }
    }
    named
}

/// Checks that an input, which is the JSON text `input`, has the fields, and that these have their
/// types.
///
/// # Errors
///
/// Returns the first fault as a text that follows the name of the input: `.file is not a string`.
pub fn check_input(
    input: &str,
    fields: &BTreeSet<NamedField>,
    types: &BTreeMap<String, InputType>,
) -> Result<(), String> {
    let input = serde_json::from_str(input).map_err(|error| format!(": {error}"))?;
    for NamedField { field, place, is_list } in fields {
        let check = |shown: &str, value: &Value| {
            check_value(value, types.get(field)).map_err(|reason| format!(".{shown} {reason}"))
        };
        match template::lookup(&input, field) {
            None => return Err(format!(" has no field '{field}', which {place} of the plan uses")),
            Some(Value::Array(elements)) if *is_list => {
                for (index, element) in elements.iter().enumerate() {
                    check(&format!("{field}[{index}]"), element)?;
                }
            }
            Some(_) if *is_list => {
                return Err(format!(
                    ".{field} is not an array, and {place} of the plan makes an argument of each element"
                ));
            }
            Some(value) => check(field, value)?,
        }
    }
    Ok(())
}

/// Checks one value. The error is the end of a sentence about the value.
fn check_value(value: &Value, input_type: Option<&InputType>) -> Result<(), String> {
    if value.as_str().is_some_and(|text| text.contains('\0')) {
        return Err("contains a NUL byte, which no process can be given".into());
    }
    input_type.map_or(Ok(()), |input_type| input_type.check(value))
}
