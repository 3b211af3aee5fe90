//! Interpreters that take a program text as the value of an option, such as `perl -e TEXT`.

use crate::script::Language;

/// Position of the program text of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// The command probably has no program text.
    None,
    /// The next word may be an option, in whose word a program text may begin.
    Options(&'static Interpreter),
    /// The next word is the program text.
    Next(Language),
    /// The next word is a further part of the program text.
    Continued(Language),
    /// A previous word is the program text, and the next word an argument of it.
    Given,
    /// A previous word is the file of the program. The value is the number of arguments up to this
    /// word.
    File(usize),
}

impl Script {
    /// Returns the position of the program text of an interpreter behind its first operand, the
    /// last of `count` arguments. Without a program text, the operand is a program in a file, which
    /// may have options of its own.
    pub(crate) fn after_operand(has_text: bool, count: usize) -> Self {
        if has_text { Self::Given } else { Self::File(count) }
    }
}

/// Program with options whose values are program texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) language: Language,
    /// Names without a version.
    names: &'static [&'static str],
    /// Short options whose value is a program text.
    texts: &'static str,
    /// Long options whose value is a program text.
    long_texts: &'static [&'static str],
    /// Short options that take another value, in the same word or in the next one.
    values: &'static str,
    /// Long options that take another value in the next word.
    long_values: &'static [&'static str],
    /// Short options whose value, if any, is in the same word.
    attached: &'static str,
    /// True if all words after the program text are its arguments.
    text_is_last: bool,
}

static INTERPRETERS: [Interpreter; 6] = [
    Interpreter {
        language: Language::Perl,
        names: &["perl"],
        texts: "eE",
        long_texts: &[],
        values: "I",
        long_values: &[],
        attached: "CDFMimxV",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Python,
        names: &["python", "pypy"],
        texts: "c",
        long_texts: &[],
        values: "WX",
        long_values: &["--check-hash-based-pycs"],
        attached: "",
        text_is_last: true,
    },
    Interpreter {
        language: Language::Ruby,
        names: &["ruby", "jruby"],
        texts: "e",
        long_texts: &[],
        values: "CEIr",
        long_values: &["--disable", "--enable", "--encoding", "--external-encoding", "--internal-encoding"],
        attached: "FKWix",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Node,
        names: &["node", "nodejs", "bun"],
        texts: "ep",
        long_texts: &["--eval", "--print"],
        values: "rC",
        long_values: &[
            "--conditions",
            "--experimental-loader",
            "--import",
            "--input-type",
            "--loader",
            "--require",
        ],
        attached: "",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Php,
        names: &["php"],
        texts: "rRBE",
        long_texts: &["--run", "--process-begin", "--process-code", "--process-end"],
        values: "cdfgStz",
        long_values: &[
            "--define",
            "--docroot",
            "--file",
            "--global",
            "--php-ini",
            "--server",
            "--zend-extension",
        ],
        attached: "",
        text_is_last: false,
    },
    Interpreter {
        language: Language::Shell,
        names: &["fish"],
        texts: "cC",
        long_texts: &["--command", "--init-command"],
        values: "dDfop",
        long_values: &["--debug", "--debug-output", "--features", "--profile", "--profile-startup"],
        attached: "",
        text_is_last: false,
    },
];

/// awk, whose program text may also be its first operand.
pub(crate) static AWK: Interpreter = Interpreter {
    language: Language::Awk,
    names: &["awk", "gawk", "mawk", "nawk", "original-awk"],
    texts: "e",
    long_texts: &["--source"],
    values: "EFWfilv",
    long_values: &["--assign", "--exec", "--field-separator", "--file", "--include", "--load"],
    attached: "DLdop",
    text_is_last: false,
};

/// Programs that pass the argument of `-c` to a shell.
pub(crate) static SHELL_STARTER: Interpreter = Interpreter {
    language: Language::Shell,
    names: &["flock", "runuser", "script", "su"],
    texts: "c",
    long_texts: &["--command", "--session-command"],
    values: "BEGIOTgostuw",
    long_values: &[],
    attached: "",
    text_is_last: false,
};

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
    let (mut before, mut has_text) = (NextWord::Other, false);
    for (at, &word) in arguments.iter().enumerate() {
        has_text |= matches!(before, NextWord::Text | NextWord::Here);
        before = match before {
            NextWord::Text | NextWord::Here if interpreter.text_is_last => return Script::Given,
            NextWord::Text | NextWord::Value => NextWord::Other,
            _ if word == "--" => return Script::after_operand(has_text, at + 2),
            _ if !word.starts_with('-') => return Script::after_operand(has_text, at + 1),
            NextWord::Here | NextWord::Other => interpreter.next_after(word),
        };
    }
    match before {
        NextWord::Text => Script::Next(interpreter.language),
        NextWord::Here if interpreter.text_is_last => Script::Given,
        NextWord::Value => Script::None,
        NextWord::Here | NextWord::Other => Script::Options(interpreter),
    }
}

