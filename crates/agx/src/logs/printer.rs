//! Where what jobs write is printed: their stdout to ours and their stderr to ours, of several jobs line by line.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Write},
};

use agenix_protocol::{documents::OutputChunk, ids::JobId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::CliError,
    logs::position::{NewOutput, Stream},
    output::Output,
};

/// A line that is longer is printed in parts.
const LONGEST_LINE: usize = 64 * 1024;

/// What is printed of one job.
pub(super) struct LogPrinter {
    job_id: JobId,
    /// Of which task alone.
    task: Option<u32>,
    /// What stands before each line, where there are several jobs.
    prefix: Option<String>,
    /// Which is being printed.
    attempt: u32,
    /// Lines that are not whole yet.
    begun: BTreeMap<(u32, Stream), Vec<u8>>,
    output: Output,
}

/// A piece of what a task wrote, as a document.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputDocument {
    job_id: JobId,
    attempt: u32,
    task_number: u32,
    stream: Stream,
    /// Bytes before it that were not kept.
    lost: u64,
    #[serde(flatten)]
    piece: OutputChunk,
}

impl LogPrinter {
    pub(super) fn new(job_id: JobId, task: Option<u32>, prefix: Option<String>, output: Output) -> Self {
        Self { job_id, task, prefix, attempt: 0, begun: BTreeMap::new(), output }
    }

    /// Prints what is new.
    pub(super) fn print(&mut self, fresh: Vec<NewOutput>) -> Result<(), CliError> {
        let only = self.task;
        for fresh in fresh.into_iter().filter(|fresh| only.is_none_or(|task| task == fresh.task_number)) {
            self.print_one(&fresh)?;
        }
        self.output.flush()
    }

    fn print_one(&mut self, fresh: &NewOutput) -> Result<(), CliError> {
        let NewOutput { task_number, stream, piece, lost, .. } = fresh;
        if self.attempt != fresh.attempt {
            // What another attempt has not ended is not gone on with.
            self.end()?;
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
        if let Some(prefix) = &self.prefix {
            let begun = self.begun.entry((*task_number, *stream)).or_default();
            begun.extend_from_slice(&piece.bytes);
            for line in whole_lines(begun) {
                write(*stream, &[prefix.as_bytes(), &line].concat(), self.output)?;
            }
        } else {
            write(*stream, &piece.bytes, self.output)?;
        }
        if *lost > 0 {
            self.output.note(&format!(
                "agx: {lost} bytes that task {task_number} of job {} wrote were not kept",
                self.job_id
            ));
        }
        Ok(())
    }

    /// Nothing comes any more: lines that have no end get one.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        for ((_, stream), line) in std::mem::take(&mut self.begun) {
            if !line.is_empty() {
                write(stream, &[prefix.as_bytes(), &line, b"\n"].concat(), self.output)?;
            }
        }
        self.output.flush()
    }
}

/// The lines that have their end, and what is too long to wait for it.
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

fn write(stream: Stream, bytes: &[u8], output: Output) -> Result<(), CliError> {
    match stream {
        Stream::Stdout => output.raw(bytes),
        Stream::Stderr => match std::io::stderr().write_all(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(CliError::BrokenPipe),
            // Whether anyone reads stderr is not ours to judge.
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, whole_lines};

    #[test]
    fn lines_wait_for_their_end_but_not_for_ever() {
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
