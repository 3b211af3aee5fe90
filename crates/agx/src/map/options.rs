//! Check for inputs that a program could read as options.

use serde_json::Value;

use super::{command_template::filled_args, fields::InputFields};
use crate::{
    output::OutputFormat,
    util::{shorten::shortened, text::CRLF_HELP},
};

/// Check of each input before agx sends it.
#[derive(Debug)]
pub(crate) struct OptionCheck {
    /// Templates of words that begin with an input where a program may read options.
    words: Vec<String>,
    /// Placeholders of the words.
    fields: InputFields,
    output: OutputFormat,
    /// True if the user was warned that inputs end with a carriage return.
    has_warned_of_crlf: bool,
}

impl OptionCheck {
    pub(crate) fn new(words: Vec<String>, fields: InputFields, output: OutputFormat) -> Self {
        Self { words, fields, output, has_warned_of_crlf: false }
    }

    /// Returns the reason not to run the job of this input, if there is one.
    pub(crate) fn why_not(&mut self, args: &[String], number: u64) -> Option<String> {
        if !self.has_warned_of_crlf && args.iter().any(|arg| arg.ends_with('\r')) {
            self.has_warned_of_crlf = true;
            self.output.note(&format!("agx: input {number} ends with a carriage return (\\r): {CRLF_HELP}"));
        }
        read_as_option(&self.words, &self.fields, args, number)
    }
}

/// Returns the reason not to run the job of an input if a program could read one of `words` as an
/// option. The words begin with placeholders of `fields`.
fn read_as_option(words: &[String], fields: &InputFields, args: &[String], number: u64) -> Option<String> {
    // Most inputs need no look at the words.
    let is_doubtful = |value: &String| value.is_empty() || value.starts_with('-');
    if words.is_empty() || !fields.values(args, number).iter().any(is_doubtful) {
        return None;
    }
    let input = Value::Object(fields.of(args, number)).to_string();
    let word = filled_args(words, &input).into_iter().find(|word| is_option(word))?;
    let kind = if args.contains(&word) { "input" } else { "argument" };
    Some(format!(
        "not run, because its {kind} '{}' begins with - and the program could read it as an option: write -- before the \
         placeholder if the program knows --, or allow it with --inputs-may-be-options",
        shortened(&word)
    ))
}

/// Returns true if a program could read `word` as an option: not a negative number, nor `-`.
fn is_option(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !is_number(rest))
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
    use crate::map::{Columns, InputFields, Placeholder, Separator};

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

    fn fields(placeholders: &[&str], columns: Columns) -> InputFields {
        let placeholders = placeholders.iter().map(|text| Placeholder::parse(text).unwrap());
        InputFields { placeholders: placeholders.collect(), columns }
    }

    #[test]
    fn option_check_looks_at_whole_words() {
        let fields = fields(&["1", "2", "2/", "1/."], Columns::default());
        let why = |word: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().copied().map(str::to_owned).collect();
            read_as_option(&[word.to_owned()], &fields, &args, 1)
        };
        let args = ["-rf", "dir/-x"];
        assert!(why("{{input.arg1}}", &args).unwrap().contains("because its input '-rf' begins"));
        assert!(why("{{input.arg2_name}}", &args).unwrap().contains("because its argument '-x' begins"));
        assert_eq!(why("{{input.arg2}}", &args), None);
        assert_eq!(read_as_option(&[], &fields, &["-rf".to_owned()], 1), None);
        for (word, args) in [
            ("{{input.arg1}}{{input.arg2}}", ["", "-rf"]),
            ("{{input.arg1}}-{{input.arg2}}", ["", "p"]),
            ("{{input.arg1_stem}}-old", ["dir/.x", ""]),
            ("{{input.arg1}}n", ["-", ""]),
            ("{{input.arg1}}{{input.arg2}}", ["-5", "x"]),
        ] {
            assert!(why(word, &args).is_some(), "{word} {args:?}");
        }
        for (word, args) in [
            ("{{input.arg1}}{{input.arg2}}", ["", "x-rf"]),
            ("{{input.arg1}}5", ["-", ""]),
            ("{{input.arg1}}.{{input.arg2}}", ["-5", "0"]),
        ] {
            assert_eq!(why(word, &args), None, "{word} {args:?}");
        }
    }

    #[test]
    fn option_check_sees_each_word_of_a_list_and_the_columns() {
        let list = InputFields::from(std::collections::BTreeSet::from([Placeholder::WHOLE.of_group()]));
        let args = ["a".to_owned(), "-x".to_owned()];
        let words = ["{{input.lines[]}}".to_owned()];
        assert!(read_as_option(&words, &list, &args, 1).is_some());
        assert_eq!(read_as_option(&words, &list, &args[..1], 1), None);
        let columns = fields(&["1", "2"], Columns::new(Some(Separator::parse(",").unwrap())));
        let words = ["{{input.arg1}}{{input.arg2}}".to_owned()];
        assert!(read_as_option(&words, &columns, &[",-rf".to_owned()], 1).is_some());
        assert_eq!(read_as_option(&words, &columns, &["a,-rf".to_owned()], 1), None);
    }
}
