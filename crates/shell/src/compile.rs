//! Compiles a pipeline to tasks.

use agenix_protocol::documents::Task;
use brush_parser::{
    ParseError, Parser, ParserOptions, SourcePosition, TokenizerError as Incomplete,
    ast::{
        AndOr, Assignment, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem as Item,
        CompoundCommand, Pipeline, Program, SeparatorOperator, SimpleCommand, SourceLocation, Word,
    },
};

use crate::{
    braces::{Placeholders, Unquoted, filled},
    nesting, redirect,
    refusal::{Refusal, Unsupported, place},
    role::{self, WordRole},
    word,
};

/// Commands that POSIX makes a part of the shell, so that no program of the name could replace them
/// (XCU 2.14, and `cd` and similar commands).
const OF_THE_SHELL: [&str; 33] = [
    ".", ":", "alias", "bg", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "fc",
    "fg", "getopts", "hash", "jobs", "local", "read", "readonly", "return", "set", "shift", "source",
    "times", "trap", "type", "ulimit", "umask", "unalias", "unset", "wait", "pushd",
];

/// Programs that commands may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// Names of programs on the PATH of the workers.
    Named,
    /// Names and paths.
    ByPath,
}

/// Compiles a pipeline to its tasks, from the first command to the last. All tasks stream, so they
/// run concurrently, as in a shell. A plan of these tasks with `pipefail` false has the meaning of
/// `sh -c`. `placeholders` gives the meaning of `{…}`, and `programs` the programs that commands
/// may name. The error is the refused part of `text`, with its position and an alternative.
pub fn compile(text: &str, placeholders: Placeholders<'_>, programs: Programs) -> Result<Vec<Task>, Refusal> {
    let options = ParserOptions {
        enable_extended_globbing: false,
        posix_mode: true,
        sh_mode: true,
        ..ParserOptions::default()
    };
    let end = text.chars().count();
    nesting::check(text).map_err(|no| no.within(text))?;
    let tasks = Parser::new(text.as_bytes(), &options)
        .parse_program()
        .map_err(|error| unreadable(&error, end))
        .and_then(|program| pipeline(program, end))
        .and_then(|pipeline| Compiling { options: &options, placeholders, programs, end }.tasks(&pipeline));
    tasks.map_err(|no| no.within(text))
}

