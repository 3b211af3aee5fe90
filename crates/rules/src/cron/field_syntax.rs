//! Syntax of the fields of a cron expression, as far as croner does not check it.
//!
//! croner replaces names of months and weekdays anywhere in an expression, ignores empty elements
//! of lists, and takes `L` alone and `+` in the weekday. cron refuses all such expressions.

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Field of an expression.
struct Field {
    name: &'static str,
    /// Returns false for a refused element of the list. The element is in upper case.
    is_known: fn(&str) -> bool,
    help: &'static str,
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", is_known: has_no_letter, help: "give numbers from 0 to 59" },
    Field { name: "hour", is_known: has_no_letter, help: "give numbers from 0 to 23" },
    Field { name: "day", is_known: is_day, help: "give numbers from 1 to 31, L, LW, or a number with W" },
    Field { name: "month", is_known: is_month, help: "give numbers from 1 to 12, or JAN to DEC" },
    Field {
        name: "weekday",
        is_known: is_weekday,
        help: "give numbers from 0 to 7 or SUN to SAT, each alone, with L, or with #1 to #5",
    },
];

/// Returns the reason why the five fields of an expression are refused, or `None` if croner finds
/// all other faults.
pub(super) fn fault(fields: &[&str]) -> Option<String> {
    FIELDS.iter().zip(fields).find_map(|(Field { name, is_known, help }, field)| {
        if field.split(',').any(str::is_empty) {
            return Some(format!("the {name} '{field}' has an empty element: remove the comma"));
        }
        let unknown = field.split(',').find(|element| !is_known(&element.to_ascii_uppercase()))?;
        Some(format!("the {name} has '{unknown}': {help}"))
    })
}

fn has_no_letter(text: &str) -> bool {
    !text.contains(char::is_alphabetic)
}

fn is_day(element: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_nearest_weekday = element.strip_suffix('W').is_some_and(is_number);
    has_no_letter(element) || matches!(element, "L" | "LW") || is_nearest_weekday
}

fn is_month(element: &str) -> bool {
    has_only(&MONTHS, element)
}

/// Returns false for `L` without a weekday, and for `+`, which croner takes for a condition.
fn is_weekday(element: &str) -> bool {
    let days = match element.split_once('#') {
        Some((days, "1" | "2" | "3" | "4" | "5" | "L")) => days,
        Some(_) => return false,
        None => element.strip_suffix('L').unwrap_or(element),
    };
    !days.is_empty() && !days.contains('+') && has_only(&WEEKDAYS, days)
}

/// Returns true if all letters of `element` are whole names that stand for a number, and not for a
/// step.
fn has_only(names: &[&str], element: &str) -> bool {
    let (range, step) = element.split_once('/').unwrap_or((element, ""));
    has_no_letter(step) && range.split('-').all(|end| has_no_letter(end) || names.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::fault;

    fn fault_of(expression: &str) -> Option<String> {
        fault(&expression.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn names_are_refused_in_other_fields_and_within_words() {
        for (expression, expected) in [
            ("sun 0 * * *", "the minute has 'sun': give numbers from 0 to 59"),
            ("0 JAN * * *", "the hour has 'JAN': give numbers from 0 to 23"),
            ("0 3 MON * *", "the day has 'MON': give numbers from 1 to 31, L, LW, or a number with W"),
            ("0 0 1SUN * *", "the day has '1SUN': "),
            ("0 3 * MON *", "the month has 'MON': give numbers from 1 to 12, or JAN to DEC"),
            ("0 0 * 2,1JAN *", "the month has '1JAN': "),
            ("0 0 * January *", "the month has 'January': "),
            ("0 0 * */FEB *", "the month has '*/FEB': "),
            ("0 3 * * JAN", "the weekday has 'JAN': give numbers from 0 to 7 or SUN to SAT, "),
            ("0 3 * * MON,1TUE", "the weekday has '1TUE': "),
            ("0 3 * * \u{17f}un", "the weekday has '\u{17f}un': "),
        ] {
            let found = fault_of(expression);
            assert!(found.as_ref().is_some_and(|found| found.starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn signs_that_croner_ignores_are_refused() {
        for (expression, expected) in [
            ("5, * * * *", "the minute '5,' has an empty element: remove the comma"),
            ("0 1,,2 * * *", "the hour '1,,2' has an empty element: remove the comma"),
            ("0 0 , * *", "the day ',' has an empty element: remove the comma"),
            ("0 0 15W3 * *", "the day has '15W3': "),
            ("0 0 LW2 * *", "the day has 'LW2': "),
            ("0 0 1 * L", "the weekday has 'L': "),
            ("0 0 * * 1,L", "the weekday has 'L': "),
            ("0 0 * * 5LL", "the weekday has '5LL': "),
            ("0 0 * * 5#2L", "the weekday has '5#2L': "),
            ("0 0 13 * +5", "the weekday has '+5': "),
        ] {
            let found = fault_of(expression);
            assert!(found.as_ref().is_some_and(|found| found.starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn names_and_extensions_are_taken_in_their_fields() {
        for expression in [
            "*/5 0-23/2 1,15 */3 7",
            "0 0 1 jan-Mar,DEC fri-SUN,tue",
            "0 0 ? * MON-FRI/2",
            "0 0 L,15w * ?",
            "0 0 lw * 5L,FRIL,fri#l,MON#1,0#5",
        ] {
            assert_eq!(fault_of(expression), None, "{expression}");
        }
    }
}
