//! Converts the command of `agx map` to tasks.

use std::{cell::RefCell, collections::BTreeSet};

use agenix_protocol::documents::{ConcurrencyKey, Task};
use agenix_shell::{Braces, Placeholders, Programs, argv, compile, next_word};

use super::{
    command_plan::NO_TIMEOUT_SECS,
    map_args::MapArgs,
    map_concurrency,
    map_lists::check_lists,
    map_words::{leading_words, operator_note},
    refused,
};
use crate::{
    error::{CliError, Result},
    map::{BLOCK, BraceMeaning, BraceParser, Columns, InputFields, Placeholder, appended, perl_expression},
};

/// Compiled pipeline, and the parts of the inputs that it uses.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Text of the pipeline as the user wrote it.
    pub(super) text: String,
    pub(super) tasks: Vec<Task>,
    pub(super) fields: InputFields,
    /// Templates of words that begin with an input and that a program may read as options.
    pub(super) leading: Vec<String>,
    pub(super) concurrency: Option<ConcurrencyKey>,
    /// Notes about the pipeline for the user.
    pub(super) notes: Vec<String>,
}

/// Placeholders and notes that the parser has found in the braces of a command.
#[derive(Default)]
struct ParserNotes {
    placeholders: BTreeSet<Placeholder>,
    notes: Vec<String>,
}

impl ParserNotes {
    fn add(&mut self, braced: &BraceMeaning, braces: &Braces<'_>) {
        let (BraceMeaning::Placeholder(placeholder) | BraceMeaning::Doubtful(placeholder)) = *braced else {
            return;
        };
        self.placeholders.insert(placeholder);
        if matches!(braced, BraceMeaning::Doubtful(_)) {
            let Braces { before, inside, after, .. } = braces;
            self.notes.push(format!(
                "agx: {{{inside}}} in '{before}{{{inside}}}{after}' stands for source {inside}; write \\{{{inside}}} if it is a \
                 repetition of the regular expression"
            ));
        }
    }
}

/// Compiles the command `words`, whose jobs have the values of `sources` and `columns`.
pub(super) fn read(
    words: &[String],
    args: &MapArgs,
    (sources, columns): (usize, &Columns),
    programs: Programs,
) -> Result<Pipeline> {
    let found = RefCell::new(ParserNotes::default());
    let reader = BraceParser {
        sources: args.per_job.unwrap_or_else(|| columns.count(sources)),
        names: &columns.names(),
        is_grouped: args.is_grouped(),
        is_renamed: args.replace.is_some(),
        may_be_code: args.inputs_may_be_code,
    };
    let meaning = |braces: &Braces<'_>| {
        let braced = reader.read(braces);
        if !braces.is_escaped {
            found.borrow_mut().add(&braced, braces);
        }
        braced.into()
    };
    let placeholders = Placeholders { only: args.replace.as_deref(), meaning: &meaning };
    let mut tasks = compiled(words, placeholders, programs)?;
    // A backslash makes the braces text.
    if args.replace.is_none() && !words.iter().any(|word| word.contains("\\{=")) {
        refuse_expressions(&tasks)?;
    }
    let mut text = match words {
        [text] => text.clone(),
        words => words.split_first().map_or_else(String::new, |(command, args)| {
            let (command, args) = (command.clone(), args.to_vec());
            agenix_shell::render(&[Task { command, args, ..Task::default() }])
        }),
    };
    let mut found = found.into_inner();
    if args.pipe {
        feed_block(&mut tasks, args, &found)?;
    } else if found.placeholders.is_empty() {
        append(&mut tasks, args, &mut found)?;
        text += " {}";
    }
    let ParserNotes { mut placeholders, mut notes } = found;
    placeholders.retain(|placeholder| !placeholder.is_slot());
    notes.extend(operator_note(words));
    let (concurrency, of_key) = map_concurrency::read(args, reader)?.unzip();
    check_lists(&tasks, &placeholders, args.inputs_may_be_code)?;
    let leading = if args.inputs_may_be_options { Vec::new() } else { leading_words(&tasks) };
    placeholders.extend(of_key.unwrap_or_default());
    for task in &mut tasks {
        task.timeout_secs = Some(args.timeout.unwrap_or(NO_TIMEOUT_SECS));
        task.idle_timeout_secs = args.idle_timeout;
    }
    let fields = InputFields { placeholders, columns: columns.clone() };
    Ok(Pipeline { text, tasks, fields, leading, concurrency, notes })
}

