//! Meaning of braces in a command: placeholder, text, or ambiguous and therefore refused.

use agenix_shell::{Braces, Language, Meaning};

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
        what: String,
        instead: String,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BraceParser<'n> {
    /// Number of values of an input: of its sources, or of its columns.
    pub(crate) sources: usize,
    /// Names of the columns (`--header`).
    pub(crate) names: &'n [String],
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
        if self.is_renamed {
            return self.in_code(placeholder, braces);
        }
        if braces.is_double {
            return two_meanings(braces);
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
        let Some(placeholder) = placeholder else { return BraceMeaning::Text };
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

    /// Refuses a placeholder that would make an input a part of a script.
    fn in_code(self, placeholder: Placeholder, braces: &Braces<'_>) -> BraceMeaning {
        match script_around(braces) {
            Some(language) if !self.may_be_code && !placeholder.is_number() => {
                within_script(&written(braces), language)
            }
            _ => BraceMeaning::Placeholder(placeholder),
        }
    }
}

/// Returns the meaning of braces in a pipeline of `agx plan from`.
pub(crate) fn in_plan(braces: &Braces<'_>, may_be_code: bool) -> Meaning {
    let (written, inside) = (written(braces), braces.inside);
    let field = if inside.trim_start().starts_with("input.") {
        inside.trim().to_owned()
    } else {
        let Some(placeholder) = Placeholder::parse(inside) else { return Meaning::Text };
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
                what: format!("{written} is made by `agx map` alone"),
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
    Meaning::Placeholder(format!("{{{{{field}}}}}"))
}

impl From<BraceMeaning> for Meaning {
    fn from(braced: BraceMeaning) -> Self {
        match braced {
            BraceMeaning::Text => Self::Text,
            BraceMeaning::Placeholder(placeholder) | BraceMeaning::Doubtful(placeholder) => {
                Self::Placeholder(format!("{{{{input.{}}}}}", placeholder.field()))
            }
            BraceMeaning::Refused { what, instead } => Self::Refused { what, instead },
        }
    }
}

fn refused(what: impl Into<String>, instead: impl Into<String>) -> BraceMeaning {
    BraceMeaning::Refused { what: what.into(), instead: instead.into() }
}

/// Returns the braces as the command has them.
fn written(braces: &Braces<'_>) -> String {
    let inside = braces.inside;
    if braces.is_double { format!("{{{{{inside}}}}}") } else { format!("{{{inside}}}") }
}

/// Refuses `{{.}}`: it may be of a template language, or a placeholder in braces.
fn two_meanings(braces: &Braces<'_>) -> BraceMeaning {
    let (written, inside) = (written(braces), braces.inside);
    BraceMeaning::Refused {
        what: format!("{written} may be text as it is, or the placeholder {{{inside}}} in braces"),
        instead: format!(
            "write \\{written} for these characters as they are; `agx map -I TEXT` takes TEXT as the placeholder, and braces as text"
        ),
    }
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
mod tests {
    use agenix_shell::{Meaning, Placeholders, compile};

    use super::{BraceMeaning, BraceParser, Braces, in_plan};

    const ONE: BraceParser<'static> =
        BraceParser { sources: 1, names: &[], is_renamed: false, may_be_code: false };
    const TWO: BraceParser<'static> = BraceParser { sources: 2, ..ONE };
    const CODE: BraceParser<'static> = BraceParser { may_be_code: true, ..ONE };

    /// Returns the last argument of the command, or the refusal with its advice.
    fn last(text: &str, meaning: &dyn Fn(&Braces<'_>) -> Meaning) -> Result<String, String> {
        compile(text, Placeholders { only: None, meaning })
            .map(|mut tasks| tasks.remove(0).args.pop().unwrap_or_default())
            .map_err(|refusal| format!("{refusal}\n{}", refusal.instead()))
    }

    fn of(text: &str, reader: BraceParser<'_>) -> Result<String, String> {
        last(text, &|braces| reader.read(braces).into())
    }

    #[test]
    fn braces_of_other_languages_stay_text() {
        for (text, expected) in [
            ("grep -cE '^[0-9]{4}$'", "^[0-9]{4}$"),
            ("grep -E 'x{2}(a|b){3}.{4}'", "x{2}(a|b){3}.{4}"),
            ("grep 'a\\{1\\}x'", "a\\{1\\}x"),
            ("awk '/^[0-9]{4}/{print $1}'", "/^[0-9]{4}/{print $1}"),
            ("awk '/x/{}'", "/x/{}"),
            ("awk '/x/{} /y/ {print} END {}'", "/x/{} /y/ {print} END {}"),
            ("awk 'f(){};(NR>1){}'", "f(){};(NR>1){}"),
            ("jq '{a: 1, b}'", "{a: 1, b}"),
            ("docker inspect -f '{{.Name}}'", r#"{{"{{"}}.Name}}"#),
            ("printf '100%s $x'", "100%s $x"),
        ] {
            assert_eq!(of(text, ONE).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn braces_with_the_syntax_of_placeholders_are_placeholders() {
        for (text, reader, expected) in [
            ("a {1}", ONE, "{{input.arg1}}"),
            ("a out/{1}_{}", ONE, "out/{{input.arg1}}_{{input.line}}"),
            ("a file{1}-x{2}", TWO, "file{{input.arg1}}-x{{input.arg2}}"),
            ("awk '/{}/'", CODE, "/{{input.line}}/"),
            ("awk '/dir/{}/'", CODE, "/dir/{{input.line}}/"),
            ("awk 'NR == {}'", CODE, "NR == {{input.line}}"),
            ("env awk 'NR == {#}'", ONE, "NR == {{input.seq}}"),
            ("awk -f p dir/{}", ONE, "dir/{{input.line}}"),
            ("awk {}", ONE, "{{input.line}}"),
            ("sh -c 'touch {#}'", ONE, "touch {{input.seq}}"),
            ("sh -c {}", ONE, "{{input.line}}"),
            ("sh -c 'wc \"$1\"' sh {}", ONE, "{{input.line}}"),
            ("sh -c 'wc {}'", CODE, "wc {{input.line}}"),
            ("perl -e {}", ONE, "{{input.line}}"),
            ("ssh {} uptime", ONE, "uptime"),
            ("ssh host {}", ONE, "{{input.line}}"),
            ("ssh host wc {}", CODE, "{{input.line}}"),
            ("sed 's/{}/x/'", ONE, "s/{{input.line}}/x/"),
        ] {
            assert_eq!(of(text, reader).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn ambiguous_braces_are_refused_with_both_alternatives() {
        for (text, reader, what, instead) in [
            ("grep -E 'a{1}x' {}", ONE, "a repetition", "write {} for the input, or \\{1} for"),
            ("grep -E '[ab]{1}'", ONE, "a repetition", "\\{1}"),
            ("diff {1} {2}", ONE, "stands for source 2, and 1 source is given", "another :::"),
            ("a {3.}", TWO, "and 2 sources are given", "\\{3.}"),
            ("go list -f '{{.}}'", ONE, "or the placeholder {.} in braces", "\\{{.}}"),
            ("a '{{}}'", ONE, "or the placeholder {}", "-I TEXT"),
            ("a {input.x}", ONE, "have none", "\\{input.x}"),
            ("a '{{ input.x }}'", ONE, "have none", "\\{{ input.x }}"),
            ("awk 'NR==1{}'", ONE, "an empty action", "\\{}"),
            ("sh -c 'echo {}'", ONE, "a part of a shell script", "sh -c '… \"$1\" …' sh {}"),
            ("bash -o pipefail -c 'cat {.} | wc'", ONE, "{.} would become", "--inputs-may-be-code"),
            ("env dash -ec '{1} {2}'", TWO, "a shell script", "sh {}"),
            ("find {} -exec sh -c 'wc {}' \\;", ONE, "a shell script", "sh {}"),
            ("awk 'NR == {}'", ONE, "a program of awk", "awk -v x={} '… x …'"),
            ("timeout 5 awk '$0 ~ \"/{}\"'", ONE, "a program of awk", "--inputs-may-be-code"),
            ("perl -ne 'print if /{}/'", ONE, "a program of perl", "perl -e '… $ARGV[0] …' -- {}"),
            ("env python3 -c 'print(\"{}\")'", ONE, "a program of python", "sys.argv[1]"),
            ("ruby -e 'puts {}'", ONE, "a program of ruby", "ARGV[0]"),
            ("node -e 'f({})'", ONE, "a program of node", "process.argv[1]"),
            ("php -r 'f({});'", ONE, "a program of php", "$argv[1]"),
            ("ssh host 'wc {}'", ONE, "a shell of the host", "| ssh HOST"),
            ("ssh host wc {}", ONE, "a shell of the host", "| ssh HOST"),
        ] {
            let refusal = of(text, reader).expect_err(text);
            assert!(refusal.contains(what) && refusal.contains(instead), "{text}: {refusal}");
        }
    }

    #[test]
    fn alternatives_of_refusals_are_accepted() {
        for (text, expected) in [
            ("grep -E 'a\\{1}x'", "a{1}x"),
            ("diff '\\{2}'", "{2}"),
            ("go list -f '\\{{.}}'", r#"{{"{{"}}.}}"#),
            ("a '\\{input.x}'", "{input.x}"),
            ("awk 'NR==1\\{}'", "NR==1{}"),
            ("sh -c 'echo \\{}'", "echo {}"),
            ("awk -v x={} 'NR == x'", "NR == x"),
            ("perl -e 'print $ARGV[0]' -- {}", "{{input.line}}"),
            ("python3 -c 'import sys; print(sys.argv[1])' {}", "{{input.line}}"),
            ("ruby -e 'puts ARGV[0]' -- {}", "{{input.line}}"),
            ("node -e 'f(process.argv[1])' -- {}", "{{input.line}}"),
            ("php -r 'f($argv[1]);' -- {}", "{{input.line}}"),
        ] {
            assert_eq!(of(text, ONE).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn renamed_placeholders_make_braces_text_and_scripts_are_still_checked() {
        let reader = BraceParser { is_renamed: true, ..ONE };
        let meaning = |braces: &Braces<'_>| reader.read(braces).into();
        let of = |text| compile(text, Placeholders { only: Some("@"), meaning: &meaning });
        assert_eq!(
            of("grep -E 'a{1}{}{{.}}' @").unwrap()[0].args,
            ["-E", r#"a{1}{}{{"{{"}}.}}"#, "{{input.line}}"]
        );
        assert_eq!(of("grep '/x/@'").unwrap()[0].args, ["/x/{{input.line}}"]);
        assert!(of("sh -c 'echo @'").unwrap_err().to_string().contains("a shell script"));
    }

    #[test]
    fn numbered_braces_in_regular_expressions_are_doubtful() {
        let is_doubtful = |text: &str| {
            let found = std::cell::Cell::new(false);
            let meaning = |braces: &Braces<'_>| {
                let braced = TWO.read(braces);
                found.set(found.get() || matches!(braced, BraceMeaning::Doubtful(_)));
                braced.into()
            };
            last(text, &meaning).unwrap();
            found.get()
        };
        assert!(is_doubtful("grep -E 'a{1}x' {2}"));
        assert!(!is_doubtful("touch a{1}x {2}") && !is_doubtful("grep -e {1} {2}"));
    }

    #[test]
    fn names_of_columns_are_placeholders() {
        let names = ["file", "n", "n"].map(String::from);
        let reader = BraceParser { sources: 3, names: &names, ..ONE };
        assert_eq!(of("a {file}.x", reader).unwrap(), "{{input.arg1}}.x");
        assert_eq!(of("a {file/.}-{3}", reader).unwrap(), "{{input.arg1_stem}}-{{input.arg3}}");
        assert_eq!(of("awk '{print}' {file}", reader).unwrap(), "{{input.arg1}}");
        for (text, what, instead) in [
            ("a {n}", "{n} names several columns", "write the number"),
            ("a {4}", "{4} stands for column 4, and 3 columns are given", "name a column of the header"),
            ("sh -c 'wc {file}'", "{file} would become a part of a shell script", "sh -c"),
            ("a '{{file}}'", "or the placeholder {file} in braces", "\\{{file}}"),
        ] {
            let refusal = of(text, reader).unwrap_err();
            assert!(refusal.contains(what) && refusal.contains(instead), "{text}: {refusal}");
        }
    }

    #[test]
    fn plan_braces_name_fields_or_the_line() {
        let of = |text: &str| last(text, &|braces| in_plan(braces, false));
        for (text, expected) in [
            ("a {}", "{{input.line}}"),
            ("a {input.file}.x", "{{input.file}}.x"),
            ("a '{{ input.file }}'", "{{input.file}}"),
            ("a '{{{input.file}}}'", r#"{{"{"}}{{input.file}}}"#),
            ("a '\\{{input.file}}'", r#"{{"{{"}}input.file}}"#),
            ("grep -E '[0-9]{4}'", "[0-9]{4}"),
            ("a '{{.}}'", r#"{{"{{"}}.}}"#),
            ("a '\\{.}\\{}'", "{.}{}"),
            ("awk '/x/{}'", "/x/{}"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, what) in [
            ("a {.}", "{.} is made by `agx map` alone"),
            ("a {2}", "{2} is made by"),
            ("a '{{}}'", "{} in braces"),
            ("sh -c 'echo {input.x}'", "a shell script"),
        ] {
            assert!(of(text).unwrap_err().contains(what), "{text}");
        }
    }
}
