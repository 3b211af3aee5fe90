//! Quantities of resources that a job needs or a worker offers: `{"cpus": 1.5, "memory": "4G",
//! "gpus": 1, "licences": 3}`.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, MapAccess, Visitor},
    ser::SerializeMap,
};

use super::is_profile_name;

/// Resource whose amount is a number of processors, counted in hundredths.
pub const CPUS: &str = "cpus";
/// Resource whose amount is a number of bytes of memory.
pub const MEMORY: &str = "memory";
/// Resource whose amount is a number of graphics processors.
pub const GPUS: &str = "gpus";

/// Amount of [`CPUS`] that stands for one processor.
pub const HUNDREDTHS: u64 = 100;
/// Maximum number of resources of one object.
pub const MAX_RESOURCES: usize = 32;
/// Maximum amount of [`CPUS`], in hundredths of a processor.
pub const MAX_CPUS: u64 = 100_000 * HUNDREDTHS;
/// Maximum amount of [`MEMORY`] in bytes: 1024 TiB.
pub const MAX_MEMORY_BYTES: u64 = 1 << 50;
/// Maximum amount of any other resource.
pub const MAX_AMOUNT: u64 = 1_000_000_000;

/// Units of memory, from the largest, with the binary logarithms of their bytes.
const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];

/// Quantities by the names of their resources. An amount of 0 is kept, because in the options of an
/// action it replaces the amount of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Quantities(BTreeMap<String, u64>);

/// Reason for which a quantity is not legal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuantity {
    /// The name has other characters, or too many.
    #[error("'{0}' is not the name of a resource: use 1 to 64 lower-case letters, digits and '-', '_'")]
    Name(String),
    /// The amount of processors is not a decimal number in its bounds.
    #[error("'{0}' is not a number of processors: use 0 to 100000 with at most two decimals, as 0.5")]
    Cpus(String),
    /// The amount of memory is not a size in its bounds.
    #[error(
        "'{0}' is not a size of memory: use a number of bytes, or a number with K, M, G or T, up to 1024T"
    )]
    Memory(String),
    /// The amount of another resource is not a whole number in its bounds.
    #[error("'{0}' is not an amount: use a whole number from 0 to 1000000000")]
    Amount(String),
    /// There are too many resources.
    #[error("it has more than {MAX_RESOURCES} resources")]
    Count,
}

impl Quantities {
    /// Returns true if no resource is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the amount of a resource in its smallest unit: hundredths of a processor, bytes, or
    /// units. 0 for a resource that is not named.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns each resource with its amount in its smallest unit, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Sets the amount of a resource, in its smallest unit.
    pub fn set(&mut self, name: &str, amount: u64) {
        self.0.insert(name.to_owned(), amount);
    }

    /// Removes a resource.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Sets the amount of a resource to that of a text, as `0.5` processors or `4G` of memory.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), BadQuantity> {
        let amount = parse_amount(name, text)?;
        self.set(name, amount);
        if self.0.len() > MAX_RESOURCES { Err(BadQuantity::Count) } else { Ok(()) }
    }

    /// Returns the quantities with the amounts of `own` instead of those of the same names, and
    /// without amounts of 0.
    #[must_use]
    pub fn overridden(&self, own: &Self) -> Self {
        let mut amounts = self.0.clone();
        amounts.extend(own.0.iter().map(|(name, amount)| (name.clone(), *amount)));
        amounts.retain(|_, amount| *amount > 0);
        Self(amounts)
    }
}

impl fmt::Display for Quantities {
    /// Writes `cpus 1.5, memory 4G`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(to, "{comma}{name} {}", amount_text(name, amount))?;
        }
        Ok(())
    }
}

