//! Types of arguments, and the check of a literal text against its type.

use std::fmt;

use agenix_protocol::documents::InputType;

use crate::{jq, sed};

/// Type of an argument or of the value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// File that the tool reads, or `-` for stdin.
    Read,
    /// File that the tool writes.
    Write,
    /// Beginning of the names of files that the tool writes.
    Prefix,
    /// Any text, which the tool uses neither as a file nor as code.
    Text,
    /// Whole number between two bounds.
    Int {
        /// Minimum.
        least: i64,
        /// Maximum.
        most: i64,
    },
    /// Number with an optional sign and unit, as `10`, `+5` and `4K`.
    Count,
    /// One character, or `\0`.
    Char,
    /// Key of sort, as `2,2n`.
    KeyDef,
    /// Pattern of names.
    Glob,
    /// Regular expression.
    Regex,
    /// Script of sed, without commands that touch files or run programs.
    Sed,
    /// Filter of jq, without modules and the environment.
    Jq,
    /// Description of a time for GNU date, without a time zone file.
    Date,
    /// Letters, digits, `_`, `.`, `-` and `:`. The first character is a letter, a digit or `_`.
    Name,
    /// One of these words.
    Enum(Vec<String>),
}

/// Types that are one word, with the word.
const WORDS: [(&str, ValueType); 13] = [
    ("read", ValueType::Read),
    ("write", ValueType::Write),
    ("prefix", ValueType::Prefix),
    ("TEXT", ValueType::Text),
    ("COUNT", ValueType::Count),
    ("CHAR", ValueType::Char),
    ("KEYDEF", ValueType::KeyDef),
    ("GLOB", ValueType::Glob),
    ("REGEX", ValueType::Regex),
    ("SED", ValueType::Sed),
    ("JQ", ValueType::Jq),
    ("DATE", ValueType::Date),
    ("NAME", ValueType::Name),
];

impl ValueType {
    /// Parses a type of a grammar.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, known)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(known.clone());
        }
        if text == "INT" {
            return Ok(Self::Int { least: i64::MIN, most: i64::MAX });
        }
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(bounds) = inside("INT") {
            let numbers = bounds
                .split_once("..")
                .and_then(|(least, most)| Some((least.parse::<i64>().ok()?, most.parse::<i64>().ok()?)));
            return match numbers {
                Some((least, most)) if least <= most => Ok(Self::Int { least, most }),
                _ => Err(format!("'{text}' is not a range: write INT(1..4)")),
            };
        }
        if let Some(words) = inside("ENUM") {
            let words: Vec<String> = words.split('|').map(String::from).collect();
            let are_legal = words.iter().all(|word| !word.is_empty() && !word.starts_with('-'));
            return are_legal
                .then_some(Self::Enum(words))
                .ok_or_else(|| format!("'{text}' is not a list of words: write ENUM(a|b)"));
        }
        let all: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
        Err(format!("'{text}' is not a type: the types are {}, INT(a..b), ENUM(a|b)", all.join(", ")))
    }

    /// Returns true if the value names files.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Prefix)
    }

    /// Returns true if the value is code, so that no part of it may come from an input.
    pub(crate) fn is_code(&self) -> bool {
        matches!(self, Self::Sed | Self::Jq | Self::Date)
    }

    /// Returns true if any text without NUL has this type.
    pub(crate) fn is_any_text(&self) -> bool {
        matches!(self, Self::Text | Self::Glob | Self::Regex)
    }

    /// Checks a literal text. Files are checked against the roots of the policy instead.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        let holds = match self {
            Self::Read | Self::Write | Self::Prefix | Self::Text | Self::Glob | Self::Regex => true,
            Self::Int { least, most } => {
                is_number(text) && text.parse().is_ok_and(|number: i64| (*least..=*most).contains(&number))
            }
            Self::Count => is_count(text),
            Self::Char => text == "\\0" || text.chars().count() == 1,
            Self::KeyDef => is_key(text),
            Self::Sed => return sed::check(text),
            Self::Jq => return jq::check(text),
            Self::Date => text.chars().all(|c| c.is_ascii_alphanumeric() || " :+-/@.,".contains(c)),
            Self::Name => InputType::is_name(text),
            Self::Enum(words) => words.iter().any(|word| word == text),
        };
        if holds { Ok(()) } else { Err(format!("'{}' is not {self}", text.escape_debug())) }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int { least: i64::MIN, most: i64::MAX } => f.write_str("INT"),
            Self::Int { least, most } => write!(f, "INT({least}..{most})"),
            Self::Enum(words) => write!(f, "ENUM({})", words.join("|")),
            other => f.write_str(WORDS.iter().find(|(_, known)| known == other).map_or("", |(word, _)| word)),
        }
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_count(text: &str) -> bool {
    const UNITS: [&str; 14] = ["", "b", "k", "K", "kB", "KiB", "M", "MB", "MiB", "G", "GB", "GiB", "T", "%"];
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && UNITS.contains(&unit)
}

/// Returns true if `text` is a start, and after a comma an end, of a key of sort.
fn is_key(text: &str) -> bool {
    let is_position = |text: &str| {
        let field = text.trim_end_matches(|c: char| "bdfgiMhnRrV".contains(c));
        let mut numbers = field.split('.');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        numbers.clone().count() <= 2 && numbers.all(is_number)
    };
    let mut positions = text.split(',');
    positions.clone().count() <= 2 && positions.all(is_position)
}

#[cfg(test)]
mod tests {
    use super::ValueType;

    #[test]
    fn texts_have_their_types_and_no_others() {
        let cases: [(&str, &[&str], &[&str]); 9] = [
            ("INT(1..4)", &["1", "4"], &["0", "5", "", "+1", "1x", "-", "99999999999999999999"]),
            ("INT", &["-3", "0"], &["1.5", "--1", "a"]),
            ("COUNT", &["10", "+5", "-5", "4K", "1MiB", "50%"], &["", "K", "5x", "1 K", "++5"]),
            ("CHAR", &[",", "é", "\\0"], &["", "ab", "\\1"]),
            ("KEYDEF", &["2", "2,2n", "1.3,1.5rn"], &["", "2,", "a", "1,2,3", "1.2.3", "2o/x"]),
            ("NAME", &["a", "en_US.UTF-8", "_x"], &["", "-a", "../a", "a/b", ".a"]),
            ("ENUM(a|b)", &["a", "b"], &["", "c", "a|b"]),
            ("DATE", &["@0", "2026-01-31 10:00", "next week"], &["TZ=\"/etc/passwd\" now", "a\nb"]),
            ("JQ", &[".a", "map(.x) | add"], &["env.HOME", "import \"a\" as $x; .", "$ENV"]),
        ];
        for (grammar, right, wrong) in cases {
            let value_type = ValueType::parse(grammar).unwrap();
            assert_eq!(value_type.to_string(), grammar);
            for text in right {
                assert_eq!(value_type.check(text), Ok(()), "{grammar} {text}");
            }
            for text in wrong {
                assert!(value_type.check(text).is_err(), "{grammar} {text}");
            }
        }
    }

    #[test]
    fn unknown_types_are_named() {
        for text in ["", "Read", "INT(4..1)", "INT(a..b)", "ENUM()", "ENUM(-x)", "read*"] {
            assert!(ValueType::parse(text).is_err(), "{text}");
        }
    }
}
