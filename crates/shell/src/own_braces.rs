//! Programs that fill in braces of their own command, as `find -exec` and `xargs -I{}` do.

use crate::wrapper::{command_in, name};

/// Program that fills in `{}` of a command that it runs.
#[derive(Debug, PartialEq, Eq)]
pub struct BraceFiller {
    /// Name of the program.
    pub name: &'static str,
    /// True if the program also fills in `{.}`, `{/}` and similar parts.
    pub has_parts: bool,
}

static FIND: BraceFiller = BraceFiller { name: "find", has_parts: false };
static XARGS: BraceFiller = BraceFiller { name: "xargs", has_parts: false };
static FD: BraceFiller = BraceFiller { name: "fd", has_parts: true };
static PARALLEL: BraceFiller = BraceFiller { name: "parallel", has_parts: true };

/// Use that a program other than agx has for braces in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnBraces {
    /// The program fills in braces.
    Of(&'static BraceFiller),
    /// The word may be the option of xargs that names the text to fill in.
    OptionOfXargs,
}

impl OwnBraces {
    /// Returns the use of braces behind `start` in the same word.
    pub(crate) fn behind(self, start: &str) -> Self {
        let is_name = self == Self::OptionOfXargs
            && matches!(
                XargsOption::parse(start),
                Some(XargsOption::NextReplaced | XargsOption::Replaced("" | BRACES))
            );
        if is_name { Self::Of(&XARGS) } else { self }
    }

    /// Returns the program that fills in braces.
    pub(crate) fn filler(self) -> Option<&'static BraceFiller> {
        match self {
            Self::Of(filler) => Some(filler),
            Self::OptionOfXargs => None,
        }
    }
}

/// Returns the use of braces in the word that follows `words`.
pub(crate) fn of_next(words: &[&str]) -> Option<OwnBraces> {
    let mut words = words;
    while let Some((program, arguments)) = words.split_first() {
        match name(program) {
            "find" => return of_command(arguments, &["-exec", "-execdir", "-ok", "-okdir"], &FIND),
            "fd" | "fdfind" => return of_command(arguments, &["-x", "-X", "--exec", "--exec-batch"], &FD),
            "parallel" => return of_parallel(arguments),
            "xargs" => {
                let own = of_xargs(arguments);
                if own.is_some() {
                    return own;
                }
            }
            _ => {}
        }
        words = command_in(words, &is_filler)?;
    }
    None
}

fn is_filler(program: &str) -> bool {
    matches!(program, "find" | "fd" | "fdfind" | "parallel" | "xargs")
}

const BRACES: &str = "{}";

/// Returns the use of the next word if it belongs to a command, which begins behind an option among
/// `starts`, and ends with `;` or `{} +`.
fn of_command(arguments: &[&str], starts: &[&str], filler: &'static BraceFiller) -> Option<OwnBraces> {
    let start = arguments.iter().rposition(|word| starts.contains(word))?;
    let command = &arguments[start + 1..];
    let has_ended = command.contains(&";") || command.windows(2).any(|pair| matches!(pair, [BRACES, "+"]));
    (!has_ended).then_some(OwnBraces::Of(filler))
}

/// Returns the use of the next word of GNU Parallel, unless `-I` names another text, or the word is
/// an input.
fn of_parallel(arguments: &[&str]) -> Option<OwnBraces> {
    let is_other = |word: &&str| word.starts_with("-I") || word.starts_with(":::");
    (!arguments.iter().any(is_other)).then_some(OwnBraces::Of(&PARALLEL))
}

/// Returns the use of the next word of xargs: of its options, or of its command if an option names
/// `{}` as the text to fill in.
fn of_xargs(arguments: &[&str]) -> Option<OwnBraces> {
    let (mut next, mut fills) = (XargsOption::Other, false);
    for &word in arguments {
        next = match next {
            XargsOption::NextReplaced => {
                fills = word == BRACES;
                XargsOption::Other
            }
            XargsOption::NextValue => XargsOption::Other,
            XargsOption::Replaced(_) | XargsOption::Other => {
                let Some(option) = XargsOption::parse(word) else {
                    return fills.then_some(OwnBraces::Of(&XARGS));
                };
                if let XargsOption::Replaced(text) = option {
                    fills = text == BRACES;
                }
                option
            }
        };
    }
    let is_text = next == XargsOption::NextReplaced;
    Some(if fills || is_text { OwnBraces::Of(&XARGS) } else { OwnBraces::OptionOfXargs })
}

