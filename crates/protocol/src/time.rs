//! Points in time with a resolution of a millisecond: RFC 3339 in UTC on the wire, and a number in
//! compact records.

use std::{borrow::Cow, fmt, time::SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

/// 10000-01-01T00:00:00Z, because RFC 3339 has four digits for the year.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

impl Timestamp {
    /// Returns this time plus `ms` milliseconds, or the largest time on overflow.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this time, or 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Parses RFC 3339. Times before 1970 and after the year 9999 are refused.
    pub fn parse(text: &str) -> Option<Self> {
        let ms = DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis();
        u64::try_from(ms).ok().filter(|ms| *ms < YEAR_10000_MS).map(Self)
    }

    /// Parses RFC 3339. A time before 1970 becomes 1970. Times after the year 9999 are refused.
    pub fn parse_saturating(text: &str) -> Option<Self> {
        let ms = DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis();
        Some(Self(u64::try_from(ms).unwrap_or_default())).filter(|time| time.0 < YEAR_10000_MS)
    }
}

impl From<SystemTime> for Timestamp {
    /// A time before 1970 becomes 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339, and the last millisecond of the year 9999 for any later time: what is
    /// written can be parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.min(YEAR_10000_MS - 1).cast_signed();
        let time = DateTime::<Utc>::from_timestamp_millis(ms).expect("its year has four digits");
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(self) } else { to.serialize_u64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return u64::deserialize(from).map(Self);
        }
        let text = String::deserialize(from)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("'{text}' is not an RFC 3339 time after 1970")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Timestamp, YEAR_10000_MS};

    #[test]
    fn timestamp_of_a_clock_is_in_milliseconds_since_1970() {
        let at = |time: Option<SystemTime>| Timestamp::from(time.unwrap());
        let (epoch, some) = (SystemTime::UNIX_EPOCH, Duration::from_micros(2_999));
        assert_eq!(at(epoch.checked_add(some)), Timestamp(2));
        assert_eq!(at(epoch.checked_sub(some)), Timestamp(0));
    }

    #[test]
    fn json_of_any_timestamp_can_be_read() {
        let last = YEAR_10000_MS - 1;
        for (ms, read) in [(0, 0), (last, last), (last + 1, last), (i64::MAX as u64, last), (u64::MAX, last)]
        {
            let json = serde_json::to_string(&Timestamp(ms)).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp(read), "{json}");
        }
    }

    #[test]
    fn timestamp_round_trips_through_rfc_3339() {
        let time = Timestamp(1_763_373_605_250);
        assert_eq!(time.to_string(), "2025-11-17T10:00:05.250Z");
        assert_eq!(Timestamp::parse("2025-11-17T10:00:05.250Z"), Some(time));
        assert_eq!(Timestamp::parse("2025-11-17T11:00:05.250+01:00"), Some(time));
        assert_eq!(Timestamp::parse("yesterday"), None);
        let last = Timestamp::parse("9999-12-31T23:59:59.999Z").unwrap();
        assert_eq!(Timestamp::parse(&last.to_string()), Some(last));
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59-01:00"), None, "in UTC its year has five digits");
    }
}
