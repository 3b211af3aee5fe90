//! Placeholders in a word, as distinguished from literal braces.

use crate::role::WordRole;

/// Braces in a word, or the text that `-I` names, with their surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Braces<'t> {
    /// Text between the braces.
    pub inside: &'t str,
    /// True for double braces: `{{…}}`.
    pub is_double: bool,
    /// Part of the word before the braces, without quotes.
    pub before: &'t str,
    /// Part of the word after the braces.
    pub after: &'t str,
    /// True if a backslash makes the braces text instead of a placeholder.
    pub is_escaped: bool,
    /// Role of the word for its program.
    pub role: WordRole,
}

/// Meaning of braces.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Meaning {
    /// Literal text.
    Text,
    /// Placeholder in the syntax of plans, such as `{{input.file}}`.
    Placeholder(String),
    /// Ambiguous or impossible, with an alternative.
    Refused { reason: String, instead: String },
}

/// Rules to recognise placeholders.
#[derive(Clone, Copy)]
pub struct Placeholders<'p> {
    /// The only text that is a placeholder, if there is one. Braces are literal text then.
    pub only: Option<&'p str>,
    /// Function that returns the meaning of braces, or of the text in `only`.
    pub meaning: &'p dyn Fn(&Braces<'_>) -> Meaning,
}

/// Word without its quotes.
pub(crate) struct Unquoted<'t> {
    pub(crate) text: &'t str,
    /// Offsets of braces that are literal text because of a backslash outside of quotes.
    pub(crate) literal: &'t [usize],
    /// Offsets behind backslashes that are literal text, and do not escape the brace behind them.
    pub(crate) backslashes: &'t [usize],
    pub(crate) role: WordRole,
}

/// Reason for a refusal of braces, and the text to write instead.
pub(crate) type BraceError = (String, String);

/// Converts a word to a template of a plan and replaces its placeholders.
pub(crate) fn filled(word: &Unquoted<'_>, placeholders: Placeholders<'_>) -> Result<String, BraceError> {
    let (text, mut at) = (word.text, 0);
    let mut template = Template::default();
    while let Some(open) = next(&text[at..], placeholders.only).map(|found| at + found) {
        template.text(&text[at..open]);
        let Some((inside, is_double, end)) = braces_at(text, open, placeholders.only) else {
            template.text("{");
            at = open + 1;
            continue;
        };
        let (before, after) = (&text[..open], &text[end..]);
        let is_literal = word.literal.contains(&open);
        let has_backslash = before.ends_with('\\') && !word.backslashes.contains(&open);
        let is_escaped = placeholders.only.is_none() && (is_literal || has_backslash);
        let found = Braces { inside, is_double, before, after, is_escaped, role: word.role.behind(before) };
        at = end;
        match (placeholders.meaning)(&found) {
            // The text between the braces may begin another placeholder.
            Meaning::Text if !is_double => {
                template.text("{");
                at = open + 1;
            }
            Meaning::Text => template.text(&text[open..end]),
            Meaning::Placeholder(_) | Meaning::Refused { .. } if is_escaped => {
                if !is_literal {
                    template.drop_backslash();
                }
                template.text(&text[open..end]);
            }
            Meaning::Placeholder(placeholder) => template.placeholder(&placeholder),
            Meaning::Refused { reason, instead } => return Err((reason, instead)),
        }
    }
    template.text(&text[at..]);
    Ok(template.end())
}

/// Returns the offset of the next possible placeholder.
fn next(text: &str, only: Option<&str>) -> Option<usize> {
    only.map_or_else(|| text.find('{'), |only| text.find(only))
}

/// Returns the text in the braces at `open`, whether they are double, and their end.
fn braces_at<'t>(text: &'t str, open: usize, only: Option<&str>) -> Option<(&'t str, bool, usize)> {
    if let Some(only) = only {
        return Some(("", false, open + only.len()));
    }
    let inside_of = |start: usize, close: &str| {
        let rest = &text[start..];
        let end = rest.find(['{', '}'])?;
        rest[end..].starts_with(close).then(|| (&rest[..end], start + end + close.len()))
    };
    let is_double = text[open..].starts_with("{{");
    let double = if is_double { inside_of(open + 2, "}}") } else { None };
    let single = || inside_of(open + 1, "}").map(|(inside, end)| (inside, false, end));
    double.map(|(inside, end)| (inside, true, end)).or_else(single)
}

