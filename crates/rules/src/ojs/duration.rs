//! Durations of ISO 8601: `PT1.5S`, `PT5M`, `P1DT2H`, `P2W`.

/// Longest duration, in milliseconds: a hundred years.
const MAX_MS: f64 = 3_155_760_000_000.0;

/// Parses a duration to milliseconds; months and years have no fixed length, and are refused.
pub fn parse_duration(text: &str) -> Option<u64> {
    let (date, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text.strip_prefix('P')?, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let date = sum(date, &[('W', 604_800_000.0), ('D', 86_400_000.0)])?;
    let ms = date + sum(time, &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1000.0)])?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and MAX_MS")]
    (0.0..=MAX_MS).contains(&ms).then(|| ms.round() as u64)
}

/// Sums the parts of a text like `1H30M`. Each unit occurs at most once, in the order of `units`.
fn sum(mut text: &str, units: &[(char, f64)]) -> Option<f64> {
    let (mut total, mut units) = (0.0, units.iter());
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(end);
        let mut rest = rest.chars();
        let unit = rest.next()?;
        let (_, ms) = units.find(|(known, _)| *known == unit)?;
        total += number.parse::<f64>().ok()? * ms;
        text = rest.as_str();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_are_parsed_and_invalid_ones_refused() {
        let fine = ["PT0S", "PT1.5S", "PT5M", "PT1H30M", "P1DT2H", "P2W"];
        let ms = [0, 1500, 300_000, 5_400_000, 93_600_000, 1_209_600_000];
        assert_eq!(fine.map(parse_duration), ms.map(Some));
        for wrong in "|P|PT|P1DT|5s|PT5|PT5X|P1Y|P1M|PT5S5M|PT-5S|P99999999W|PT1.2.3S".split('|') {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