/// Returns one task of a program and its arguments, without interpreting quotes. The error is a
/// refused placeholder, with an alternative.
pub fn argv(words: &[String], placeholders: Placeholders<'_>, programs: Programs) -> Result<Task, Refusal> {
    let (mut texts, mut at): (Vec<String>, usize) = (Vec::with_capacity(words.len()), 0);
    for word in words {
        let place = (at, at + word.chars().count());
        at = place.1 + 1;
        let role = role::of_next(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let text = filled(&Unquoted { text: word, literal: &[], backslashes: &[], role }, placeholders)
            .map_err(|(reason, instead)| Unsupported::new(place, reason, instead).within(&words.join(" ")))?;
        texts.push(text);
    }
    let mut texts = texts.into_iter();
    let command = texts.next().unwrap_or_default();
    let place = (0, words.first().map_or(0, |word| word.chars().count()));
    check_name(&command, place, programs).map_err(|no| no.within(&words.join(" ")))?;
    Ok(Task { task_number: 1, command, args: texts.collect(), ..Task::default() })
}

fn unreadable(error: &ParseError, end: usize) -> Unsupported {
    let position = match error {
        ParseError::ParsingNear(position) => Some(position),
        ParseError::ParsingAtEndOfInput => None,
        ParseError::Tokenizing { inner: Incomplete::UnterminatedHereDocuments(..), .. } => {
            return redirect::text_for_stdin((end, end));
        }
        ParseError::Tokenizing { inner, position } if inner.is_incomplete() => {
            let at = opened(inner).or(position.as_ref()).map_or(end, |position| position.index);
            return Unsupported::new((at, at + 1), "this quote or bracket is never closed", "close it");
        }
        ParseError::Tokenizing { position, .. } => position.as_ref(),
    };
    let at = position.map_or(end, |position| position.index);
    Unsupported::new(
        (at, at + 1),
        "a shell could not read this",
        "write a pipeline: COMMAND ARG… | COMMAND ARG…",
    )
}

/// Returns the position of an unclosed quote.
fn opened(incomplete: &Incomplete) -> Option<&SourcePosition> {
    match incomplete {
        Incomplete::UnterminatedSingleQuote(at)
        | Incomplete::UnterminatedDoubleQuote(at)
        | Incomplete::UnterminatedBackquote(at) => Some(at),
        _ => None,
    }
}

/// Returns the only pipeline of the program.
fn pipeline(program: Program, end: usize) -> Result<Pipeline, Unsupported> {
    let more = |at| {
        Unsupported::new(
            at,
            "a plan is one pipeline",
            "make a plan of each, and run one when the other has ended: `agx workflow`",
        )
    };
    let mut lists = program.complete_commands.into_iter().flat_map(|list| list.0);
    let nothing =
        || Unsupported::new((end, end), "there is no command", "write a pipeline, as 'sort {} | uniq -c'");
    let item = lists.next().ok_or_else(nothing)?;
    let behind = |at: Option<brush_parser::SourceSpan>| at.map_or((end, end), |span| place(&span));
    if let Some(next) = lists.next() {
        return Err(more(behind(next.0.location())));
    }
    if matches!(item.1, SeparatorOperator::Async) {
        return Err(Unsupported::new(
            (end.saturating_sub(1), end),
            "& would let it run on by itself",
            "leave it out: agx runs jobs at once by itself",
        ));
    }
    match item.0.additional.first() {
        Some(AndOr::And(next) | AndOr::Or(next)) => Err(more(behind(next.location()))),
        None => Ok(item.0.first),
    }
}

/// State of the compilation of a pipeline.
struct Compiling<'c> {
    options: &'c ParserOptions,
    placeholders: Placeholders<'c>,
    programs: Programs,
    end: usize,
}

impl Compiling<'_> {
    fn tasks(&self, pipeline: &Pipeline) -> Result<Vec<Task>, Unsupported> {
        let whole = pipeline.location().map_or((0, self.end), |span| place(&span));
        if pipeline.bang || pipeline.timed.is_some() {
            return Err(Unsupported::new(
                (0, 1),
                "`!` and `time` are the shell's",
                "leave it out; how long each task took is in its result",
            ));
        }
        let mut tasks: Vec<Task> = Vec::with_capacity(pipeline.seq.len());
        for (number, command) in (1..).zip(&pipeline.seq) {
            let at = command.location().map_or(whole, |span| place(&span));
            let mut task = self.task(self.simple(command, at)?, at)?;
            task.task_number = number;
            if let Some(before) = tasks.last() {
                join(before, &mut task, at)?;
            }
            tasks.push(task);
        }
        Ok(tasks)
    }

    fn simple<'a>(&self, command: &'a Command, at: (usize, usize)) -> Result<&'a SimpleCommand, Unsupported> {
        let (reason, instead) = match command {
            Command::Simple(simple) => return Ok(simple),
            Command::Compound(CompoundCommand::Subshell(_) | CompoundCommand::BraceGroup(_), _) => (
                "a group of commands would run in a shell, and there is none",
                "write its commands as one pipeline",
            ),
            Command::Compound(
                CompoundCommand::ForClause(_)
                | CompoundCommand::WhileClause(_)
                | CompoundCommand::UntilClause(_),
                _,
            ) => (
                "a loop needs a shell",
                "give what it goes through as inputs, and agx is the loop: agx map -- '…{}…' ::: A B C",
            ),
            _ => ("this needs a shell", "write a pipeline, or a script that is on the workers' PATH"),
        };
        Err(Unsupported::new(at, reason, instead))
    }

    fn text(&self, word: &Word) -> Result<String, Unsupported> {
        self.argument(word, WordRole::default())
    }

    fn argument(&self, word: &Word, role: WordRole) -> Result<String, Unsupported> {
        word::text(word, role, self.options, self.placeholders)
    }

    fn task(&self, command: &SimpleCommand, at: (usize, usize)) -> Result<Task, Unsupported> {
        let mut task = Task::default();
        let Some(name) = &command.word_or_name else {
            return Err(Unsupported::new(at, "there is no command", "write the name of a program"));
        };
        let (name_at, at_name) = (name.loc.as_ref().map_or(at, place), self.text(name)?);
        check_name(&at_name, name_at, self.programs)?;
        task.command = at_name;
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            match item {
                Item::AssignmentWord(assignment, word) => {
                    let (name, value) = self.variable(assignment, word.loc.as_ref().map_or(at, place))?;
                    task.env.insert(name, value);
                }
                other => self.item(other, &mut task, at)?,
            }
        }
        command.suffix.iter().flat_map(|rest| &rest.0).try_for_each(|item| self.item(item, &mut task, at))?;
        Ok(task)
    }

    fn item(&self, item: &Item, task: &mut Task, at: (usize, usize)) -> Result<(), Unsupported> {
        match item {
            Item::Word(word) | Item::AssignmentWord(_, word) => {
                let role = role::next_word(task);
                task.args.push(self.argument(word, role)?);
            }
            Item::IoRedirect(redirect) => redirect::apply(redirect, task, at, |word| self.text(word))?,
            Item::ProcessSubstitution(..) => {
                return Err(Unsupported::new(at, "a command cannot stand for a file", "write a pipeline"));
            }
        }
        Ok(())
    }

    fn variable(&self, assignment: &Assignment, at: (usize, usize)) -> Result<(String, String), Unsupported> {
        match (&assignment.name, &assignment.value) {
            (AssignmentName::VariableName(name), AssignmentValue::Scalar(value)) if !assignment.append => {
                Ok((name.clone(), self.text(value)?))
            }
            _ => Err(Unsupported::new(at, "only NAME=VALUE can stand before a command", "write NAME=VALUE")),
        }
    }
}

