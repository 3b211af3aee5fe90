//! Check for inputs that a program could read as options.

use super::fields::InputFields;
use crate::{
    output::OutputFormat,
    util::{shorten::shortened, text::CRLF_HELP},
};

/// Check of each input before agx sends it.
#[derive(Debug)]
pub(crate) struct OptionCheck {
    /// Placeholders at the start of a word where a program may read options.
    leading: InputFields,
    output: OutputFormat,
    /// True if the user was warned that inputs end with a carriage return.
    has_warned_of_crlf: bool,
}

impl OptionCheck {
    pub(crate) fn new(leading: InputFields, output: OutputFormat) -> Self {
        Self { leading, output, has_warned_of_crlf: false }
    }

    /// Returns the reason not to run the job of this input, if there is one.
    pub(crate) fn why_not(&mut self, args: &[String], number: u64) -> Option<String> {
        if !self.has_warned_of_crlf && args.iter().any(|arg| arg.ends_with('\r')) {
            self.has_warned_of_crlf = true;
            self.output.note(&format!("agx: input {number} ends with a carriage return (\\r): {CRLF_HELP}"));
        }
        read_as_option(&self.leading, args, number)
    }
}

/// Returns the reason not to run the job of an input that a program could read as an option.
fn read_as_option(leading: &InputFields, args: &[String], number: u64) -> Option<String> {
    let value = leading.values(args, number).into_iter().find(|value| is_option(value))?;
    Some(format!(
        "not run, because its input '{}' begins with - and the program could read it as an option: write -- before the \
         placeholder if the program knows --, or allow it with --inputs-may-be-options",
        shortened(&value)
    ))
}

/// Returns true if a program could read `value` as an option: not a negative number, nor `-`.
fn is_option(value: &str) -> bool {
    value.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !is_number(rest))
}

/// Returns true for a decimal number without a sign, such as `5`, `.5` and `1e-3`.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.chars().all(|c| c.is_ascii_digit() || ".eE+-".contains(c))
        && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{is_option, read_as_option};
    use crate::map::{InputFields, Placeholder};

    #[test]
    fn numbers_and_stdin_do_not_count_as_options() {
        for value in
            ["-rf", "--version", "--", "-n", "-.x", "-é", "-1R", "-9rf", "-1f", "-5-", "-.", "--5", "-e5"]
        {
            assert!(is_option(value), "{value}");
        }
        for value in ["-", "-5", "-0.5", "-.5", "-1e-3", "-2E+8", "a-b", "", "./-rf", "–x"] {
            assert!(!is_option(value), "{value}");
        }
    }

    #[test]
    fn option_check_looks_at_leading_values_only() {
        let leading = |text: &str| {
            InputFields::from(std::collections::BTreeSet::from([Placeholder::parse(text).unwrap()]))
        };
        let args = ["-rf".to_owned(), "dir/-x".to_owned()];
        assert!(read_as_option(&leading("1"), &args, 1).is_some());
        assert!(read_as_option(&leading("2"), &args, 1).is_none());
        assert!(read_as_option(&leading("2/"), &args, 1).is_some(), "the name alone");
        assert!(read_as_option(&InputFields::default(), &args, 1).is_none());
    }
}
