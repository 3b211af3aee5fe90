//! Output: text for people, JSON documents for programs. Commands return values, and this module
//! formats them.

use std::{borrow::Cow, fmt::Display, io::Write};

use agenix_protocol::{blob::OutputStream, documents::to_json, template::compact};
use serde::Serialize;
use serde_json::json;

use crate::{
    error::{CliError, Result},
    util::{
        printable::{bytes_for, one_line, printable, printable_document, printable_json},
        terminal_stream::{TerminalStream, flush_stdout, is_terminal, unless_gone},
    },
};

/// Name of the schema of every `--json` document; docs/agx.md describes it.
pub(crate) const SCHEMA: &str = "agx/1";

/// Format of results on stdout. Progress and errors go to stderr.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutputFormat {
    pub(crate) is_json: bool,
    /// True if the output of tasks is written to a terminal unchanged (`--raw`).
    pub(crate) is_raw: bool,
    /// True if output for a terminal on stdout that is gone is dropped.
    pub(crate) outlives_terminal: bool,
}

/// Document as agx prints it, on one line. Numbers in the document keep the text that was
/// submitted.
#[derive(Serialize)]
struct JsonEnvelope<'s, T> {
    data: &'s T,
    kind: &'s str,
    schema: &'s str,
}

impl OutputFormat {
    /// Returns the format of a command that goes on when its terminal is gone.
    pub(crate) fn outliving_terminal(self) -> Self {
        // Once the terminal is gone, the system no longer says that it is one.
        Self { outlives_terminal: is_terminal(OutputStream::Stdout), ..self }
    }

    /// Prints a result: as a document, or as the text that `human` returns.
    pub(crate) fn show<T: Serialize>(
        self,
        kind: &str,
        data: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        self.show_bytes(kind, data, |data| printable_document(&human(data)).into_bytes())
    }

    /// Prints a result: as a document, or as the command that `human` returns. Pipes and files get
    /// the bytes for the byte escapes of the command.
    pub(crate) fn show_command<T: Serialize>(
        self,
        kind: &str,
        data: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        let command =
            |data: &T| bytes_for(self.escapes(OutputStream::Stdout), &printable_document(&human(data)));
        self.show_bytes(kind, data, command)
    }

    fn show_bytes<T: Serialize>(self, kind: &str, data: &T, human: impl FnOnce(&T) -> Vec<u8>) -> Result<()> {
        let mut out = agenix_cli::stdout()?;
        if self.is_json {
            let document = to_json(&JsonEnvelope { data, kind, schema: SCHEMA });
            writeln!(out, "{}", for_stream(OutputStream::Stdout, &compact(&document)))?;
        } else {
            let text = human(data);
            out.write_all(&text)?;
            if !text.is_empty() && !text.ends_with(b"\n") {
                out.write_all(b"\n")?;
            }
        }
        Ok(out.flush()?)
    }

    /// Prints names, one on each line.
    pub(crate) fn list<T: Serialize + Display>(self, kind: &str, names: &[T]) -> Result<()> {
        self.show(kind, &names, |names| names.iter().map(|name| format!("{name}\n")).collect())
    }

    /// Returns stdout or stderr for the output of a task.
    pub(crate) fn stream(self, stream: OutputStream) -> TerminalStream {
        TerminalStream::new(stream, self.escapes(stream), self.outlives_terminal)
    }

    /// Returns true if the output of tasks is escaped on `stream`. Documents are escaped with
    /// `--raw` too, because escapes do not change their meaning.
    pub(crate) fn escapes(self, stream: OutputStream) -> bool {
        (self.is_json || !self.is_raw) && is_terminal(stream)
    }

    /// Writes `bytes` to stdout unchanged.
    pub(crate) fn raw(self, bytes: &[u8]) -> Result<()> {
        Ok(agenix_cli::stdout()?.write_all(bytes)?)
    }

    pub(crate) fn flush(self) -> Result<()> {
        Ok(unless_gone(flush_stdout(), self.outlives_terminal)?)
    }

    /// Writes a note to stderr for the user, on one line.
    pub(crate) fn note(self, text: &str) {
        self.notes(&one_line(text));
    }

    /// Writes a note to stderr for the user, with the lines of `text`.
    pub(crate) fn notes(self, text: &str) {
        // A closed stderr is not an error.
        let _unread = writeln!(std::io::stderr(), "{}", printable(text));
    }

    pub(crate) fn fail(self, failure: &CliError) {
        if failure.is_silent() {
            return;
        }
        let mut err = std::io::stderr().lock();
        let _unread = if self.is_json {
            let document =
                json!({"schema": SCHEMA, "kind": "error", "error": failure.document()}).to_string();
            writeln!(err, "{}", for_stream(OutputStream::Stderr, &document))
        } else {
            writeln!(err, "{}", error_text(failure))
        };
    }

    pub(crate) fn is_stderr_a_terminal() -> bool {
        is_terminal(OutputStream::Stderr)
    }
}

