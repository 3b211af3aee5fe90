//! Form of a budget in the keys file: `{ per = "24h", jobs = 10000, output_bytes = "20GiB" }`.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::Budget;

/// Longest window, in hours. Every change of the usage writes a row for each hour of the window.
const MAX_HOURS: u64 = 31 * 24;

/// Reason for which a text of a budget is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The window is not a whole number of hours or days, or out of bounds.
    #[error("per is '{0}': use a number of hours from 1h to 744h, or of days from 1d to 31d")]
    Window(String),
    /// The text is not a number of bytes.
    #[error("'{0}' is not a number of bytes: use a number, or a number with KiB, MiB, GiB or TiB")]
    Bytes(String),
}

/// Budget as the keys file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetOptions {
    #[serde(deserialize_with = "window")]
    per: u64,
    #[serde(default)]
    jobs: Option<u64>,
    #[serde(default)]
    plans: Option<u64>,
    #[serde(default)]
    running: Option<u64>,
    #[serde(default)]
    cpu_secs: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    output_bytes: Option<u64>,
}

impl From<BudgetOptions> for Budget {
    fn from(options: BudgetOptions) -> Self {
        let BudgetOptions { per, jobs, plans, running, cpu_secs, output_bytes } = options;
        Self { per_hours: per, jobs, plans, running, cpu_secs, output_bytes }
    }
}

fn window<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse_window(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// Parses `24h` or `7d` as a number of hours.
fn parse_window(text: &str) -> Result<u64, OptionError> {
    let hours = match (text.strip_suffix('h'), text.strip_suffix('d')) {
        (Some(hours), _) => number(hours),
        (None, Some(days)) => number(days).and_then(|days| days.checked_mul(24)),
        (None, None) => None,
    };
    let in_bounds = hours.filter(|hours| (1..=MAX_HOURS).contains(hours));
    in_bounds.ok_or_else(|| OptionError::Window(text.to_owned()))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match Bytes::deserialize(from)? {
        Bytes::Number(number) => Ok(Some(number)),
        Bytes::Text(text) => parse_bytes(&text).map(Some).map_err(D::Error::custom),
    }
}

/// Parses `20GiB` as a number of bytes.
fn parse_bytes(text: &str) -> Result<u64, OptionError> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let scaled = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = scaled.unwrap_or((text, 0));
    let bytes = number(digits.trim_end()).and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| OptionError::Bytes(text.to_owned()))
}

/// Parses digits. `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Budget, BudgetOptions, OptionError, parse_bytes, parse_window};

    #[test]
    fn window_is_a_number_of_hours_or_days() {
        assert_eq!(["1h", "24h", "7d", "31d"].map(parse_window), [1, 24, 168, 744].map(Ok));
        for wrong in ["", "h", "24", "0h", "745h", "32d", "1.5h", "+1h", "1m", "18446744073709551615d"] {
            assert_eq!(parse_window(wrong), Err(OptionError::Window(wrong.into())));
        }
    }

    #[test]
    fn bytes_are_a_number_with_or_without_a_binary_unit() {
        let texts = ["7", "1KiB", "3 MiB", "20GiB", "1TiB"];
        assert_eq!(texts.map(parse_bytes), [7, 1 << 10, 3 << 20, 20 << 30, 1 << 40].map(Ok));
        for wrong in ["", "GiB", "1GB", "-1", "1.5GiB", "99999999TiB"] {
            assert_eq!(parse_bytes(wrong), Err(OptionError::Bytes(wrong.into())));
        }
    }

    #[test]
    fn budget_of_the_keys_file_has_exactly_its_fields() {
        let read = |json| serde_json::from_value::<BudgetOptions>(json).map(Budget::from);
        let full = json!({"per": "24h", "jobs": 10, "plans": 5, "running": 2, "cpu_secs": 60, "output_bytes": "1KiB"});
        let budget = Budget {
            per_hours: 24,
            jobs: Some(10),
            plans: Some(5),
            running: Some(2),
            cpu_secs: Some(60),
            output_bytes: Some(1024),
        };
        assert_eq!(read(full).unwrap(), budget);
        assert_eq!(read(json!({"per": "1d", "output_bytes": 9})).unwrap().output_bytes, Some(9));
        let words = |json| read(json).unwrap_err().to_string();
        assert!(words(json!({"jobs": 1})).contains("missing field `per`"));
        assert!(words(json!({"per": "1d", "job": 1})).contains("unknown field `job`"));
        assert!(words(json!({"per": "1 day"})).contains("per is '1 day'"));
        assert!(words(json!({"per": "1d", "jobs": -1})).contains("invalid value"));
    }
}
