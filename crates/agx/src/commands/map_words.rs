//! Words of the command of `agx map` that a program may read otherwise than the user expects:
//! inputs as options, and operators of a shell as arguments.

use agenix_protocol::{documents::Task, template};
use agenix_shell::next_word;

/// Returns the templates of the words that begin with an input where a program may read options.
pub(super) fn leading_words(tasks: &[Task]) -> Vec<String> {
    let mut leading = Vec::new();
    for task in tasks {
        let may_be_option = |count: usize| {
            next_word(&Task { args: task.args[..count].to_vec(), ..task.clone() }).may_be_option
        };
        for (at, word) in task.args.iter().enumerate().filter(|(_, word)| word.starts_with("{{input.")) {
            let is_list = template::list(word).is_some();
            // The first input of a list may decide how the program reads the others.
            if may_be_option(at) || (is_list && may_be_option(at + 1)) {
                leading.push(word.clone());
            }
        }
    }
    leading
}

/// Words between commands and files that a shell would read.
const OPERATORS: [&str; 6] = ["|", "||", "&&", ">", ">>", "<"];
/// Programs with arguments of the same form.
const WITH_OPERATORS: [&str; 3] = ["[", "expr", "test"];

/// Returns a note if one of several words was probably meant for a shell. An operator behind the
/// program or an option is probably a value, as in `cut -d '|'` and `tr '<' '>'`.
pub(super) fn operator_note(words: &[String]) -> Option<String> {
    let program = words.first()?;
    if words.iter().any(|word| WITH_OPERATORS.contains(&word.rsplit('/').next().unwrap_or_default())) {
        return None;
    }
    let behind_an_operand = words.windows(3).skip(1).filter(|three| !three[0].starts_with('-'));
    let operator =
        behind_an_operand.map(|three| &three[1]).find(|word| OPERATORS.contains(&word.as_str()))?;
    Some(format!(
        "agx: '{operator}' is an argument of {program}, because no shell reads separate words; for a pipeline or a file \
         write the whole command as one word, in quotes"
    ))
}

#[cfg(test)]
mod tests {
    use super::operator_note;

    fn note(line: &str) -> Option<String> {
        operator_note(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn operators_of_a_shell_among_separate_words_are_noted() {
        for (line, operator) in [
            ("tar cf - {} | gzip > {}.tgz", "'|'"),
            ("echo {} > {}.txt", "'>'"),
            ("echo {} >> log", "'>>'"),
            ("wc {} < {}", "'<'"),
            ("gzip {} && rm {}", "'&&'"),
        ] {
            let note = note(line).unwrap_or_default();
            assert!(note.starts_with(&format!("agx: {operator} is an argument of ")), "{line}: {note}");
        }
        for line in [
            "echo {}",
            "cut -d | -f 2 {}",
            "tr < >",
            "grep -c > {}",
            "expr {} | 0",
            "env test {} > b",
            "find {} -exec ls ;",
            "tr a |",
            "|",
        ] {
            assert_eq!(note(line), None, "{line}");
        }
    }
}
