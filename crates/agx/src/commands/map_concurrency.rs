//! Concurrency key of the jobs of `agx map`, in which placeholders are those of the command.

use std::{cell::RefCell, collections::BTreeSet};

use agenix_protocol::documents::ConcurrencyKey;
use agenix_shell::{Braces, Placeholders, Programs, argv};

use super::{map_args::MapArgs, refused};
use crate::{
    error::{CliError, Result},
    map::{BraceMeaning, BraceParser, Placeholder},
};

/// Returns the concurrency key of the jobs, and the placeholders that it has.
pub(super) fn read(
    args: &MapArgs,
    reader: BraceParser<'_>,
) -> Result<Option<(ConcurrencyKey, BTreeSet<Placeholder>)>> {
    let Some(given) = args.concurrency.given() else { return Ok(None) };
    let found = RefCell::new(BTreeSet::new());
    let meaning = |braces: &Braces<'_>| {
        let braced = reader.read(braces);
        if let (false, BraceMeaning::Placeholder(placeholder) | BraceMeaning::Doubtful(placeholder)) =
            (braces.is_escaped, &braced)
        {
            found.borrow_mut().insert(*placeholder);
        }
        braced.into()
    };
    let placeholders = Placeholders { only: args.replace.as_deref(), meaning: &meaning };
    // The key is read as an argument of a command that has no syntax of its own.
    let words = ["key".to_owned(), given.to_owned()];
    let mut task = argv(&words, placeholders, Programs::Named).map_err(|refusal| refused(&refusal))?;
    let found = found.into_inner();
    if let Some(wrong) = found.iter().find(|one| one.is_list() || one.is_slot() || args.pipe) {
        let instead = match wrong {
            _ if args.pipe => "leave it out: with --pipe, a job has a block of text and no other input",
            one if one.is_list() => "write {1} for the first input of the job",
            _ => "leave it out: no slot is known before a worker runs the job",
        };
        return Err(CliError::usage(format!("--concurrency-key has {}", wrong.written()), instead));
    }
    Ok(task.args.pop().map(|key| (args.concurrency.with(key), found)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::read;
    use crate::{
        cli::{Cli, Command},
        map::BraceParser,
    };

    fn key(options: &[&str], names: &[&str]) -> Result<(String, usize), String> {
        let words = ["agx", "map"].iter().chain(options).chain(&["--", "true"]);
        let Ok(Cli { command: Some(Command::Map(args)), .. }) = Cli::try_parse_from(words) else {
            return Err("wrong options".into());
        };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let reader = BraceParser {
            sources: names.len().max(1),
            names: &names,
            is_grouped: args.is_grouped(),
            is_renamed: args.replace.is_some(),
            may_be_code: false,
        };
        let read = read(&args, reader).map_err(|failure| failure.to_string())?;
        let (key, found) = read.ok_or("no key")?;
        Ok((key.key, found.len()))
    }

    #[test]
    fn concurrency_key_has_the_placeholders_of_the_command() {
        let names = ["user", "host"];
        for (given, template, count) in [
            ("all", "all", 0),
            ("host:{}", "host:{{input.line}}", 1),
            ("{2}", "{{input.arg2}}", 1),
            ("{user}@{host/.}", "{{input.arg1}}@{{input.arg2_stem}}", 2),
            ("a b $x", "a b $x", 0),
            ("\\{}", "{}", 0),
        ] {
            assert_eq!(key(&["--concurrency-key", given], &names).unwrap(), (template.to_owned(), count));
        }
        assert_eq!(key(&["-I", "@", "--concurrency-key", "{}@"], &[]).unwrap().0, "{}{{input.line}}");
    }

    #[test]
    fn concurrency_key_of_a_map_is_one_text() {
        for (options, why) in [
            (&["--concurrency-key", "{%}"][..], "--concurrency-key has {%}"),
            (&["-N", "2", "--concurrency-key", "x{}"], "--concurrency-key has {}"),
            (&["--pipe", "--concurrency-key", "{}"], "--concurrency-key has {}"),
            (&["--concurrency-key", "{{input.user}}"], "{{input.user}} is a field of a plan's input"),
            (&["--concurrency-key", "x", "--max-running", "2"], "wrong options"),
            (&["--concurrency-key", "x", "--rate", "2/s"], "wrong options"),
            (&["--max-running-per-key", "2"], "wrong options"),
        ] {
            let refused = key(options, &[]).unwrap_err();
            assert!(refused.contains(why), "{options:?}: {refused}");
        }
        assert_eq!(key(&["-N", "2", "--concurrency-key", "{#}"], &[]).unwrap().0, "{{input.seq}}");
    }
}