/// Plan template under construction; a literal `{{` is escaped, because it begins a placeholder.
#[derive(Default)]
struct Template {
    written: String,
    /// Number of literal opening braces that are not written yet.
    open: usize,
}

impl Template {
    fn text(&mut self, text: &str) {
        for c in text.chars() {
            if c == '{' {
                self.open += 1;
            } else {
                self.write_braces(false);
                self.written.push(c);
            }
        }
    }

    fn placeholder(&mut self, placeholder: &str) {
        self.write_braces(placeholder.starts_with('{'));
        self.written.push_str(placeholder);
    }

    fn write_braces(&mut self, is_before_another: bool) {
        let braces = "{".repeat(std::mem::take(&mut self.open));
        if braces.len() > 1 || (is_before_another && !braces.is_empty()) {
            self.written.push_str(&format!("{{{{\"{braces}\"}}}}"));
        } else {
            self.written.push_str(&braces);
        }
    }

    fn drop_backslash(&mut self) {
        if self.open == 0 && self.written.ends_with('\\') {
            self.written.pop();
        }
    }

    fn end(mut self) -> String {
        self.write_braces(false);
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::{Braces, Meaning, Placeholders, Unquoted, filled};
    use crate::role::WordRole;

    fn meaning(braces: &Braces<'_>) -> Meaning {
        match (braces.inside, braces.is_double) {
            ("", false) => Meaning::Placeholder("{{input.line}}".into()),
            ("", true) => Meaning::Refused { reason: "two".into(), instead: String::new() },
            (inside, true) if inside.starts_with("input.") => {
                Meaning::Placeholder(format!("{{{{{inside}}}}}"))
            }
            _ => Meaning::Text,
        }
    }

    fn of(text: &str, only: Option<&str>) -> Result<String, String> {
        let word = Unquoted { text, literal: &[], backslashes: &[], role: WordRole::default() };
        filled(&word, Placeholders { only, meaning: &meaning }).map_err(|(reason, _)| reason)
    }

    #[test]
    fn placeholders_are_replaced_and_other_braces_kept() {
        for (text, expected) in [
            ("a{}b{}", "a{{input.line}}b{{input.line}}"),
            ("{print $1}", "{print $1}"),
            ("{a{}", "{a{{input.line}}"),
            ("{{input.x}}{", "{{input.x}}{"),
            ("[0-9]{4}", "[0-9]{4}"),
            ("{{print}}", r#"{{"{{"}}print}}"#),
            ("{{.Name}} {}", r#"{{"{{"}}.Name}} {{input.line}}"#),
            ("{{a", r#"{{"{{"}}a"#),
            ("{{{input.x}}}", r#"{{"{"}}{{input.x}}}"#),
            ("x\\{{}\\}", r#"x\{{"{"}}{{input.line}}\}"#),
        ] {
            assert_eq!(of(text, None).unwrap(), expected, "{text}");
        }
        assert_eq!(of("{{}}", None).unwrap_err(), "two");
    }

    #[test]
    fn escaped_placeholders_are_text() {
        for (text, expected) in [
            (r"a\{}b", "a{}b"),
            (r"\\{}", r"\{}"),
            (r"\{{}}", r#"{{"{{"}}}}"#),
            (r"\{{input.x}}", r#"{{"{{"}}input.x}}"#),
            (r"\{4}", r"\{4}"),
            (r"a\{1\}", r"a\{1\}"),
        ] {
            assert_eq!(of(text, None).unwrap(), expected, "{text}");
        }
        let placeholders = Placeholders { only: None, meaning: &meaning };
        let word = Unquoted { text: "{}{}", literal: &[0], backslashes: &[], role: WordRole::default() };
        assert_eq!(filled(&word, placeholders).unwrap(), "{}{{input.line}}");
        let word = Unquoted { text: r"a\{}\{}", literal: &[], backslashes: &[2], role: WordRole::default() };
        assert_eq!(filled(&word, placeholders).unwrap(), r"a\{{input.line}}{}");
    }

    #[test]
    fn renamed_placeholders_make_braces_text() {
        assert_eq!(of("a{1}x{} @@", Some("@@")).unwrap(), "a{1}x{} {{input.line}}");
        assert_eq!(of("{{@}}", Some("@")).unwrap(), "{{\"{{\"}}{{input.line}}}}");
        assert_eq!(of(r"\{}", Some("{}")).unwrap(), r"\{{input.line}}");
    }
}
