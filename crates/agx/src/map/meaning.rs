//! Meaning of braces in a command: placeholder, text, or ambiguous and therefore refused.

use agenix_shell::{BraceFiller, Braces, Language, Meaning};

use super::{
    code::{script_around, within_script},
    placeholders::Placeholder,
};
use crate::output::counted;

/// Meaning of braces in a command of `agx map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BraceMeaning {
    Text,
    Placeholder(Placeholder),
    /// Placeholder in a position where a regular expression may have a repetition.
    Doubtful(Placeholder),
    Refused {
        reason: String,
        instead: String,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BraceParser<'n> {
    /// Number of values of an input: of its sources, or of its columns.
    pub(crate) sources: usize,
    /// Names of the columns (`--header`).
    pub(crate) names: &'n [String],
    /// True if a job has several inputs: a placeholder without a number stands for a list.
    pub(crate) is_grouped: bool,
    /// True if `-I` names the text of the placeholder.
    pub(crate) is_renamed: bool,
    /// True if inputs may become parts of scripts.
    pub(crate) may_be_code: bool,
}

impl BraceParser<'_> {
    pub(crate) fn read(self, braces: &Braces<'_>) -> BraceMeaning {
        if !self.is_renamed && braces.inside.trim_start().starts_with("input.") {
            let written = written(braces);
            return refused(
                format!("{written} is a field of a plan's input, and the inputs of `agx map` have none"),
                format!("write {{}} for the input, or \\{written} for these characters as they are"),
            );
        }
        let Some(placeholder) = Placeholder::parse(braces.inside) else { return self.named(braces) };
        let placeholder = if self.is_grouped { placeholder.of_group() } else { placeholder };
        if self.is_renamed {
            return self.in_code(placeholder, braces);
        }
        if braces.is_double {
            return two_meanings(braces);
        }
        if is_argument_count(braces) {
            return BraceMeaning::Text;
        }
        match (placeholder.source(), is_empty_action(braces)) {
            (None, Some(true)) => BraceMeaning::Text,
            (None, Some(false)) => empty_action(),
            (Some(source), _) => self.numbered(source, placeholder, braces),
            (None, None) => self.in_code(placeholder, braces),
        }
    }

    /// Reads `{name}`, which is text unless a column has the name.
    fn named(self, braces: &Braces<'_>) -> BraceMeaning {
        let placeholder = Placeholder::named(braces.inside, self.names).filter(|_| !self.is_renamed);
        let Some(placeholder) = placeholder else { return of_gnu_parallel(braces) };
        let name = placeholder.source().and_then(|number| self.names.get(number - 1));
        if self.names.iter().filter(|one| Some(*one) == name).count() > 1 {
            return refused(
                format!("{} names several columns", written(braces)),
                "write the number of the column, as {2}, or give each column its own name",
            );
        }
        if braces.is_double { two_meanings(braces) } else { self.in_code(placeholder, braces) }
    }

    /// Returns the refusal of `{5}` if there are fewer values.
    fn beyond(self, source: usize, written: &str) -> BraceMeaning {
        let (kind, instead) = match self.names {
            _ if self.is_grouped => ("input", "give a higher -N"),
            [] => ("source", "give another ::: with values"),
            _ => ("column", "name a column of the header"),
        };
        let (is, are) = (format!("{kind} is given"), format!("{kind}s are given"));
        refused(
            format!("{written} stands for {kind} {source}, and {}", counted(self.sources as u64, &is, &are)),
            format!("{instead}, or write \\{written} for these characters as they are"),
        )
    }

    /// Reads `{2}`, which may be a repetition in a regular expression after something repeatable.
    fn numbered(self, source: usize, placeholder: Placeholder, braces: &Braces<'_>) -> BraceMeaning {
        let may_repeat = placeholder.is_whole() && is_repeatable(braces.before);
        let written = written(braces);
        if source > self.sources {
            if may_repeat {
                return BraceMeaning::Text;
            }
            return self.beyond(source, &written);
        }
        if may_repeat && self.sources == 1 {
            return refused(
                format!("{written} may stand for the input, or be a repetition in a regular expression"),
                format!("write {{}} for the input, or \\{written} for these characters as they are"),
            );
        }
        match self.in_code(placeholder, braces) {
            BraceMeaning::Placeholder(placeholder) if may_repeat && braces.role.may_be_pattern => {
                BraceMeaning::Doubtful(placeholder)
            }
            braced => braced,
        }
    }

    /// Refuses a placeholder that would make an input a part of a script, or that another program
    /// fills in.
    fn in_code(self, placeholder: Placeholder, braces: &Braces<'_>) -> BraceMeaning {
        match script_around(braces) {
            Some(language) if !self.may_be_code && !placeholder.is_number() => {
                within_script(&written(braces), language)
            }
            _ if self.is_renamed => BraceMeaning::Placeholder(placeholder),
            _ => of_other_program(placeholder, braces).unwrap_or(BraceMeaning::Placeholder(placeholder)),
        }
    }
}

