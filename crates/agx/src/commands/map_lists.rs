//! Checks of placeholders that stand for the several inputs of a job (`-N`).

use std::collections::BTreeSet;

use agenix_protocol::{documents::Task, template};
use agenix_shell::next_word;

use crate::{
    error::{CliError, Result},
    map::{Placeholder, extended},
};

/// Checks that each placeholder of a list is an argument of its own, and that no input after the
/// first becomes code.
pub(super) fn check_lists(
    tasks: &[Task],
    placeholders: &BTreeSet<Placeholder>,
    may_be_code: bool,
) -> Result<()> {
    let lists = || placeholders.iter().copied().filter(|placeholder| placeholder.is_list());
    for task in tasks {
        for (place, text) in task.templates() {
            let is_whole = place.starts_with("args[") && template::list(text).is_some();
            if !is_whole && let Some(list) = lists().find(|list| text.contains(&list.template())) {
                return Err(in_text(list, text));
            }
        }
        for (at, arg) in task.args.iter().enumerate() {
            let Some(list) = lists().find(|list| *arg == list.template()) else { continue };
            let role = next_word(&Task { args: task.args[..=at].to_vec(), ..task.clone() });
            if let (false, Some((reason, instead))) = (may_be_code, extended(&list.written(), role)) {
                return Err(CliError::usage(reason, instead));
            }
        }
    }
    Ok(())
}

fn in_text(list: Placeholder, text: &str) -> CliError {
    let (written, shown) = (list.written(), text.replace(&list.template(), &list.written()));
    CliError::usage(
        format!("{written} stands for several inputs, one argument each, and not for a part of '{shown}'"),
        format!("write {written} as a word of its own, or one input as {{1}}"),
    )
}

#[cfg(test)]
mod tests {
    use agenix_shell::Programs;
    use clap::Parser;

    use crate::{
        cli::{Cli, Command},
        commands::map_pipeline::read,
        map::Columns,
    };

    /// Returns the last arguments of the tasks, and whether any input may be an option.
    fn compiled(words: &[&str]) -> Result<(Vec<String>, bool), String> {
        let Some(Command::Map(args)) = Cli::parse_from(["agx", "map"].iter().chain(words)).command else {
            panic!("{words:?}")
        };
        let pipeline = read(&args.words.clone(), &args, (1, &Columns::default()), Programs::Named);
        let pipeline = pipeline.map_err(|failure| failure.to_string())?;
        let last = |task: &agenix_protocol::documents::Task| task.args.last().cloned().unwrap_or_default();
        Ok((pipeline.tasks.iter().map(last).collect(), !pipeline.leading.is_empty()))
    }

    #[test]
    fn lists_are_words_of_their_own() {
        let list = |words: &[&str], may_be_option: bool| {
            let (args, leading) = compiled(words).unwrap();
            assert_eq!((args[0].as_str(), leading), ("{{input.lines[]}}", may_be_option), "{words:?}");
        };
        list(&["-n2", "--", "wc -l"], true);
        list(&["-N2", "--", "wc -l {} | sort"], true);
        list(&["-N2", "--", "rm", "--", "{}"], false);
        list(&["-N2", "-I@", "--", "echo @"], true);
        list(&["-N2", "--", "sh -c 'wc \"$@\"' sh {}"], false);
        assert_eq!(compiled(&["-N2", "--", "diff -- {1} {2}"]).unwrap().0, ["{{input.arg2}}"]);
        assert_eq!(compiled(&["-N1", "--", "echo x{}"]).unwrap().0, ["x{{input.line}}"]);
        for (words, part) in [
            (&["-N2", "--", "echo x{}"][..], "'x{}'"),
            (&["-N2", "--", "echo {.}{1}"], "'{.}{{input.arg1}}'"),
            (&["-N2", "--", "wc < {}"], "'{}'"),
            (&["-N2", "--", "X={} env"], "'{}'"),
            (&["-N2", "-I@", "--", "echo x@"], "'x{}'"),
        ] {
            let refusal = compiled(words).unwrap_err();
            assert!(
                refusal.contains("several inputs, one argument each") && refusal.contains(part),
                "{refusal}"
            );
        }
    }

    #[test]
    fn lists_do_not_become_code() {
        let refusal = compiled(&["-N2", "--", "ssh {}"]).unwrap_err();
        assert!(
            refusal.contains("{} would become a part of a text that a shell of the host runs"),
            "{refusal}"
        );
        assert!(compiled(&["-N2", "--inputs-may-be-code", "--", "ssh {}"]).is_ok());
        assert!(compiled(&["--", "ssh {}"]).is_ok());
    }
}
