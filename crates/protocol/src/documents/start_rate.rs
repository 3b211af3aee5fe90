//! Rate at which the jobs of an action start: `10/s`, `100/m`, `3/10s`.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units of a period, from the longest, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];

/// Maximum length of a period in milliseconds: a day.
const MAX_PERIOD_MS: u64 = 86_400_000;

/// Maximum number of starts in a period of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRate {
    /// Number of jobs, at least 1, and at most one for each millisecond of the period.
    pub jobs: u64,
    /// Period in milliseconds, from a second to a day.
    pub period_ms: u64,
}

/// Error for a text that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "write JOBS/PERIOD: JOBS is a number from 1 to 1000 for each second, PERIOD is s, m, h or d, or a number of \
     them up to a day, as 10/s or 3/10s"
)]
pub struct BadStartRate;

impl FromStr for StartRate {
    type Err = BadStartRate;

    fn from_str(text: &str) -> Result<Self, BadStartRate> {
        let (jobs, period) = text.split_once('/').ok_or(BadStartRate)?;
        let is_unit = |(unit, _): &&(&str, u64)| period.ends_with(unit);
        let (unit, unit_ms) = UNITS.iter().find(is_unit).ok_or(BadStartRate)?;
        let units = match period.strip_suffix(unit).ok_or(BadStartRate)? {
            "" => 1,
            number => whole(number)?,
        };
        let (jobs, period_ms) = (whole(jobs)?, units.checked_mul(*unit_ms).ok_or(BadStartRate)?);
        if period_ms > MAX_PERIOD_MS || jobs > period_ms {
            return Err(BadStartRate);
        }
        Ok(Self { jobs, period_ms })
    }
}

/// Parses a number from 1, without a sign.
fn whole(text: &str) -> Result<u64, BadStartRate> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number > 0).ok_or(BadStartRate)
}

impl fmt::Display for StartRate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, ms): &&(&str, u64)| self.period_ms.is_multiple_of(*ms);
        // A period is a number of whole seconds.
        let (unit, ms) = UNITS.iter().find(divides).unwrap_or(&UNITS[3]);
        match self.period_ms / ms {
            1 => write!(to, "{}/{unit}", self.jobs),
            units => write!(to, "{}/{units}{unit}", self.jobs),
        }
    }
}

impl Serialize for StartRate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StartRate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for StartRate {
    fn schema_name() -> Cow<'static, str> {
        "StartRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Rate of starts, as `10/s` or `3/10s`.",
            "type": "string",
            "pattern": "^[0-9]+/[0-9]*[smhd]$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::StartRate;

    #[test]
    fn rate_round_trips_through_its_shortest_text() {
        let rate = |text: &str| text.parse::<StartRate>().unwrap();
        assert_eq!(rate("10/s"), StartRate { jobs: 10, period_ms: 1000 });
        for text in ["1/s", "3/10s", "100/m", "7/2h", "5/d", "1000/s", "86400000/d"] {
            assert_eq!(rate(text).to_string(), text);
            let json = serde_json::to_string(&rate(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<StartRate>(&json).unwrap(), rate(text));
        }
        assert_eq!(rate("3/60s").to_string(), "3/m");
        assert_eq!(rate("3/1m").to_string(), "3/m");
    }

    #[test]
    fn rate_has_bounds() {
        for wrong in [
            "",
            "10",
            "/s",
            "10/",
            "0/s",
            "10/0s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "10/x",
            "10/ms",
            "10/-1s",
            "1/s/s",
            "1001/s",
            "60001/m",
            "1/2d",
            "1/25h",
            "1/86401s",
            "99999999999999999999/s",
            "1/99999999999999999999s",
        ] {
            assert!(wrong.parse::<StartRate>().is_err(), "{wrong}");
        }
        assert!("1/86400s".parse::<StartRate>().is_ok());
    }
}