/// Returns the meaning of braces in a pipeline of `agx plan from`.
pub(crate) fn in_plan(braces: &Braces<'_>, may_be_code: bool) -> Meaning {
    let (written, inside) = (written(braces), braces.inside);
    let field = if inside.trim_start().starts_with("input.") {
        inside.trim().to_owned()
    } else {
        let placeholder = Placeholder::parse(inside).filter(|_| !is_argument_count(braces));
        let Some(placeholder) = placeholder else { return Meaning::Text };
        if placeholder.is_slot() && !braces.is_double {
            return Meaning::Placeholder(placeholder.template());
        }
        let is_whole = placeholder == Placeholder::WHOLE;
        match is_empty_action(braces) {
            _ if is_whole && braces.is_double => return two_meanings(braces).into(),
            Some(true) => return Meaning::Text,
            Some(false) => return empty_action().into(),
            None => {}
        }
        if braces.is_double || (placeholder.source().is_some() && is_repeatable(braces.before)) {
            return Meaning::Text;
        }
        if !is_whole {
            return Meaning::Refused {
                reason: format!("{written} is made by `agx map` alone"),
                instead: format!(
                    "give the inputs a field of their own, as {{input.stem}}, or write \\{written} for these characters as they are"
                ),
            };
        }
        format!("input.{}", placeholder.field())
    };
    if let (false, Some(language)) = (may_be_code, script_around(braces)) {
        return within_script(&written, language).into();
    }
    if let (true, Some(filler)) = (inside.is_empty(), braces.role.brace_filler()) {
        return filled_by(filler, &written, "{input.line}").into();
    }
    Meaning::Placeholder(format!("{{{{{field}}}}}"))
}

impl From<BraceMeaning> for Meaning {
    fn from(braced: BraceMeaning) -> Self {
        match braced {
            BraceMeaning::Text => Self::Text,
            BraceMeaning::Placeholder(placeholder) | BraceMeaning::Doubtful(placeholder) => {
                Self::Placeholder(placeholder.template())
            }
            BraceMeaning::Refused { reason, instead } => Self::Refused { reason, instead },
        }
    }
}

fn refused(reason: impl Into<String>, instead: impl Into<String>) -> BraceMeaning {
    BraceMeaning::Refused { reason: reason.into(), instead: instead.into() }
}

/// Refuses placeholders that only GNU Parallel has. Other braces are text.
fn of_gnu_parallel(braces: &Braces<'_>) -> BraceMeaning {
    let (written, inside) = (written(braces), braces.inside);
    let from_the_end = inside.strip_prefix('-').and_then(Placeholder::parse);
    match from_the_end.and_then(Placeholder::source) {
        _ if braces.is_double => BraceMeaning::Text,
        Some(_) => refused(
            format!("{written} counts from the last source in GNU Parallel, and agx does not"),
            format!(
                "write the number of the source, as {{2}}, or \\{written} for these characters as they are"
            ),
        ),
        None if inside.len() > 1 && inside.starts_with('=') && inside.ends_with('=') => {
            let (reason, instead) = perl_expression(&written);
            refused(reason, instead)
        }
        None => BraceMeaning::Text,
    }
}

