//! Checks for JSON texts that other parsers could interpret in another way, or could not parse.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::BadDocument;

/// Maximum depth of nested arrays and objects, because `serde_json` reads no deeper texts.
pub const MAX_DEPTH: usize = 127;
/// Fields whose content belongs to users.
const OF_USERS: [&str; 9] =
    ["args", "data", "details", "input", "inputs", "labels", "meta", "metadata", "result"];

/// Checks that no object has a duplicate field, because some readers take the first field and
/// others take the last. In the fields of users, checks only that other readers can read the JSON.
pub fn check_fields(json: &[u8]) -> Result<(), BadDocument> {
    let mut from = serde_json::Deserializer::from_slice(json);
    FieldVisitor
        .deserialize(&mut from)
        .and_then(|()| from.end())
        .map_err(|error| BadDocument(error.to_string()))
}

/// Checks that `json` is not nested deeper than other readers accept.
pub fn check_depth(json: &str) -> Result<(), BadDocument> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(BadDocument(format!("it is nested deeper than {MAX_DEPTH} arrays and objects")));
        }
    }
    Ok(())
}

struct FieldVisitor;

impl<'de> DeserializeSeed<'de> for FieldVisitor {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if OF_USERS.contains(&name.as_str()) {
                map.next_value::<Value>()?;
            } else {
                map.next_value_seed(Self)?;
            }
            if let Some(name) = seen.replace(name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, check_depth, check_fields};

    #[test]
    fn duplicate_fields_are_refused_outside_of_user_data() {
        for fine in [
            r#"{"type":"a","args":[{"b":1,"b":2}],"meta":{"c":1,"c":2},"options":{"retry":{"a":1.5,"b":null}}}"#,
            r#"{"jobs":[{"type":"a"},{"type":"a"}],"n":[-1,true,"x"]}"#,
            r#""text""#,
        ] {
            assert_eq!(check_fields(fine.as_bytes()), Ok(()), "{fine}");
        }
        for twice in [
            r#"{"type":"a","type":"b"}"#,
            r#"{"args":[],"args":[]}"#,
            r#"{"type":"a","t\u0079pe":"b"}"#,
            r#"{"options":{"queue":"a","queue":"b"}}"#,
            r#"{"jobs":[{"type":"a","options":{"retry":{"max_attempts":1,"max_attempts":2}}}]}"#,
        ] {
            let refused = check_fields(twice.as_bytes()).unwrap_err().to_string();
            assert!(refused.starts_with("duplicate field `"), "{twice}: {refused}");
        }
    }

    #[test]
    fn json_that_other_parsers_refuse_is_refused() {
        let deep = format!(r#"{{"args":{}}}"#, "[".repeat(128) + &"]".repeat(128));
        for broken in ["{", "{} {}", r#"{"args":[1e999]}"#, r#"{"a":1e999}"#, r#"{"args":["\ud800"]}"#, &deep]
        {
            assert!(check_fields(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check_depth(&nested(MAX_DEPTH)), Ok(()));
        assert!(serde_json::from_str::<serde_json::Value>(&nested(MAX_DEPTH)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(MAX_DEPTH + 1)).is_err());
        assert!(check_depth(&nested(MAX_DEPTH + 1)).is_err());
        assert!(check_depth(&format!("[{}]", "{\"a\":".repeat(200))).is_err());
        for fine in ["[", "{", "\\\"["].map(|text| format!("[\"{}\"]", text.repeat(300))) {
            assert_eq!(check_depth(&fine), Ok(()), "{fine}");
        }
        assert_eq!(check_depth(&"[],".repeat(300)), Ok(()));
    }
}
