//! Prints the output of jobs: stdout to stdout and stderr to stderr. Output of several jobs is
//! printed in whole lines.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
};

use agenix_protocol::{documents::OutputChunk, ids::JobId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    logs::position::{NewOutput, Stream},
    output::Output,
    util::{printable::bytes_for, terminal_stream::TerminalStream},
};

/// Maximum length of a line; a longer line is printed in parts.
const LONGEST_LINE: usize = 64 * 1024;

pub(super) struct LogPrinter {
    job_id: JobId,
    /// Number of the only task to print, if any.
    task: Option<u32>,
    /// Prefix of each line if there are several jobs, with byte escapes.
    prefix: Option<String>,
    /// Attempt whose output is being printed.
    attempt: u32,
    streams: BTreeMap<(u32, Stream), PrintedStream>,
    output: Output,
}

/// Stream of a task that is being printed.
struct PrintedStream {
    stream: Stream,
    /// Incomplete line, if lines have a prefix.
    begun: Vec<u8>,
    out: TerminalStream,
}

/// A piece of the output of a task, as a document.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputDocument {
    job_id: JobId,
    attempt: u32,
    task_number: u32,
    stream: Stream,
    /// Number of lost bytes before the piece.
    lost: u64,
    #[serde(flatten)]
    piece: OutputChunk,
}

impl LogPrinter {
    pub(super) fn new(job_id: JobId, task: Option<u32>, prefix: Option<String>, output: Output) -> Self {
        Self { job_id, task, prefix, attempt: 0, streams: BTreeMap::new(), output }
    }

    pub(super) fn print(&mut self, fresh: Vec<NewOutput>) -> Result<()> {
        let only = self.task;
        for fresh in fresh.into_iter().filter(|fresh| only.is_none_or(|task| task == fresh.task_number)) {
            self.print_one(&fresh)?;
        }
        self.output.flush()
    }

    fn print_one(&mut self, fresh: &NewOutput) -> Result<()> {
        let NewOutput { task_number, stream, piece, lost, .. } = fresh;
        if self.attempt != fresh.attempt {
            // Incomplete lines of an earlier attempt are not continued.
            self.end()?;
            if self.attempt != 0 {
                let (job_id, attempt) = (&self.job_id, fresh.attempt);
                self.output.note(&format!(
                    "agx: job {job_id} runs again (attempt {attempt}), and so does its output"
                ));
            }
            self.attempt = fresh.attempt;
        }
        if self.output.is_json {
            let shown = OutputDocument {
                job_id: self.job_id.clone(),
                attempt: fresh.attempt,
                task_number: *task_number,
                stream: *stream,
                lost: *lost,
                piece: piece.clone(),
            };
            return self.output.show("logs", &shown, |_| String::new());
        }
        let new = || PrintedStream::new(*stream, self.output);
        let printed = self.streams.entry((*task_number, *stream)).or_insert_with(new);
        if let Some(prefix) = &self.prefix {
            let prefix = prefix_for(*stream, prefix, self.output);
            printed.begun.extend_from_slice(&piece.bytes);
            for line in whole_lines(&mut printed.begun) {
                printed.write(&[&*prefix, &line].concat())?;
            }
        } else {
            printed.write(&piece.bytes)?;
        }
        if *lost > 0 {
            self.output.note(&format!(
                "agx: {lost} bytes that task {task_number} of job {} wrote were not kept",
                self.job_id
            ));
        }
        Ok(())
    }

    /// Completes the incomplete lines at the end of the output.
    pub(super) fn end(&mut self) -> Result<()> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        for ((_, stream), mut printed) in std::mem::take(&mut self.streams) {
            let line = std::mem::take(&mut printed.begun);
            if !line.is_empty() {
                let prefix = prefix_for(stream, prefix, self.output);
                printed.write(&[&*prefix, &line, b"\n"].concat())?;
            }
            printed.end()?;
        }
        self.output.flush()
    }
}

impl PrintedStream {
    fn new(stream: Stream, output: Output) -> Self {
        Self { stream, begun: Vec::new(), out: output.stream(stream.into()) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write(bytes);
        self.checked(written)
    }

    fn end(&mut self) -> Result<()> {
        let ended = self.out.end();
        self.checked(ended)
    }

    fn checked(&self, written: io::Result<()>) -> Result<()> {
        match (self.stream, written) {
            (Stream::Stdout, written) => Ok(written?),
            (Stream::Stderr, Err(error)) if error.kind() == ErrorKind::BrokenPipe => {
                Err(CliError::BrokenPipe)
            }
            // A closed stderr is not an error.
            (Stream::Stderr, _) => Ok(()),
        }
    }
}

/// Removes and returns the complete lines, and those that exceed the maximum length.
fn whole_lines(begun: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let end = begun.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let rest = begun.split_off(end);
    let whole = std::mem::replace(begun, rest);
    let mut lines: Vec<Vec<u8>> = whole.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    if begun.len() > LONGEST_LINE {
        lines.push([std::mem::take(begun), b"\n".to_vec()].concat());
    }
    lines
}

fn prefix_for(stream: Stream, prefix: &str, output: Output) -> Vec<u8> {
    bytes_for(output.escapes(stream.into()), prefix)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, whole_lines};

    #[test]
    fn log_printer_holds_incomplete_lines_up_to_a_bound() {
        let mut begun = b"one\ntwo\nthr".to_vec();
        assert_eq!(whole_lines(&mut begun), [b"one\n", b"two\n"]);
        begun.extend_from_slice(b"ee\n");
        assert_eq!(whole_lines(&mut begun), [b"three\n"]);
        begun = vec![b'x'; LONGEST_LINE];
        assert!(whole_lines(&mut begun).is_empty());
        begun.push(b'x');
        assert_eq!(whole_lines(&mut begun)[0].len(), LONGEST_LINE + 2);
        assert!(begun.is_empty());
    }
}
