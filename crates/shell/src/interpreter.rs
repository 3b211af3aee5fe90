//! Interpreters that take a program text as the value of an option, such as `perl -e TEXT`.

use crate::script::{Language, Script};

struct Interpreter {
    language: Language,
    /// Names without a version.
    names: &'static [&'static str],
    /// Short options whose value is a program text.
    texts: &'static str,
    /// Long options whose value is a program text.
    long_texts: &'static [&'static str],
    /// Short options that take another value, in the same word or in the next one.
    values: &'static str,
    /// Short options whose value, if any, is in the same word.
    attached: &'static str,
    /// True if all words after the program text are its arguments.
    text_is_last: bool,
}

static INTERPRETERS: [Interpreter; 5] = [
    Interpreter {
        language: Language::Perl,
        names: &["perl"],
        texts: "eE",
        long_texts: &[],
        values: "",
        attached: "CDFIMimxV",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Python,
        names: &["python", "pypy"],
        texts: "c",
        long_texts: &[],
        values: "WX",
        attached: "",
        text_is_last: true,
    },
    Interpreter {
        language: Language::Ruby,
        names: &["ruby", "jruby"],
        texts: "e",
        long_texts: &[],
        values: "CEIr",
        attached: "FKWix",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Node,
        names: &["node", "nodejs", "bun"],
        texts: "ep",
        long_texts: &["--eval", "--print"],
        values: "rC",
        attached: "",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Php,
        names: &["php"],
        texts: "rRBE",
        long_texts: &["--run", "--process-begin", "--process-code", "--process-end"],
        values: "cdfgStz",
        attached: "",
        text_is_last: false,
    },
];

pub(crate) fn is_one(program: &str) -> bool {
    of(program).is_some()
}

fn of(program: &str) -> Option<&'static Interpreter> {
    let without_version = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.iter().find(|interpreter| interpreter.names.contains(&without_version))
}

/// Finds the program text among the `arguments` of an interpreter.
pub(crate) fn script(program: &str, arguments: &[&str]) -> Script {
    let Some(interpreter) = of(program) else { return Script::None };
    let (mut before, mut has_text) = (Word::Other, false);
    for &word in arguments {
        has_text |= before == Word::Text;
        before = match before {
            Word::Text if interpreter.text_is_last => return Script::Given,
            Word::Text | Word::Value => Word::Other,
            Word::Other if word == "--" || !word.starts_with('-') => return Script::after_operand(has_text),
            Word::Other => interpreter.next_after(word),
        };
    }
    match before {
        Word::Text => Script::Next(interpreter.language),
        Word::Value | Word::Other => Script::None,
    }
}

/// Meaning of the word after an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Text,
    Value,
    Other,
}

impl Interpreter {
    fn next_after(&self, option: &str) -> Word {
        if option.starts_with("--") {
            return if self.long_texts.contains(&option) { Word::Text } else { Word::Other };
        }
        let is_last = |at: usize| at + 1 == option.len();
        for (at, c) in option.char_indices().skip(1) {
            if self.texts.contains(c) {
                // Letters may follow only in node's `-pe TEXT`.
                if is_last(at) {
                    return Word::Text;
                }
                if self.language != Language::Node {
                    return Word::Other;
                }
            } else if self.values.contains(c) {
                return if is_last(at) { Word::Value } else { Word::Other };
            } else if self.attached.contains(c) {
                return Word::Other;
            }
        }
        Word::Other
    }
}

#[cfg(test)]
mod tests {
    use super::{Language, Script, script};

    #[test]
    fn program_text_is_the_value_of_an_option() {
        for (line, expected) in [
            ("perl -e", Script::Next(Language::Perl)),
            ("perl -lane", Script::Next(Language::Perl)),
            ("perl -MList::Util -ne", Script::Next(Language::Perl)),
            ("perl -i -pe", Script::Next(Language::Perl)),
            ("perl -e x -e", Script::Next(Language::Perl)),
            ("perl -0777ne", Script::Next(Language::Perl)),
            ("perl -pie", Script::None),
            ("perl -e x", Script::None),
            ("perl -e x --", Script::Given),
            ("perl -e x file", Script::Given),
            ("perl script.pl -e", Script::None),
            ("perl -w script.pl", Script::None),
            ("python -c", Script::Next(Language::Python)),
            ("python3.12 -W ignore -Ic", Script::Next(Language::Python)),
            ("python3 -c x", Script::Given),
            ("python3 -c x -c", Script::Given),
            ("python3 -W", Script::None),
            ("python3 x.py -c", Script::None),
            ("python3 -m tool -c", Script::None),
            ("ruby -rjson -ne", Script::Next(Language::Ruby)),
            ("node -e", Script::Next(Language::Node)),
            ("node -pe", Script::Next(Language::Node)),
            ("node -r fs --eval", Script::Next(Language::Node)),
            ("php -d x=1 -r", Script::Next(Language::Php)),
            ("php -f", Script::None),
            ("wc -c", Script::None),
        ] {
            let (program, arguments) = line.split_once(' ').unwrap();
            assert_eq!(script(program, &arguments.split(' ').collect::<Vec<_>>()), expected, "{line}");
        }
    }
}
