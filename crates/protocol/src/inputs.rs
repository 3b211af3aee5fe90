//! Fields of the inputs of a plan: the placeholders that name the fields, and the check of an
//! input.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Number, Value, value::RawValue};

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

/// Checks that an input has the fields, each with a value of the field's type.
///
/// # Errors
///
/// Returns the first fault as a text that follows the name of the input: `.file is not a string`.
pub fn check_input(
    input: &RawValue,
    fields: &BTreeSet<NamedField>,
    types: &BTreeMap<String, InputType>,
) -> Result<(), String> {
    for NamedField { field, place, is_list } in fields {
        let check = |shown: &str, value: &RawValue| {
            check_value(&scalar(value), types.get(field)).map_err(|reason| format!(".{shown} {reason}"))
        };
        let Some(value) = template::raw_lookup(input, field) else {
            return Err(format!(" has no field '{field}', which {place} of the plan uses"));
        };
        if !is_list {
            check(field, value)?;
            continue;
        }
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(value.get()) else {
            return Err(format!(
                ".{field} is not an array, and {place} of the plan makes an argument of each element"
            ));
        };
        if elements.is_empty() && types.contains_key(field) {
            // Many programs work on the current directory without an argument.
            return Err(format!(".{field} is an empty array, which its type does not permit"));
        }
        for (index, element) in elements.into_iter().enumerate() {
            check(&format!("{field}[{index}]"), element)?;
        }
    }
    Ok(())
}

/// Returns a string or a number, and null for any other value. `serde_json::Value` would read an
/// object with the reserved key of raw values as the text in the object, while placeholders are
/// filled with the object.
fn scalar(value: &RawValue) -> Value {
    let text = serde_json::from_str(value.get()).map(Value::String);
    text.or_else(|_| serde_json::from_str::<Number>(value.get()).map(Value::Number)).unwrap_or_default()
}

/// Checks one value. The error is the end of a sentence about the value.
fn check_value(value: &Value, input_type: Option<&InputType>) -> Result<(), String> {
    if value.as_str().is_some_and(|text| text.contains('\0')) {
        return Err("contains a NUL byte, which no process can be given".into());
    }
    input_type.map_or(Ok(()), |input_type| input_type.check(value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{json, value::RawValue};

    use super::{check_input, named_fields};
    use crate::{
        documents::{InputType, Plan},
        template::{Values, fill},
    };

    const PLAN: &str = r#"{"tasks": [{"task_number": 1, "command": "cat", "args": ["{{input.a.b}}"]}]}"#;

    fn check(input: &str) -> Result<(), String> {
        let plan: Plan = serde_json::from_str(PLAN).unwrap();
        let path: InputType = serde_json::from_value(json!({"type": "path", "under": "/data"})).unwrap();
        check_input(
            serde_json::from_str(input).unwrap(),
            &named_fields(&plan),
            &BTreeMap::from([("a.b".to_owned(), path)]),
        )
    }

    #[test]
    fn object_with_the_reserved_key_of_raw_values_is_no_string() {
        let key = "$serde_json::private::RawValue";
        let hidden = json!({"a": {"b": {key: "\"/data/x\""}}}).to_string();
        assert_eq!(check(&hidden).unwrap_err(), ".a.b is not a string");
        let outside = json!({key: r#"{"a":{"b":"/data/x"}}"#}).to_string();
        assert!(check(&outside).unwrap_err().starts_with(" has no field 'a.b'"));
    }

    #[test]
    fn typed_list_has_an_element() {
        let plan = r#"{"tasks": [{"task_number": 1, "command": "find", "args": ["{{input.d[]}}"]}]}"#;
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let path: InputType = serde_json::from_value(json!({"type": "path", "under": "/data"})).unwrap();
        let check = |input: &str, types: BTreeMap<String, InputType>| {
            check_input(serde_json::from_str(input).unwrap(), &named_fields(&plan), &types)
        };
        let typed = BTreeMap::from([("d".to_owned(), path)]);
        assert_eq!(check(r#"{"d": ["/data/x"]}"#, typed.clone()), Ok(()));
        let refused = check(r#"{"d": []}"#, typed).unwrap_err();
        assert_eq!(refused, ".d is an empty array, which its type does not permit");
        assert_eq!(check(r#"{"d": []}"#, BTreeMap::new()), Ok(()), "a list without a type may be empty");
    }

    /// Returns texts of JSON with names that repeat, and with the reserved name.
    fn inputs() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just(r#""/data/x""#.to_owned()),
            Just(r#""/etc/passwd""#.to_owned()),
            Just(r#""\"/data/x\"""#.to_owned()),
            Just("7".to_owned()),
            Just("[\"/data/x\"]".to_owned()),
        ];
        let name = prop_oneof![Just("a"), Just("b"), Just("\\u0061"), Just("$serde_json::private::RawValue")];
        leaf.prop_recursive(3, 16, 4, move |inner| {
            prop::collection::vec((name.clone(), inner), 0..4).prop_map(|fields| {
                let fields = fields.iter().map(|(name, value)| format!("\"{name}\": {value}"));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            })
        })
    }

    proptest! {
        #[test]
        fn value_that_passes_is_the_value_that_fills_the_placeholder(input in inputs()) {
            if check(&input).is_ok() {
                let raw = RawValue::from_string(input).unwrap();
                let filled = fill("{{input.a.b}}", Values { input: &raw, slot: "1" });
                prop_assert_eq!(filled.unwrap(), "/data/x");
            }
        }
    }
}
