//! Factor by which a retry after a lack of memory wants more memory: `1.5`.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Value of 1 in hundredths.
const ONE: u32 = 100;
/// Maximum factor in hundredths.
const MAX: u32 = 4 * ONE;

/// Factor above 1, at most 4, with at most two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFactor {
    hundredths: u32,
}

/// Error for a number that is not such a factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use a number above 1, at most 4, with at most two decimals, as 1.5")]
pub struct BadMemoryFactor;

impl MemoryFactor {
    /// Returns `bytes` times the factor, rounded up.
    pub fn times(self, bytes: u64) -> u64 {
        let hundredths = u128::from(bytes) * u128::from(self.hundredths);
        u64::try_from(hundredths.div_ceil(u128::from(ONE))).unwrap_or(u64::MAX)
    }
}

impl FromStr for MemoryFactor {
    type Err = BadMemoryFactor;

    fn from_str(text: &str) -> Result<Self, BadMemoryFactor> {
        let (units, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(units) || !is_number(decimals) || units.len() > 1 || decimals.len() > 2 {
            return Err(BadMemoryFactor);
        }
        let hundredths: u32 = format!("{units}{decimals:0<2}").parse().map_err(|_| BadMemoryFactor)?;
        if (ONE + 1..=MAX).contains(&hundredths) { Ok(Self { hundredths }) } else { Err(BadMemoryFactor) }
    }
}

impl fmt::Display for MemoryFactor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:02}", self.hundredths / ONE, self.hundredths % ONE);
        to.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Serialize for MemoryFactor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.hundredths.is_multiple_of(ONE) {
            (self.hundredths / ONE).serialize(to)
        } else {
            (f64::from(self.hundredths) / f64::from(ONE)).serialize(to)
        }
    }
}

impl<'de> Deserialize<'de> for MemoryFactor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The shortest text of a number has at most the decimals with which it was written.
        f64::deserialize(from)?.to_string().parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for MemoryFactor {
    fn schema_name() -> Cow<'static, str> {
        "MemoryFactor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Factor by which a retry after a lack of memory wants more memory, as 1.5.",
            "type": "number",
            "exclusiveMinimum": 1,
            "maximum": 4,
            "multipleOf": 0.01,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BadMemoryFactor, MemoryFactor};

    #[test]
    fn factor_round_trips_through_json() {
        for hundredths in 101..=400 {
            let factor = MemoryFactor { hundredths };
            let json = serde_json::to_string(&factor).unwrap();
            assert_eq!(serde_json::from_str::<MemoryFactor>(&json).unwrap(), factor, "{json}");
            assert_eq!(factor.to_string().parse(), Ok(factor));
            assert_eq!(json, factor.to_string());
        }
    }

    #[test]
    fn factor_has_bounds() {
        for wrong in ["", "1", "1.00", "0.5", "4.01", "5", "10", "1.005", "-2", "+2", "2e0", "1.", ".5", "x"]
        {
            assert_eq!(wrong.parse::<MemoryFactor>(), Err(BadMemoryFactor), "{wrong}");
        }
        for json in ["1", "4.01", "1.005", "-2", "\"2\"", "null"] {
            assert!(serde_json::from_str::<MemoryFactor>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn product_is_rounded_up_and_never_overflows() {
        let times = |factor: &str, bytes| factor.parse::<MemoryFactor>().unwrap().times(bytes);
        assert_eq!((times("1.5", 3), times("1.01", 100), times("2", 7)), (5, 101, 14));
        assert_eq!(times("4", u64::MAX), u64::MAX);
    }
}
