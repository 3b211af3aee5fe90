//! Refusal of inputs that would become code: a part of a script in the command.

use agenix_shell::{Braces, Language, WordRole};

use super::BraceMeaning;

/// Returns the language of the script around the placeholder, unless it is the whole script.
pub(super) fn script_around(braces: &Braces<'_>) -> Option<Language> {
    let is_whole = braces.before.is_empty() && braces.after.is_empty() && !braces.role.continues_script;
    braces.role.script.filter(|_| !is_whole)
}

/// Refuses a placeholder that would make an input a part of a script.
pub(super) fn within_script(written: &str, language: Language) -> BraceMeaning {
    let (script, instead) = match language {
        Language::Shell => {
            ("a shell script: an input such as $(…) or ; would be run", "sh -c '… \"$1\" …' sh {}")
        }
        Language::Awk => ("a program of awk: an input such as system(…) would be run", "awk -v x={} '… x …'"),
        Language::Perl => ("a program of perl, which runs it", "perl -e '… $ARGV[0] …' -- {}"),
        Language::Python => {
            ("a program of python, which runs it", "python3 -c 'import sys; … sys.argv[1] …' {}")
        }
        Language::Ruby => ("a program of ruby, which runs it", "ruby -e '… ARGV[0] …' -- {}"),
        Language::Node => ("a program of node, which runs it", "node -e '… process.argv[1] …' -- {}"),
        Language::Php => ("a program of php, which runs it", "php -r '… $argv[1] …' -- {}"),
        Language::Remote => (
            "a text that a shell of the host runs, because ssh joins its words: an input such as $(…) or ; would be run",
            "printf '%s\\n' {} | ssh HOST 'IFS= read -r x; … \"$x\" …'",
        ),
    };
    let how = if language == Language::Remote { "on stdin" } else { "as an argument" };
    BraceMeaning::Refused {
        reason: format!("{written} would become a part of {script}"),
        instead: format!(
            "give the input to the script {how}: {instead}; --inputs-may-be-code allows it as it is"
        ),
    }
}

/// Returns the refusal of further inputs in a word of this role, which they would make code.
pub(crate) fn extended(written: &str, role: WordRole) -> Option<(String, String)> {
    match within_script(written, role.script?) {
        BraceMeaning::Refused { reason, instead } => Some((reason, instead)),
        _ => None,
    }
}

/// Returns the refusal of an input that would be appended to a script, and what to do instead.
pub(crate) fn appended(role: WordRole) -> Option<(String, String)> {
    match within_script("{}", role.script.filter(|_| role.continues_script)?) {
        BraceMeaning::Refused { reason, instead } => Some((reason, instead)),
        _ => None,
    }
}