/// Returns the form of a JSON document that is written to `stream`.
fn for_stream(stream: OutputStream, json: &str) -> Cow<'_, str> {
    if is_terminal(stream) { printable_json(json) } else { json.into() }
}

/// Formats a JSON text with a line for each part. Numbers keep their text.
pub(crate) fn pretty(json: &str) -> String {
    let json = compact(json);
    let (mut depth, mut is_in_text, mut is_escaped) = (0, false, false);
    let mut lines = String::with_capacity(json.len() * 2);
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        let is_empty = matches!((c, chars.peek()), ('{', Some('}')) | ('[', Some(']')));
        if is_in_text {
            is_in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            lines.push(c);
            continue;
        }
        is_in_text = c == '"';
        let breaks_before = matches!(c, '}' | ']') && !lines.ends_with(['{', '[']);
        match c {
            '{' | '[' if !is_empty => depth += 1,
            '}' | ']' if breaks_before => depth -= 1,
            _ => {}
        }
        if breaks_before {
            lines = lines + "\n" + &"  ".repeat(depth);
        }
        lines.push(c);
        match c {
            ':' => lines.push(' '),
            ',' | '{' | '[' if !is_empty => lines = lines + "\n" + &"  ".repeat(depth),
            _ => {}
        }
    }
    lines
}

/// Formats a failure for the user: a message, and a line of advice.
fn error_text(failure: &CliError) -> String {
    let help = failure.help().map(|help| format!("\n  {}", one_line(&help))).unwrap_or_default();
    let message = failure.to_string();
    let message = if failure.has_lines() { printable(&message) } else { one_line(&message) };
    format!("agx: {message}{help}")
}

/// Returns a count with its noun: `one` for 1, otherwise `several`.
pub(crate) fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns a number of jobs with its noun.
pub(crate) fn jobs(count: u64) -> String {
    counted(count, "job", "jobs")
}

/// Maximum width of a cell of a table, in characters.
const WIDEST_CELL: usize = 200;

/// Returns `text` on one line, cut to [`WIDEST_CELL`] characters.
fn cell(text: &str) -> String {
    let mut cell: String = one_line(text).chars().take(WIDEST_CELL + 1).collect();
    if cell.chars().count() > WIDEST_CELL {
        cell.pop();
        cell.pop();
        cell.push('…');
    }
    cell
}

/// Formats `rows` as columns below `heading`.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([heading[column].len()]).max().unwrap_or_default()
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let head = line(&mut heading.iter().copied());
    rows.iter().fold(head, |text, row| text + &line(&mut row.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::{CliError, WIDEST_CELL, error_text, jobs, pretty, table};

    #[test]
    fn pretty_json_keeps_the_text_of_numbers() {
        let json = r#"{"a": 1.10, "b":[18446744073709551616, {}], "c": "x, {y\"", "d": []}"#;
        let lines = [
            "{",
            "  \"a\": 1.10,",
            "  \"b\": [",
            "    18446744073709551616,",
            "    {}",
            "  ],",
            "  \"c\": \"x, {y\\\"\",",
            "  \"d\": []",
            "}",
        ];
        assert_eq!(pretty(json), lines.join("\n"));
    }

    #[test]
    fn errors_print_a_message_and_a_line_of_advice() {
        let name = "x\nagx: all jobs completed\u{1b}[2J";
        let shown = error_text(&CliError::usage(format!("cannot read {name}"), format!("remove\r{name}")));
        assert_eq!(
            shown,
            "agx: cannot read x\\nagx: all jobs completed\\x1b[2J\n  remove\\rx\\nagx: all jobs completed\\x1b[2J"
        );
        let problem = "a variable\n    sort $x\u{1b}\n         ^^".to_owned();
        let marked = error_text(&CliError::Marked { problem, help: "write its value".into() });
        assert_eq!(marked, "agx: a variable\n    sort $x\\x1b\n         ^^\n  write its value");
    }

    #[test]
    fn table_cells_have_one_line_of_bounded_width() {
        let row = |text: &str| vec![text.to_owned(), "1".to_owned()];
        let shown = table(
            &["HOST", "N"],
            &[row(&"x".repeat(70_000)), row(&"y".repeat(WIDEST_CELL)), row("a\nb\u{1b}")],
        );
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], format!("{}…  1", "x".repeat(WIDEST_CELL - 1)));
        assert_eq!(lines[2], format!("{}  1", "y".repeat(WIDEST_CELL)));
        assert!(lines[3].starts_with("a\\nb\\x1b ") && lines.len() == 4, "{}", lines[3]);
    }

    #[test]
    fn counted_uses_the_singular_for_one() {
        assert_eq!([jobs(0), jobs(1), jobs(2)], ["0 jobs", "1 job", "2 jobs"]);
    }

    #[test]
    fn table_columns_fit_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["ID", "N"], &rows), "ID      N\na       1\nlonger  22\n");
    }
}