/// Compiles one word as a pipeline, and several as a program and its arguments.
fn compiled(words: &[String], placeholders: Placeholders<'_>, programs: Programs) -> Result<Vec<Task>> {
    match words {
        [] => Err(CliError::usage("there is no command", "write it after --, as -- 'grep -c ERROR {}'")),
        [text] => compile(text, placeholders, programs).map_err(|refusal| refused(&refusal)),
        words => {
            argv(words, placeholders, programs).map(|task| vec![task]).map_err(|refusal| refused(&refusal))
        }
    }
}

/// Refuses `{=…=}`, which GNU Parallel evaluates, if it consists of several words.
fn refuse_expressions(tasks: &[Task]) -> Result<()> {
    let has_one = |task: &Task| {
        let mut behind = task.args.iter().skip_while(|word| !word.starts_with("{=")).skip(1);
        behind.any(|word| word.ends_with("=}"))
    };
    if tasks.iter().any(has_one) {
        let (reason, instead) = perl_expression("{=…=}");
        return Err(CliError::usage(reason, instead));
    }
    Ok(())
}

/// Appends the input as the last argument of a command without a placeholder.
fn append(tasks: &mut [Task], args: &MapArgs, found: &mut ParserNotes) -> Result<()> {
    if let Some(only) = args.replace.as_deref() {
        return Err(CliError::usage(
            format!("'{only}' is not in the command"),
            "write it where the input goes, or leave -I out",
        ));
    }
    let [task] = tasks else {
        return Err(CliError::usage("the pipeline does not say where the input goes", "write {} there"));
    };
    let role = next_word(task);
    if let (false, Some((reason, instead))) = (args.inputs_may_be_code, appended(role)) {
        return Err(CliError::usage(reason, instead));
    }
    let whole = if args.is_grouped() { Placeholder::WHOLE.of_group() } else { Placeholder::WHOLE };
    task.args.push(whole.template());
    found.placeholders.insert(whole);
    Ok(())
}

