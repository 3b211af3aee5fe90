//! Bounds of a text for the parser, which reads nested constructs recursively and some of them
//! repeatedly.

use std::str::Chars;

use crate::{
    redirect,
    refusal::{Advice, Unsupported},
    word::{ARITHMETIC, COMMAND_SUBSTITUTION, HOME, OTHER_QUOTES, VARIABLE},
};

/// Maximum number of brackets and words that may begin a group or a compound command, because the
/// parser needs stack for each.
const MAX_NESTED: usize = 50;
/// Maximum number of words `case`, and of opening brackets in a word. The parser reads the content
/// of each twice, so its time is exponential in their number.
const MAX_REREAD: usize = 8;
/// Maximum number of digits of a descriptor and behind `~`, because the parser expects that such a
/// number fits its type.
const MAX_DIGITS: usize = 9;

const TOO_MANY: Advice = (
    "the pipeline has too many brackets, or words such as `if` and `case`",
    "write a script that is on the workers' PATH, or quote literal text",
);

/// Refuses a text that no pipeline needs, and that would overflow the stack of the parser, stop it,
/// or take it exponential time.
pub(crate) fn check(text: &str) -> Result<(), Unsupported> {
    let scanner = Scanner {
        text,
        rest: text.chars(),
        quotes: Quotes::None,
        word: String::new(),
        word_brackets: 0,
        nested: 0,
        cases: 0,
    };
    scanner.run()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Single,
    Double,
}

/// Scanner that divides a text into tokens as the tokenizer of the parser does.
struct Scanner<'t> {
    text: &'t str,
    rest: Chars<'t>,
    quotes: Quotes,
    /// Word so far, with its quotes, and without line continuations.
    word: String,
    /// Number of opening brackets in `word` outside of quotes.
    word_brackets: usize,
    nested: usize,
    cases: usize,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<(), Unsupported> {
        while let Some(c) = self.rest.next() {
            if let Some(refusal) = self.refused_anyway(c) {
                return self.count_rest(refusal);
            }
            match (self.quotes, c) {
                (Quotes::None | Quotes::Double, '\\') => self.escape(),
                (Quotes::Single, '\'') | (Quotes::Double, '"') => self.quote(c, Quotes::None),
                (Quotes::None, '\'') => self.quote(c, Quotes::Single),
                (Quotes::None, '"') => self.quote(c, Quotes::Double),
                (Quotes::None, '#') if self.word.is_empty() => self.skip_comment(),
                (Quotes::None, ' ' | '\t' | '\n' | '&' | ';' | '|' | '<' | '>' | '(' | ')') => {
                    self.end_word(c)?;
                }
                _ => {
                    self.word_brackets += usize::from(c == '[' && self.quotes == Quotes::None);
                    self.word.push(c);
                }
            }
        }
        self.end_word('\n')
    }

    /// Returns the refusal of a construct that no plan can express, and behind which the scanner
    /// cannot detect quotes.
    fn refused_anyway(&self, c: char) -> Option<Unsupported> {
        let next = self.rest.as_str();
        let (reason, instead) = match (self.quotes, c) {
            (Quotes::Single, _) => return None,
            (_, '`') => COMMAND_SUBSTITUTION,
            (_, '$') if next.starts_with("((") || next.starts_with('[') => ARITHMETIC,
            (_, '$') if next.starts_with('(') => COMMAND_SUBSTITUTION,
            (_, '$') if next.starts_with('{') => VARIABLE,
            (Quotes::None, '\'') if self.word.ends_with('$') => OTHER_QUOTES,
            (Quotes::None, '<') if next.starts_with('<') => {
                return Some(redirect::text_for_stdin(self.place()));
            }
            _ => return None,
        };
        Some(Unsupported::new(self.place(), reason, instead))
    }

    /// Counts all that may be nested in the rest of the text, also within quotes, and returns
    /// `refusal` if the parser should not read it. Otherwise the parser finds the same construct,
    /// and its end.
    fn count_rest(mut self, refusal: Unsupported) -> Result<(), Unsupported> {
        let brackets = self.word_brackets;
        self.end_word('\n')?;
        let rest = self.rest.as_str().replace("\\\n", "");
        let count = |texts: &[&str]| texts.iter().map(|text| rest.matches(*text).count()).sum::<usize>();
        let nested = self.nested + count(&["{", "if", "while", "until", "for"]);
        let reread = self.cases + brackets + count(&["(", "[", "`", "${", "case"]);
        let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
        if nested > MAX_NESTED || reread > MAX_REREAD || numbers.any(|digits| digits.len() > MAX_DIGITS) {
            return Err(refusal);
        }
        Ok(())
    }

    fn escape(&mut self) {
        match self.rest.next() {
            // A backslash at the end of a line removes the line feed.
            Some('\n') | None => {}
            Some(escaped) => self.word.extend(['\\', escaped]),
        }
    }

    fn quote(&mut self, c: char, quotes: Quotes) {
        self.quotes = quotes;
        self.word.push(c);
    }

    fn skip_comment(&mut self) {
        let rest = self.rest.as_str();
        let end = rest.find('\n').unwrap_or(rest.len());
        self.rest = rest[end..].chars();
    }

    /// Ends the word before the delimiter `c`.
    fn end_word(&mut self, c: char) -> Result<(), Unsupported> {
        let is_case = self.word == "case";
        let may_nest = is_case || matches!(self.word.as_str(), "{" | "if" | "while" | "until" | "for");
        self.nested += usize::from(may_nest) + usize::from(c == '(');
        self.cases += usize::from(is_case);
        if self.nested > MAX_NESTED || self.cases > MAX_REREAD || self.word_brackets > MAX_REREAD {
            return Err(Unsupported::new(self.place(), TOO_MANY.0, TOO_MANY.1));
        }
        if matches!(c, '<' | '>') && is_long_number(&self.word) {
            return Err(redirect::unknown(self.place()));
        }
        if has_long_tilde(&self.word) {
            return Err(Unsupported::new(self.place(), HOME.0, HOME.1));
        }
        self.word.clear();
        self.word_brackets = 0;
        Ok(())
    }

    /// Returns the place of the last character that was read.
    fn place(&self) -> (usize, usize) {
        let read = self.text.len() - self.rest.as_str().len();
        let end = self.text[..read].chars().count();
        (end.saturating_sub(1), end)
    }
}