/// Meaning of an option of xargs for the text that xargs fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum XargsOption<'w> {
    /// The option names the text.
    Replaced(&'w str),
    /// The next word is the text.
    NextReplaced,
    /// The next word is another value.
    NextValue,
    /// The option has nothing to do with the text.
    Other,
}

impl<'w> XargsOption<'w> {
    /// Parses a word. Returns `None` if it is not an option.
    fn parse(word: &'w str) -> Option<Self> {
        if let Some(long) = word.strip_prefix("--") {
            return Some(match long.split_once('=') {
                Some(("replace", text)) => Self::Replaced(text),
                None if long == "replace" => Self::Replaced(BRACES),
                None if matches!(long, "arg-file" | "delimiter" | "max-args" | "max-chars" | "max-procs") => {
                    Self::NextValue
                }
                _ => Self::Other,
            });
        }
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        let first_with_value = letters.char_indices().find_map(|(at, letter)| {
            let value = &letters[at + letter.len_utf8()..];
            match letter {
                // BSD has `-J`.
                'I' | 'J' if value.is_empty() => Some(Self::NextReplaced),
                'i' if value.is_empty() => Some(Self::Replaced(BRACES)),
                'I' | 'J' | 'i' => Some(Self::Replaced(value)),
                'a' | 'd' | 'E' | 'L' | 'n' | 'P' | 's' if value.is_empty() => Some(Self::NextValue),
                'a' | 'd' | 'E' | 'L' | 'n' | 'P' | 's' | 'e' | 'l' => Some(Self::Other),
                _ => None,
            }
        });
        Some(first_with_value.unwrap_or(Self::Other))
    }
}

#[cfg(test)]
mod tests {
    use super::of_next;

    /// Returns the name of the program that fills in braces behind `line`, whose last word is the
    /// beginning of the word with the braces.
    fn filler(line: &str) -> Option<&'static str> {
        let mut words: Vec<&str> = line.split(' ').collect();
        let start = words.pop().unwrap();
        of_next(&words)?.behind(start).filler().map(|filler| filler.name)
    }

    #[test]
    fn braces_of_a_command_within_a_command_have_a_use_of_their_own() {
        for (line, name) in [
            ("find . -name *.tmp -exec rm -rf ", "find"),
            ("find . -exec rm {} ; -execdir mv ", "find"),
            ("find . -ok sh -c text sh ", "find"),
            ("sudo /usr/bin/find . -exec rm ", "find"),
            ("docker run image find / -okdir rm x/", "find"),
            ("find . -exec rm + ", "find"),
            ("xargs -I", "xargs"),
            ("xargs -0rn1 -I", "xargs"),
            ("xargs -0I", "xargs"),
            ("xargs -I ", "xargs"),
            ("xargs --replace=", "xargs"),
            ("xargs -i", "xargs"),
            ("xargs -I {} ", "xargs"),
            ("xargs -P 4 -I{} convert ", "xargs"),
            ("env xargs -i cp ", "xargs"),
            ("xargs --replace cp x/", "xargs"),
            ("xargs find . -exec rm ", "find"),
            ("fd -e jpg -x convert ", "fd"),
            ("parallel -j 4 gzip ", "parallel"),
            ("nice parallel ", "parallel"),
        ] {
            assert_eq!(filler(line), Some(name), "{line}");
        }
    }

    #[test]
    fn other_words_have_no_braces_of_their_own() {
        for line in [
            "",
            "find ",
            "find . -name ",
            "find . -exec rm {} ; -newer ",
            "find . -exec rm {} + -newer ",
            "xargs ",
            "xargs -n ",
            "xargs -n",
            "xargs -I@ cp ",
            "xargs -I @ cp ",
            "xargs -i@ cp ",
            "xargs -I@",
            "xargs -a -I{} cp ",
            "xargs rm -I",
            "xargs rm ",
            "fd ",
            "parallel -I @ gzip ",
            "parallel echo ::: ",
            "grep find -exec ",
            "rm -I",
        ] {
            assert_eq!(filler(line), None, "{line}");
        }
    }
}