/// Makes the first command read the block from stdin.
fn feed_block(tasks: &mut [Task], args: &MapArgs, found: &ParserNotes) -> Result<()> {
    if let Some(wrong) = found.placeholders.iter().find(|placeholder| !placeholder.is_number()) {
        let written = args.replace.clone().unwrap_or_else(|| wrong.written());
        return Err(CliError::usage(
            format!("{written} stands for an input, and with --pipe a job has a block of stdin instead"),
            if args.replace.is_some() {
                "leave it out, because the first command reads the block from its stdin; or choose another text for -I"
            } else {
                "leave it out, because the first command reads the block from its stdin; or write a backslash before it to pass it as it is"
            },
        ));
    }
    let Some(first) = tasks.first_mut() else { return Ok(()) };
    if first.stdin_file.is_some() {
        return Err(CliError::usage("--pipe and < both give the first command its stdin", "leave one out"));
    }
    first.stdin = Some(format!("{{{{input.{BLOCK}}}}}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Columns, Pipeline, Programs, read};
    use crate::{
        cli::{Cli, Command},
        commands::map_args::MapArgs,
    };

    fn args(words: &[&str]) -> MapArgs {
        match Cli::parse_from(["agx", "map"].iter().chain(words)).command {
            Some(Command::Map(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn pipeline(words: &[&str], sources: usize) -> Result<Pipeline, String> {
        let args = args(words);
        read(&args.words.clone(), &args, (sources, &Columns::default()), Programs::Named)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn map_finds_placeholders_that_may_be_options() {
        for (words, expected) in [
            (&["--", "rm -f {}"][..], true),
            (&["--", "rm", "-f"], true),
            (&["--", "rm", "-f", "--"], false),
            (&["--", "rm -f -- {}"], false),
            (&["--", "cp {} {}.bak"], true),
            (&["--", "cp -- {} x/{}"], false),
            (&["--", "wc -l < {}"], false),
            (&["--", "tar --file={}"], false),
            (&["--", "sh", "-c", "wc \"$1\"", "sh"], false),
            (&["--", "sh", "deploy.sh"], true),
            (&["--", "python3 tool.py {}"], true),
            (&["--", "python3 tool.py -- {}"], false),
            (&["--", "mv -v {} {/.}-old"], true),
            (&["--", "env -- rm {}"], true),
            (&["--", "env -- rm -- {}"], false),
            (&["-I@", "--", "rm @"], true),
            (&["--inputs-may-be-options", "--", "rm {}"], false),
        ] {
            let leading = pipeline(words, 1).unwrap().leading;
            assert_eq!(!leading.is_empty(), expected, "{words:?}");
        }
        let leading = pipeline(&["--", "mv {1}{2} \\{1}{2} {.}-old x{}"], 2).unwrap().leading;
        assert_eq!(leading, ["{{input.arg1}}{{input.arg2}}", "{{input.line_noext}}-old"]);
    }

    #[test]
    fn map_leaves_the_slot_to_the_worker() {
        let read = pipeline(&["--", "x --gpu={%} {}"], 1).unwrap();
        assert_eq!(read.tasks[0].args, ["--gpu={{slot}}", "{{input.line}}"]);
        assert_eq!(read.fields.placeholders.len(), 1, "the input has no field for it");
        let read = pipeline(&["--", "x {%}"], 1).unwrap();
        assert_eq!((&*read.tasks[0].args, read.fields.placeholders.len()), (&["{{slot}}".to_owned()][..], 0));
        assert!(read.leading.is_empty());
        assert_eq!(pipeline(&["--", "x '\\{%}' {}"], 1).unwrap().tasks[0].args[0], "{%}");
    }

    #[test]
    fn map_ignores_escaped_placeholders() {
        let read = pipeline(&["--", "grep -E 'a\\{1}'"], 1).unwrap();
        assert_eq!(read.tasks[0].args, ["-E", "a{1}", "{{input.line}}"], "the input goes behind");
        assert_eq!(read.text, "grep -E 'a\\{1}' {}");
        let read = pipeline(&["--", "grep -E 'a{1}' {2}"], 2).unwrap();
        assert!(read.notes[0].contains("write \\{1} if it is a repetition"), "{:?}", read.notes);
    }

    #[test]
    fn map_refuses_expressions_of_gnu_parallel() {
        for words in [
            &["--", "echo {= s/a/b/ =}"][..],
            &["--", "echo '{= s/a/b/ =}'"],
            &["--", "echo", "{=", "s/a/b/", "=}"],
        ] {
            let refusal = pipeline(words, 1).unwrap_err();
            assert!(refusal.contains("is an expression of perl in GNU Parallel"), "{words:?}: {refusal}");
        }
        for words in [
            &["-I@", "--", "echo {= x =} @"][..],
            &["--", "echo =} {="],
            &["--", "echo {= x"],
            &["--", "echo \\{= x =} {}"],
        ] {
            assert!(pipeline(words, 1).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn map_pipe_has_no_placeholder_of_an_input() {
        for (words, written) in [
            (&["--pipe", "--", "wc -l {}"][..], "{}"),
            (&["--pipe", "--", "cat | tee {/.}"], "{/.}"),
            (&["--pipe", "-I@", "--", "wc @"], "@"),
        ] {
            let refusal = pipeline(words, 1).unwrap_err();
            let expected = format!("{written} stands for an input, and with --pipe");
            assert!(refusal.starts_with(&expected), "{words:?}: {refusal}");
        }
        assert_eq!(pipeline(&["--pipe", "--", "split - out.{#}."], 1).unwrap().fields.placeholders.len(), 1);
        assert_eq!(pipeline(&["--pipe", "--", "wc '\\{}'"], 1).unwrap().tasks[0].args, ["{}"]);
    }

    #[test]
    fn map_requires_the_text_of_replace_in_the_command() {
        let words = ["-I", "@@", "--", "awk '{}' @@"];
        assert_eq!(pipeline(&words, 1).unwrap().tasks[0].args, ["{}", "{{input.line}}"]);
        assert_eq!(pipeline(&["-I", "@@", "--", "wc {}"], 1).unwrap_err(), "'@@' is not in the command");
        assert_eq!(pipeline(&["-I{}", "--", "wc", "{}"], 1).unwrap().tasks[0].args, ["{{input.line}}"]);
    }
}