/// Returns true for a descriptor that the parser cannot read.
fn is_long_number(word: &str) -> bool {
    word.len() > MAX_DIGITS && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for `~` and a number that the parser cannot read, also as the value of a variable.
fn has_long_tilde(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    [word, value].into_iter().filter_map(|text| text.strip_prefix('~')).any(|text| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        digits.bytes().take_while(u8::is_ascii_digit).count() > MAX_DIGITS
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_NESTED, MAX_REREAD, check};

    /// Returns the reason of the refusal, if the text is refused.
    fn refused(text: &str) -> Option<String> {
        check(text).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn nesting_of_a_pipeline_is_bounded() {
        for opening in ["(", "( ", "{ ", "if ", "while\n", "until\t", "for x do ", "a | if\n", "i\\\nf "] {
            assert_eq!(refused(&opening.repeat(MAX_NESTED)), None, "{opening}");
            let reason = refused(&opening.repeat(MAX_NESTED + 1)).unwrap_or_default();
            assert!(reason.contains("too many brackets"), "{opening}: {reason}");
        }
        for opening in ["case x in a) ", "a["] {
            assert_eq!(refused(&opening.repeat(MAX_REREAD)), None, "{opening}");
            let reason = refused(&opening.repeat(MAX_REREAD + 1)).unwrap_or_default();
            assert!(reason.contains("too many brackets"), "{opening}: {reason}");
        }
    }

    #[test]
    fn nesting_is_found_behind_everything_that_looks_like_a_quote() {
        for (before, reason) in [
            ("true # don't\n", "too many brackets"),
            ("true #\"\n", "too many brackets"),
            ("true | # ${x}'\n", "too many brackets"),
            ("a \\' \\\" ''# | ", "too many brackets"),
            ("a '\\' | ", "too many brackets"),
            ("a \"$('\"')\" | ", "command substitution"),
            ("a $'\\'' | ", "this quoting is not POSIX"),
            ("a \\$'\\'' | ", "this quoting is not POSIX"),
            ("a <<E\n'\nE\n", "a text for stdin"),
            ("a `'` ", "command substitution"),
        ] {
            let text = format!("{before}{}", "(".repeat(1000));
            assert!(refused(&text).is_some_and(|found| found.contains(reason)), "{before}");
        }
        for (opening, reason) in [
            ("$(", "command substitution"),
            ("\"$(", "command substitution"),
            ("`", "command substitution"),
            ("${", "variables"),
            ("\"${x:-", "variables"),
            ("$((", "arithmetic"),
            ("$[", "arithmetic"),
            ("$(case x in a) ", "command substitution"),
        ] {
            let refused = refused(&opening.repeat(1000));
            assert!(refused.is_some_and(|found| found.contains(reason)), "{opening}");
        }
        let body = format!("$(a <<E\n{}\nE\n)", "(".repeat(40));
        assert!(refused(&body).is_some_and(|found| found.contains("command substitution")));
    }

    #[test]
    fn brackets_and_keywords_in_literal_text_are_not_counted() {
        let many = "( [ { ${ $( ` case if ".repeat(100);
        for text in [format!("a '{many}'"), format!("a # {many}\n"), "a \"( [ { case if \"".repeat(100)] {
            assert_eq!(refused(&text), None, "{text}");
        }
        for text in ["diff ".repeat(100), "\\( \\[ \\{ ".repeat(100), "'if' c\"as\"e ".repeat(100)] {
            assert_eq!(refused(&text), None, "{text}");
        }
    }

    #[test]
    fn numbers_that_the_parser_cannot_read_are_refused() {
        for (text, reason) in [
            ("a 99999999999> f", "of redirections a plan knows"),
            ("a 99999999999< f", "of redirections a plan knows"),
            ("a ~99999999999999999999", "a home directory"),
            ("a ~+99999999999999999999/x", "a home directory"),
            ("X=~-99999999999999999999 a", "a home directory"),
            ("a ${x:-~99999999999999999999}", "variables"),
        ] {
            assert!(refused(text).is_some_and(|found| found.contains(reason)), "{text}");
        }
        for text in ["a 99999999999 > f", "a '~99999999999999999999'", "a b~99999999999999999999", "a 2> f"] {
            assert_eq!(refused(text), None, "{text}");
        }
    }
}