/// Returns an amount, which is in the smallest unit of its resource, as people write it: `1.5`
/// processors, `4G` of memory, `3` of another resource.
pub fn amount_text(name: &str, amount: u64) -> String {
    match name {
        CPUS => {
            let (whole, rest) = (amount / HUNDREDTHS, amount % HUNDREDTHS);
            let text = format!("{whole}.{rest:02}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        MEMORY => {
            let divides = |(_, shift): &&(&str, u32)| amount > 0 && amount.is_multiple_of(1 << shift);
            let unit = UNITS.iter().find(divides);
            unit.map_or_else(|| amount.to_string(), |(unit, shift)| format!("{}{unit}", amount >> shift))
        }
        _ => amount.to_string(),
    }
}

/// Parses a text as the amount of the resource `name`, in its smallest unit: `0.5` processors,
/// `512M`, `4G` or `4GiB` of memory (units are binary), `3` of another resource.
pub fn parse_amount(name: &str, text: &str) -> Result<u64, BadQuantity> {
    if !is_profile_name(name) {
        return Err(BadQuantity::Name(shown(name)));
    }
    let (parsed, most, error): (_, _, fn(String) -> BadQuantity) = match name {
        CPUS => (hundredths(text), MAX_CPUS, BadQuantity::Cpus),
        MEMORY => (bytes(text), MAX_MEMORY_BYTES, BadQuantity::Memory),
        _ => (whole(text), MAX_AMOUNT, BadQuantity::Amount),
    };
    parsed.filter(|amount| *amount <= most).ok_or_else(|| error(shown(text)))
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// Parses digits. `parse` alone would accept a sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn hundredths(text: &str) -> Option<u64> {
    let (units, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.len() > 2 {
        return None;
    }
    let scale = if decimals.len() == 1 { 10 } else { 1 };
    whole(units)?.checked_mul(HUNDREDTHS)?.checked_add(whole(decimals)?.checked_mul(scale)?)
}

fn bytes(text: &str) -> Option<u64> {
    let number = text.strip_suffix("iB").unwrap_or(text);
    let scaled = UNITS.iter().find_map(|(unit, shift)| Some((number.strip_suffix(unit)?, *shift)));
    match scaled {
        Some((digits, shift)) => whole(digits)?.checked_mul(1 << shift),
        None => whole(text),
    }
}

impl Serialize for Quantities {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, amount) in self.iter() {
            if name == CPUS && !amount.is_multiple_of(HUNDREDTHS) {
                map.serialize_entry(name, &processors(amount))?;
            } else if name == CPUS {
                map.serialize_entry(name, &(amount / HUNDREDTHS))?;
            } else {
                map.serialize_entry(name, &amount)?;
            }
        }
        map.end()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bound keeps the amount far below 2^53")]
fn processors(hundredths: u64) -> f64 {
    hundredths as f64 / HUNDREDTHS as f64
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(QuantitiesVisitor)
    }
}

struct QuantitiesVisitor;

impl<'de> Visitor<'de> for QuantitiesVisitor {
    type Value = Quantities;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object of amounts by the names of resources, as {\"cpus\": 2, \"memory\": \"4G\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Quantities, A::Error> {
        let mut quantities = Quantities::default();
        while let Some(name) = map.next_key::<String>()? {
            let amount = map.next_value_seed(Amount(&name))?;
            if quantities.0.insert(name.clone(), amount).is_some() {
                return Err(de::Error::custom(format!("{name} is given twice")));
            }
            if quantities.0.len() > MAX_RESOURCES {
                return Err(de::Error::custom(BadQuantity::Count));
            }
        }
        Ok(quantities)
    }
}

/// Amount of the named resource: a number, or for memory also a text.
struct Amount<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Amount<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Amount<'_> {
    type Value = u64;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CPUS => to.write_str("a number of processors, as 0.5"),
            MEMORY => to.write_str("a number of bytes, or a text as \"4G\""),
            _ => to.write_str("a whole number"),
        }
    }

    fn visit_u64<E: de::Error>(self, amount: u64) -> Result<u64, E> {
        parse_amount(self.0, &amount.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, amount: i64) -> Result<u64, E> {
        parse_amount(self.0, &amount.to_string()).map_err(E::custom)
    }

    /// The shortest text of a number has at most the decimals with which it was written.
    fn visit_f64<E: de::Error>(self, amount: f64) -> Result<u64, E> {
        parse_amount(self.0, &amount.to_string()).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        if self.0 != MEMORY {
            return Err(E::invalid_type(de::Unexpected::Str(text), &self));
        }
        parse_amount(self.0, text).map_err(E::custom)
    }
}

impl JsonSchema for Quantities {
    fn schema_name() -> Cow<'static, str> {
        "Quantities".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Amounts by the names of resources: cpus, memory in bytes, gpus, and any other name.",
            "type": "object",
            "properties": {
                CPUS: { "type": "number", "minimum": 0 },
                MEMORY: { "type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+([KMGT](iB)?)?$" },
                GPUS: { "type": "integer", "minimum": 0 },
            },
            "additionalProperties": { "type": "integer", "minimum": 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        BadQuantity, CPUS, GPUS, MAX_AMOUNT, MAX_CPUS, MAX_MEMORY_BYTES, MAX_RESOURCES, MEMORY, Quantities,
        amount_text, parse_amount,
    };
    use crate::documents::parse;