/// Connects the stdout of one task to the stdin of the next.
fn join(before: &Task, task: &mut Task, at: (usize, usize)) -> Result<(), Unsupported> {
    if let Some(file) = &before.stdout {
        return Err(Unsupported::new(
            at,
            format!("this pipe is empty: the command before it writes to {file}"),
            "leave one of the two out; `tee FILE` writes to a file and on",
        ));
    }
    if task.stdin_file.is_some() {
        return Err(Unsupported::new(
            at,
            "this command reads from a file, and from the pipe before it",
            "leave one of the two out",
        ));
    }
    task.input_from_task = Some(before.task_number);
    task.stream = true;
    Ok(())
}

fn check_name(name: &str, at: (usize, usize), programs: Programs) -> Result<(), Unsupported> {
    if OF_THE_SHELL.contains(&name) {
        let instead = match name {
            "cd" | "pushd" => {
                "write the paths in full, or give the task a \"cwd\" in a plan of your own: agx plan from"
            }
            "export" | "set" => "write NAME=VALUE before the command",
            _ => "leave it out, or run it in a script that is on the workers' PATH",
        };
        return Err(Unsupported::new(
            at,
            format!("`{name}` is a part of the shell, and no shell runs the pipeline"),
            instead,
        ));
    }
    if name.contains("{{") {
        return Err(Unsupported::new(
            at,
            "the program cannot come from the input, because agq chooses workers by it",
            "write its name",
        ));
    }
    if name.contains('/') {
        return check_path(name, at, programs);
    }
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Unsupported::new(
            at,
            "this cannot be the name of a program",
            "write a name without blanks, and its arguments after it",
        ));
    }
    Ok(())
}

fn check_path(path: &str, at: (usize, usize), programs: Programs) -> Result<(), Unsupported> {
    if programs == Programs::Named {
        let program = path.rsplit('/').next().unwrap_or(path);
        return Err(Unsupported::new(
            at,
            "a program is named, not its path: each worker has its own",
            format!(
                "write {program}, and see that it is on the PATH that the workers were started with; `agx map` takes paths on this \
                 machine: with --local, or after `agx up`"
            ),
        ));
    }
    if path.ends_with('/') || path.contains(char::is_control) {
        return Err(Unsupported::new(at, "this cannot be the path of a program", "write the path of a file"));
    }
    Ok(())
}
