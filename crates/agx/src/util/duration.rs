//! Durations of options: seconds, or a number with a unit.

use std::time::Duration;

/// Maximum duration, in seconds: a year.
const MAX_SECS: u32 = 365 * 86_400;

/// Maximum time limit, in seconds: a hundred years. A clock cannot add any time that a number can
/// hold.
pub(crate) const MAX_LIMIT_SECS: u64 = 100 * 365 * 86_400;

/// Parses seconds with fractions, or such a number with the suffix s, m, h or d. At most a year.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "give seconds, as 0.5, or a number with s, m, h or d behind it, as 2m".to_owned();
    let (number, unit) = parts(text).ok_or_else(wrong)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let secs = number.parse::<f64>().ok().filter(|_| is_number).map(|number| number * f64::from(unit));
    secs.filter(|&secs| secs <= f64::from(MAX_SECS)).map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Parses whole seconds from 1, or a whole number with the suffix s, m, h or d, at most
/// [`MAX_LIMIT_SECS`].
pub(crate) fn parse_secs(text: &str) -> Result<u64, String> {
    let secs = whole_secs(text)?.filter(|&secs| secs <= MAX_LIMIT_SECS);
    secs.ok_or_else(|| "give at most a hundred years, which is 36500d".into())
}

/// Parses like [`parse_secs`], at most a year.
pub(crate) fn parse_wait(text: &str) -> Result<u64, String> {
    let secs = whole_secs(text)?.filter(|&secs| secs <= u64::from(MAX_SECS));
    secs.ok_or_else(|| "give at most a year, which is 365d".into())
}

/// Returns the seconds from 1 that `text` names, or `None` if no number can hold them.
fn whole_secs(text: &str) -> Result<Option<u64>, String> {
    let wrong = || {
        "give whole seconds from 1, or a number with s, m, h or d behind it, as 90 or 5m; no percentage"
            .to_owned()
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (number, unit) = parts(text).filter(|(number, _)| is_number(number)).ok_or_else(wrong)?;
    let secs = number.parse::<u64>().ok().and_then(|number| number.checked_mul(u64::from(unit)));
    if secs == Some(0) { Err(wrong()) } else { Ok(secs) }
}

/// Returns the number in `text`, and the seconds of its unit.
fn parts(text: &str) -> Option<(&str, u32)> {
    let end = text.len() - usize::from(text.ends_with(|unit: char| unit.is_ascii_alphabetic()));
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    Some((number, unit))
}

#[cfg(test)]
mod tests {
    use super::{MAX_LIMIT_SECS, parse_duration, parse_secs, parse_wait};

    #[test]
    fn durations_have_fractions_and_units() {
        let parsed = |text: &str| parse_duration(text).map(|duration| duration.as_millis());
        for (text, millis) in [
            ("0.5", 500),
            ("2", 2000),
            (".25", 250),
            ("1.5m", 90_000),
            ("0", 0),
            ("1h", 3_600_000),
            ("365d", 31_536_000_000),
        ] {
            assert_eq!(parsed(text), Ok(millis), "{text}");
        }
        for wrong in ["", "s", "-1", "1e3", "inf", "1.2.3", "5w", "366d", "1 s", "+1", "5é"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn time_limits_are_whole_seconds() {
        assert_eq!([parse_secs("90"), parse_secs("5m"), parse_secs("1d")], [Ok(90), Ok(300), Ok(86_400)]);
        for wrong in ["", "0", "0d", "1.5", "m", "5 m", "-1"] {
            assert!(parse_secs(wrong).unwrap_err().contains("give whole seconds from 1"), "{wrong}");
        }
    }

    #[test]
    fn time_limits_have_at_most_a_hundred_years() {
        for most in ["36500d", "3153600000"] {
            assert_eq!(parse_secs(most), Ok(MAX_LIMIT_SECS), "{most}");
        }
        for wrong in
            ["36501d", "3153600001", "9223372036854775807", "99999999999999999999", "99999999999999999d"]
        {
            assert!(parse_secs(wrong).unwrap_err().contains("36500d"), "{wrong}");
        }
    }

    #[test]
    fn waits_have_at_most_a_year() {
        assert_eq!([parse_wait("5m"), parse_wait("365d")], [Ok(300), Ok(31_536_000)]);
        for wrong in ["366d", "18446744073709551615", "0", "1.5"] {
            assert!(parse_wait(wrong).is_err(), "{wrong}");
        }
    }
}
