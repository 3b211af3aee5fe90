//! Inputs that an order permits: typed fields, or exactly the inputs of a tree of hashes.

use std::{collections::BTreeMap, fmt};

use agenix_protocol::inputs::{check_input, named_fields};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};

use crate::{error::Unacceptable, order::Order};

/// Prefix of the bytes that give the hash of a leaf, as in the trees of RFC 9162.
const LEAF: u8 = 0;
/// Maximum depth of the arrays and objects of an input, as that of `serde_json`.
const MAX_DEPTH: u8 = 127;

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
        match inputs_root(input.get()) {
            Some(of_input) if of_input == *root => Ok(()),
            _ => Err(Unacceptable::Input(" is not the one that inputs_sha256 of the terms names".into())),
        }
    }
}

/// Returns the root of the tree of one input: the SHA-256 of a zero byte and the canonical JSON of
/// the input (RFC 8785), in hexadecimal digits. Returns `None` for text that is not JSON, for
/// numbers that are not 64-bit integers, and for objects with two fields of one name.
///
/// ```
/// use agenix_order::inputs_root;
///
/// assert_eq!(inputs_root(r#"{"b": 1, "a": "x"}"#), inputs_root(r#"{"a":"x","b":1}"#));
/// assert_ne!(inputs_root(r#"{"a":"x"}"#), inputs_root(r#"{"a":"y"}"#));
/// ```
pub fn inputs_root(input: &str) -> Option<String> {
    let mut canonical = String::new();
    write_canonical(serde_json::from_str(input).ok()?, MAX_DEPTH, &mut canonical)?;
    let digest = Sha256::new().chain_update([LEAF]).chain_update(canonical).finalize();
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a value of at most `depth` nested arrays and objects. Objects are not read as
/// `serde_json::Value`, which gives a reserved key a meaning that placeholders do not.
fn write_canonical(value: &RawValue, depth: u8, to: &mut String) -> Option<()> {
    match value.get().as_bytes().first()? {
        b'[' => {
            let depth = depth.checked_sub(1)?;
            let elements: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
            to.push('[');
            for (at, element) in elements.into_iter().enumerate() {
                to.push_str(if at > 0 { "," } else { "" });
                write_canonical(element, depth, to)?;
            }
            to.push(']');
        }
        b'{' => {
            let depth = depth.checked_sub(1)?;
            let Fields(fields) = serde_json::from_str(value.get()).ok()?;
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            to.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                to.push_str(if at > 0 { "," } else { "" });
                to.push_str(&serde_json::to_string(&name).ok()?);
                to.push(':');
                write_canonical(value, depth, to)?;
            }
            to.push('}');
        }
        _scalar => match serde_json::from_str(value.get()).ok()? {
            Value::Number(number) if number.is_f64() => return None,
            scalar => to.push_str(&serde_json::to_string(&scalar).ok()?),
        },
    }
    Some(())
}

/// Fields of an object. Two fields with one name are an error, because a placeholder of the object
/// would be filled with both.
struct Fields<'v>(BTreeMap<String, &'v RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom("two fields have one name"));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::RawValue};

    use super::{InputBounds, inputs_root};
    use crate::order::Order;

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
    fn canonical_json_is_that_of_rfc_8785() {
        let canonical = |json: &str| {
            let mut text = String::new();
            super::write_canonical(serde_json::from_str(json).unwrap(), 9, &mut text).map(|()| text)
        };
        // The order of names is that of UTF-16: U+1F600 comes before U+FB33.
        let sorted = canonical(r#"{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"1":4,"\r":5}"#).unwrap();
        assert_eq!(sorted, "{\"\\r\":5,\"1\":4,\"\u{20ac}\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}");
        let text = canonical(r#"{"a":["\u000F\u20ac$\n\"\/",-1,null,true]}"#).unwrap();
        assert_eq!(text, "{\"a\":[\"\\u000f\u{20ac}$\\n\\\"/\",-1,null,true]}");
        assert_eq!(canonical("[1.5]"), None);
        assert_eq!(canonical("[1e2]"), None);
        assert_eq!(canonical(r#"[{"a":1,"\u0061":1}]"#), None, "two fields have one name");
        assert!(canonical(&("[".repeat(9) + &"]".repeat(9))).is_some());
        assert_eq!(canonical(&("[".repeat(10) + &"]".repeat(10))), None);
    }

    #[test]
    fn reserved_key_of_raw_values_is_a_field_as_any_other() {
        let hidden = json!({"$serde_json::private::RawValue": r#"{"a":1}"#}).to_string();
        assert!(inputs_root(&hidden).is_some_and(|root| Some(root) != inputs_root(r#"{"a":1}"#)));
    }
}