/// Meaning of the word after an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextWord {
    /// The word is a program text.
    Text,
    /// The word is another value.
    Value,
    /// The word is no value, and the option itself has a program text: `-e'…'`.
    Here,
    /// The word is no value.
    Other,
}

impl Interpreter {
    /// Returns true if `program` is the name of this interpreter.
    pub(crate) fn has_name(&self, program: &str) -> bool {
        self.names.contains(&program)
    }

    /// Returns the meaning of the word after `option`.
    pub(crate) fn next_after(&self, option: &str) -> NextWord {
        if option.starts_with("--") {
            return match option {
                _ if self.long_texts.contains(&option) => NextWord::Text,
                _ if self.long_values.contains(&option) => NextWord::Value,
                _ if self.has_text_behind(option) => NextWord::Here,
                _ => NextWord::Other,
            };
        }
        let is_last = |at: usize| at + 1 == option.len();
        for (at, c) in option.char_indices().skip(1) {
            if self.texts.contains(c) {
                if is_last(at) {
                    return NextWord::Text;
                }
                // Letters may follow only in node's `-pe TEXT`.
                if self.language != Language::Node {
                    return NextWord::Here;
                }
            } else if self.values.contains(c) {
                return if is_last(at) { NextWord::Value } else { NextWord::Other };
            } else if self.attached.contains(c) {
                return NextWord::Other;
            }
        }
        NextWord::Other
    }

    /// Returns true if a word that begins with `start` continues with a program text, because
    /// `start` has the option of the text: `-e`, `-ne`, `--eval=`.
    pub(crate) fn has_text_behind(&self, start: &str) -> bool {
        if start.starts_with("--") {
            let has_text =
                |option: &&str| start.strip_prefix(*option).is_some_and(|rest| rest.starts_with('='));
            return self.long_texts.iter().any(has_text);
        }
        self.first_with_value(start).is_some_and(|option| self.texts.contains(option))
    }

    /// Returns the first short option in `word` that may take the rest of the word as its value.
    pub(crate) fn first_with_value(&self, word: &str) -> Option<char> {
        let options = word.strip_prefix('-')?;
        options.chars().find(|&c| [self.texts, self.values, self.attached].iter().any(|all| all.contains(c)))
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
            ("perl -I lib -e", Script::Next(Language::Perl)),
            ("perl -Ilib -ne", Script::Next(Language::Perl)),
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
            ("python3 -cx", Script::Given),
            ("perl -ex file", Script::Given),
            ("python3 -W", Script::None),
            ("python3 x.py -c", Script::None),
            ("python3 -m tool -c", Script::None),
            ("ruby -rjson -ne", Script::Next(Language::Ruby)),
            ("node -e", Script::Next(Language::Node)),
            ("node -pe", Script::Next(Language::Node)),
            ("node -r fs --eval", Script::Next(Language::Node)),
            ("node --require fs --eval", Script::Next(Language::Node)),
            ("fish -N --command", Script::Next(Language::Shell)),
            ("php -d x=1 -r", Script::Next(Language::Php)),
            ("php -f", Script::None),
            ("wc -c", Script::None),
        ] {
            let (program, arguments) = line.split_once(' ').unwrap();
            let found = match script(program, &arguments.split(' ').collect::<Vec<_>>()) {
                Script::Options(_) | Script::File(_) => Script::None,
                found => found,
            };
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn program_text_may_be_in_the_word_of_its_option() {
        let is_text = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let (start, words) = words.split_last().unwrap();
            let (program, arguments) = words.split_first().unwrap();
            match script(program, arguments) {
                Script::Options(interpreter) => interpreter.has_text_behind(start),
                _ => false,
            }
        };
        for line in [
            "perl -e",
            "perl -lne",
            "perl -e x -0777ne",
            "perl -ex -E",
            "python3 -Ic",
            "ruby -rjson -e",
            "node --eval=",
            "node --require fs --print=",
            "php -d x=1 -r",
            "fish -c",
            "fish --init-command=",
        ] {
            assert!(is_text(line), "{line}");
        }
        for line in [
            "perl -i",
            "perl -pi",
            "perl -Mx=e",
            "perl x.pl -e",
            "perl -e x file -e",
            "python3 -W",
            "python3 -cx -c",
            "node --eval",
            "node app.js --eval=",
            "php -f",
            "wc -c",
        ] {
            assert!(!is_text(line), "{line}");
        }
    }
}
