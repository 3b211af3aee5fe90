//! Canonical JSON (RFC 8785) of inputs whose numbers are 64-bit integers.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Value, value::RawValue};

/// Maximum depth of the arrays and objects of an input, as that of `serde_json`.
const MAX_DEPTH: u8 = 127;

/// Returns the canonical form. Returns `None` for text that is not JSON, for numbers that are not
/// 64-bit integers, and for objects with two fields of one name.
pub(crate) fn canonical_json(text: &str) -> Option<String> {
    let mut canonical = String::new();
    write_canonical(serde_json::from_str(text).ok()?, MAX_DEPTH, &mut canonical)?;
    Some(canonical)
}

/// Returns the canonical JSON of an object without the field `left_out`, and the value of this
/// field. Returns `None` as [`canonical_json`] does, and for a value that is no object.
pub(crate) fn canonical_leaf<'v>(
    input: &'v RawValue,
    left_out: &str,
) -> Option<(String, Option<&'v RawValue>)> {
    let UniqueFields(mut fields) = serde_json::from_str(input.get()).ok()?;
    let value = fields.remove(left_out);
    let mut canonical = String::new();
    write_object(fields, MAX_DEPTH, &mut canonical)?;
    Some((canonical, value))
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
            let UniqueFields(fields) = serde_json::from_str(value.get()).ok()?;
            write_object(fields, depth, to)?;
        }
        _scalar => match serde_json::from_str(value.get()).ok()? {
            Value::Number(number) if number.is_f64() => return None,
            scalar => to.push_str(&serde_json::to_string(&scalar).ok()?),
        },
    }
    Some(())
}

fn write_object(fields: BTreeMap<String, &RawValue>, depth: u8, to: &mut String) -> Option<()> {
    let depth = depth.checked_sub(1)?;
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
    Some(())
}

/// Fields of an object. Two fields with one name are an error, because a placeholder of the object
/// would be filled with both.
struct UniqueFields<'v>(BTreeMap<String, &'v RawValue>);

impl<'de> Deserialize<'de> for UniqueFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = UniqueFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueFields<'de>, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom("two fields have one name"));
                    }
                }
                Ok(UniqueFields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
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
}