/// Returns the reason to refuse `{=…=}`, and the alternative.
pub(crate) fn perl_expression(written: &str) -> (String, &'static str) {
    (
        format!("{written} is an expression of perl in GNU Parallel, and agx evaluates none"),
        "change the input in the pipeline, as in `printf '%s\\n' {} | sed 's/a/b/'`; `agx map -I TEXT` takes TEXT as the \
         placeholder, and braces as text",
    )
}

/// Returns the braces as the command has them.
fn written(braces: &Braces<'_>) -> String {
    let inside = braces.inside;
    if braces.is_double { format!("{{{{{inside}}}}}") } else { format!("{{{inside}}}") }
}

/// Refuses `{{.}}`, which may be of a template language, or a placeholder in braces.
fn two_meanings(braces: &Braces<'_>) -> BraceMeaning {
    let (written, inside) = (written(braces), braces.inside);
    BraceMeaning::Refused {
        reason: format!("{written} may be text as it is, or the placeholder {{{inside}}} in braces"),
        instead: format!(
            "write \\{written} for these characters as they are; `agx map -I TEXT` takes TEXT as the placeholder, and braces as text"
        ),
    }
}

/// Refuses a placeholder that another program fills in, such as `{}` behind `find -exec`.
fn of_other_program(placeholder: Placeholder, braces: &Braces<'_>) -> Option<BraceMeaning> {
    let filler = braces.role.brace_filler()?;
    let is_filled = placeholder.is_whole() || (filler.has_parts && !placeholder.is_number());
    if !is_filled || placeholder.source().is_some() {
        return None;
    }
    Some(filled_by(filler, &written(braces), &format!("{{1{}}}", braces.inside)))
}

fn filled_by(filler: &BraceFiller, written: &str, for_the_input: &str) -> BraceMeaning {
    let name = filler.name;
    refused(
        format!("{written} may stand for the input, or for text that {name} fills in"),
        format!("write {for_the_input} for the input, or \\{written} for what {name} fills in"),
    )
}

/// Returns true for `${#}` in a script, the number of its arguments.
fn is_argument_count(braces: &Braces<'_>) -> bool {
    let is_of_shell = matches!(braces.role.script, Some(Language::Shell | Language::Remote));
    // `$$` is the number of the process.
    let dollars = braces.before.len() - braces.before.trim_end_matches('$').len();
    is_of_shell && braces.inside == "#" && !braces.is_double && dollars % 2 == 1
}

fn empty_action() -> BraceMeaning {
    refused(
        "{} may stand for the input, or be an empty action of awk",
        "write \\{} for these characters as they are; for the input write awk -v x={} '… x …'",
    )
}

/// Returns true if a regular expression could repeat the end of `before`.
fn is_repeatable(before: &str) -> bool {
    before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || "])}.*+?".contains(c))
}

/// Returns true if `{}` is an empty action of awk: true after a complete pattern, false (ambiguous)
/// after a name or a number, and `None` anywhere else.
fn is_empty_action(braces: &Braces<'_>) -> Option<bool> {
    let is_program =
        braces.role.script == Some(Language::Awk) && braces.inside.is_empty() && !braces.is_double;
    let is_in_text = braces.before.matches('"').count() % 2 == 1;
    let ends = braces.after.is_empty() || braces.after.starts_with([' ', '\t', '\n', ';', '}']);
    if !is_program || is_in_text || !ends {
        return None;
    }
    let before = braces.before.trim_end();
    let last = before.chars().next_back()?;
    if matches!(last, '/' | ')') || before.ends_with("BEGIN") || before.ends_with("END") {
        return Some(true);
    }
    (last.is_alphanumeric() || matches!(last, '_' | '"' | ']')).then_some(false)
}

#[cfg(test)]
mod tests;
