//! Redirections of a command.

use agenix_protocol::documents::{STDERR_TO_STDOUT, Task};
use brush_parser::ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target, IoRedirect, Word};

use crate::refusal::{Unsupported, place};

/// Applies a redirection. `text` converts words; `at` is the command's position, as a fallback.
pub(crate) fn apply(
    redirect: &IoRedirect,
    task: &mut Task,
    at: (usize, usize),
    text: impl Fn(&Word) -> Result<String, Unsupported>,
) -> Result<(), Unsupported> {
    let IoRedirect::File(descriptor, kind, target) = redirect else {
        return Err(text_for_stdin(at));
    };
    let word = match target {
        Target::Filename(word) | Target::Duplicate(word) => word,
        Target::Fd(number) => &Word::new(&number.to_string()),
        Target::ProcessSubstitution(..) => {
            return Err(Unsupported::new(at, "a command cannot stand for a file", "write a pipeline"));
        }
    };
    let at = word.loc.as_ref().map_or(at, place);
    let once = |field: &mut Option<String>, name: &str, value: String| match field.replace(value) {
        None => Ok(()),
        Some(_) => {
            Err(Unsupported::new(at, format!("{name} is redirected twice"), "leave the first one out"))
        }
    };
    match (kind, descriptor.map_or_else(|| default_of(kind), i64::from)) {
        (Kind::Read, 0) => once(&mut task.stdin_file, "stdin", text(word)?),
        (Kind::Write | Kind::Clobber, 1) if task.stderr.as_deref() == Some(STDERR_TO_STDOUT) => {
            Err(Unsupported::new(at, "stderr would go where stdout went before", "write 2>&1 after the file"))
        }
        (Kind::Write | Kind::Clobber, 1) => once(&mut task.stdout, "stdout", text(word)?),
        (Kind::Write | Kind::Clobber, 2) => match text(word)? {
            path if path == STDERR_TO_STDOUT => Err(Unsupported::new(
                at,
                "a file of this name cannot be told from 2>&1",
                "choose another name",
            )),
            path => once(&mut task.stderr, "stderr", path),
        },
        (Kind::DuplicateOutput, 2) if text(word)? == "1" => {
            once(&mut task.stderr, "stderr", STDERR_TO_STDOUT.into())
        }
        (Kind::Append, _) => Err(Unsupported::new(
            at,
            "concurrent jobs cannot append to one file",
            "leave it out: agx brings all outputs together, `agx map … > FILE`",
        )),
        _ => Err(unknown(at)),
    }
}

/// Refuses a redirection that plans do not have.
pub(crate) fn unknown(at: (usize, usize)) -> Unsupported {
    Unsupported::new(
        at,
        "of redirections a plan knows `< FILE`, `> FILE`, `2> FILE` and `2>&1`",
        "write it with these",
    )
}

/// Refuses here-documents.
pub(crate) fn text_for_stdin(at: (usize, usize)) -> Unsupported {
    Unsupported::new(
        at,
        "a text for stdin (<<, <<<) and &> are not of a plan",
        "write `printf '%s\\n' TEXT |` before the command; for stdout and stderr together, `> FILE 2>&1`",
    )
}

/// Returns the default descriptor of a redirection.
fn default_of(kind: &Kind) -> i64 {
    match kind {
        Kind::Read | Kind::ReadAndWrite | Kind::DuplicateInput => 0,
        Kind::Write | Kind::Append | Kind::Clobber | Kind::DuplicateOutput => 1,
    }
}