    fn read(json: &str) -> Result<Quantities, String> {
        parse(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn quantities_round_trip_through_json() {
        let read = read(r#"{"cpus":1.5,"memory":"4G","gpus":1,"licences":3}"#).unwrap();
        assert_eq!(
            ["cpus", "memory", "gpus", "licences", "x"].map(|name| read.get(name)),
            [150, 4 << 30, 1, 3, 0]
        );
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            json!({"cpus":1.5,"memory":4_u64 << 30,"gpus":1,"licences":3})
        );
        assert_eq!(read.to_string(), "cpus 1.5, gpus 1, licences 3, memory 4G");
        for hundredths in [1, 7, 29, 57, 58, 99, 100, 101, 114, 115, 9_999_999, MAX_CPUS] {
            let mut one = Quantities::default();
            one.set(CPUS, hundredths);
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(self::read(&json), Ok(one.clone()), "{json}");
            assert_eq!(parse_amount(CPUS, &amount_text(CPUS, hundredths)), Ok(hundredths));
        }
    }

    #[test]
    fn amounts_have_bounds_and_units() {
        let ok = [(CPUS, "0.01", 1), (CPUS, "2", 200), (CPUS, "0.5", 50), (CPUS, "100000", MAX_CPUS)];
        let memory =
            [(MEMORY, "512M", 512 << 20), (MEMORY, "4GiB", 4 << 30), (MEMORY, "1024T", MAX_MEMORY_BYTES)];
        let more =
            [(MEMORY, "7", 7), (MEMORY, "1K", 1024), (GPUS, "0", 0), ("licences", "1000000000", MAX_AMOUNT)];
        for (name, text, amount) in ok.into_iter().chain(memory).chain(more) {
            assert_eq!(parse_amount(name, text), Ok(amount), "{name} {text}");
        }
        for text in ["", ".", "1.", ".5", "0.001", "100000.01", "-1", "+1", "1e3", "1,5", "NaN"] {
            assert_eq!(parse_amount(CPUS, text), Err(BadQuantity::Cpus(text.into())));
        }
        for text in
            ["", "G", "iB", "1iB", "4GB", "4g", "1.5G", "-1", "1125899906842625", "1025T", "99999999999T"]
        {
            assert_eq!(parse_amount(MEMORY, text), Err(BadQuantity::Memory(text.into())));
        }
        for text in ["", "1.0", "-1", "1000000001", "4G"] {
            assert_eq!(parse_amount(GPUS, text), Err(BadQuantity::Amount(text.into())));
        }
        for name in ["", "GPU", "a b", "a.b", &"x".repeat(65)] {
            assert_eq!(parse_amount(name, "1"), Err(BadQuantity::Name(name.into())));
        }
        assert_eq!(parse_amount(&"x".repeat(64), "1"), Ok(1));
    }

    #[test]
    fn texts_of_amounts_are_the_shortest() {
        let texts = [
            (CPUS, 150),
            (CPUS, 1),
            (CPUS, 110),
            (CPUS, 1000),
            (CPUS, 0),
            (MEMORY, 3 << 29),
            (MEMORY, 0),
            ("x", 7),
        ];
        let texts = texts.map(|(name, amount)| amount_text(name, amount));
        assert_eq!(texts, ["1.5", "0.01", "1.1", "10", "0", "1536M", "0", "7"]);
    }

    #[test]
    fn wrong_quantities_name_their_place() {
        assert_eq!(
            read(r#"{"cpus":1.005}"#).unwrap_err(),
            format!("cpus: {} at line 1 column 13", BadQuantity::Cpus("1.005".into()))
        );
        assert!(read(r#"{"cpus":"2"}"#).unwrap_err().contains("expected a number of processors"));
        assert!(read(r#"{"memory":true}"#).unwrap_err().contains("expected a number of bytes, or a text"));
        assert!(read(r#"{"gpus":-1}"#).unwrap_err().contains("'-1' is not an amount"));
        assert!(read(r#"{"GPU":1}"#).unwrap_err().contains("'GPU' is not the name of a resource"));
        assert!(read(r#"{"gpus":1,"gpus":2}"#).unwrap_err().contains("gpus is given twice"));
        assert!(read("[]").unwrap_err().contains("an object of amounts"));
        let many = |count: usize| {
            let all: Vec<String> = (0..count).map(|n| format!("\"r{n}\":1")).collect();
            read(&format!("{{{}}}", all.join(",")))
        };
        assert!(many(MAX_RESOURCES).is_ok());
        assert!(many(MAX_RESOURCES + 1).unwrap_err().contains("more than 32 resources"));
    }

    #[test]
    fn override_replaces_amounts_of_the_same_name_and_removes_zeros() {
        let plan = read(r#"{"cpus":2,"gpus":1,"licences":3}"#).unwrap();
        let own = read(r#"{"cpus":0.5,"gpus":0,"memory":"1G"}"#).unwrap();
        assert_eq!(plan.overridden(&own), read(r#"{"cpus":0.5,"licences":3,"memory":"1G"}"#).unwrap());
        assert_eq!(plan.overridden(&Quantities::default()), plan);
    }
}
