//! Inputs that an order permits: typed fields, or exactly the inputs of a tree of hashes.

use agenix_protocol::inputs::{check_input, named_fields};
use serde_json::value::RawValue;

use crate::{error::Unacceptable, input_tree::is_leaf, order::Order};

/// Bounds that the inputs of an order need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputBounds {
    /// Every field that a placeholder names has a type, or the terms name the permitted inputs.
    #[default]
    Required,
    /// The owner of the worker trusts the signer with plans for any input.
    Any,
}

impl Order {
    /// Returns the first field that may have any value, unless the terms name the permitted inputs.
    pub fn unbound_input(&self) -> Option<String> {
        if self.terms.inputs_sha256.is_some() {
            return None;
        }
        let fields = named_fields(&self.plan).into_iter().map(|named| named.field);
        let has_type =
            |field: &String| self.plan.inputs.contains_key(field) || self.terms.inputs.contains_key(field);
        fields.into_iter().find(|field| !has_type(field))
    }

    /// Checks an input.
    ///
    /// # Errors
    ///
    /// Returns the first field that is not permitted.
    pub fn check_input(&self, input: &RawValue, bounds: InputBounds) -> Result<(), Unacceptable> {
        if bounds == InputBounds::Required
            && let Some(field) = self.unbound_input()
        {
            return Err(Unacceptable::UnboundInput(field));
        }
        let fields = named_fields(&self.plan);
        for types in [&self.plan.inputs, &self.terms.inputs] {
            check_input(input, &fields, types).map_err(Unacceptable::Input)?;
        }
        let Some(root) = &self.terms.inputs_sha256 else { return Ok(()) };
        if is_leaf(input, root) {
            return Ok(());
        }
        Err(Unacceptable::Input(" is none of those that inputs_sha256 of the terms names".into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::RawValue};

    use super::InputBounds;
    use crate::{inputs_root, order::Order};

    fn order(plan_inputs: &Value, terms: &Value) -> Order {
        let args = ["{{input.file}}", "{{input.more[]}}"];
        let plan =
            json!({"tasks": [{"task_number": 1, "command": "cat", "args": args}], "inputs": plan_inputs});
        let mut all = json!({"for": ["a"], "not_after": "2026-12-01T00:00:00Z", "serial": "s"});
        for (name, value) in terms.as_object().unwrap() {
            all[name] = value.clone();
        }
        serde_json::from_value(json!({"v": 1, "plan": plan, "terms": all})).unwrap()
    }

    fn refusal(order: &Order, bounds: InputBounds, input: &Value) -> String {
        order
            .check_input(&RawValue::from_string(input.to_string()).unwrap(), bounds)
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn every_field_has_a_type_of_the_plan_or_of_the_terms() {
        let path = json!({"type": "path", "under": "/data"});
        let name = json!({"type": "name"});
        let bound = order(&json!({"file": path}), &json!({"inputs": {"more": name}}));
        let check = |input: Value| refusal(&bound, InputBounds::Required, &input);
        assert_eq!(check(json!({"file": "/data/a", "more": ["x", "y"]})), "");
        for (input, reason) in [
            (json!({"file": "/etc/passwd", "more": []}), "input.file is not a path below /data"),
            (json!({"file": "/data/../etc", "more": []}), "input.file is not a path below /data"),
            (json!({"file": "/data/a", "more": ["x", "-y"]}), "input.more[1] is not a name"),
            (json!({"file": "/data/a", "more": "x"}), "input.more is not an array"),
            (json!({"file": "/data/a"}), "input has no field 'more'"),
            (json!(7), "input has no field 'file'"),
        ] {
            let refusal = check(input);
            assert!(refusal.contains(reason), "{refusal}");
        }
        let both = order(
            &json!({"file": path}),
            &json!({"inputs": {"file": {"type": "enum", "values": ["/data/a"]}}}),
        );
        let refused = refusal(&both, InputBounds::Any, &json!({"file": "/data/b", "more": []}));
        assert!(refused.contains("input.file is not one of /data/a"), "{refused}");
    }

    #[test]
    fn field_without_a_type_needs_a_signer_who_may_sign_for_any_input() {
        let open = order(&json!({}), &json!({}));
        let input = json!({"file": "/etc/shadow", "more": []});
        let refused = refusal(&open, InputBounds::Required, &input);
        assert!(refused.starts_with("the order gives the input 'file' no type"), "{refused}");
        assert_eq!(refusal(&open, InputBounds::Any, &input), "");
    }

    #[test]
    fn root_permits_exactly_its_input() {
        let input = json!({"file": "/etc/hosts", "more": ["a"]});
        let root = inputs_root(&input.to_string()).unwrap();
        let order = order(&json!({}), &json!({"inputs_sha256": root}));
        assert_eq!(refusal(&order, InputBounds::Required, &input), "");
        let spaced = "{ \"more\": [\"a\"], \"file\": \"/etc/hosts\" }";
        let spaced = serde_json::from_str(spaced).unwrap();
        assert!(order.check_input(spaced, InputBounds::Required).is_ok());
        let refused = refusal(&order, InputBounds::Required, &json!({"file": "/etc/hosts", "more": []}));
        assert!(refused.contains("inputs_sha256"), "{refused}");
    }

    #[test]
    fn reserved_key_of_raw_values_is_a_field_as_any_other() {
        let hidden = json!({"$serde_json::private::RawValue": r#"{"a":1}"#}).to_string();
        assert!(inputs_root(&hidden).is_some_and(|root| Some(root) != inputs_root(r#"{"a":1}"#)));
    }
}
