//! Prints the output of jobs: stdout to stdout and stderr to stderr. Output of several jobs is
//! printed in whole lines.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind, Read, Seek, Write},
};

use agenix_protocol::{documents::OutputChunk, ids::JobId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    logs::position::{NewOutput, Stream},
    output::OutputFormat,
    util::{printable::bytes_for, temp_file, terminal_stream::TerminalStream},
};

/// Maximum number of bytes of an incomplete line in memory. Further bytes are in a temporary file.
const MAX_IN_MEMORY: usize = 64 * 1024;

/// Form in which the output of a job is printed.
#[derive(Debug, Clone)]
pub(crate) enum LineForm {
    /// In the chunks in which agx gets it.
    Chunks,
    /// In whole lines.
    Lines {
        /// Text before each line, with byte escapes.
        prefix: String,
        /// True if a last line without a line feed gets one.
        is_completed: bool,
    },
}

pub(super) struct LogPrinter {
    job_id: JobId,
    /// Number of the only task to print, if any.
    task: Option<u32>,
    form: LineForm,
    /// Attempt whose output is being printed.
    attempt: u32,
    streams: BTreeMap<(u32, Stream), PrintedStream>,
    output: OutputFormat,
}

/// Stream of a task that is being printed.
struct PrintedStream {
    stream: Stream,
    begun: BegunLine,
    out: TerminalStream,
}

/// Incomplete line: the bytes of the file, if there is one, and those in memory behind them.
#[derive(Debug, Default)]
struct BegunLine {
    file: Option<File>,
    in_memory: Vec<u8>,
}

/// A chunk of the output of a task, as a document.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputDocument {
    job_id: JobId,
    attempt: u32,
    task_number: u32,
    stream: Stream,
    /// Number of lost bytes before the chunk.
    lost: u64,
    #[serde(flatten)]
    chunk: OutputChunk,
}

impl LogPrinter {
    pub(super) fn new(job_id: JobId, task: Option<u32>, form: LineForm, output: OutputFormat) -> Self {
        Self { job_id, task, form, attempt: 0, streams: BTreeMap::new(), output }
    }

    pub(super) fn print(&mut self, fresh: Vec<NewOutput>) -> Result<()> {
        let only = self.task;
        for fresh in fresh.into_iter().filter(|fresh| only.is_none_or(|task| task == fresh.task_number)) {
            self.print_one(&fresh)?;
        }
        self.output.flush()
    }

    fn print_one(&mut self, fresh: &NewOutput) -> Result<()> {
        let NewOutput { task_number, stream, chunk, lost, .. } = fresh;
        if self.attempt != fresh.attempt {
            // Incomplete lines of an earlier attempt are not continued.
            self.end_streams(true)?;
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
                chunk: chunk.clone(),
            };
            return self.output.show("logs", &shown, |_| String::new());
        }
        let new = || PrintedStream::new(*stream, self.output);
        let printed = self.streams.entry((*task_number, *stream)).or_insert_with(new);
        match &self.form {
            LineForm::Lines { prefix, .. } => {
                printed.write_lines(&prefix_for(*stream, prefix, self.output), &chunk.bytes)?;
            }
            LineForm::Chunks => printed.write(&chunk.bytes)?,
        }
        if *lost > 0 {
            self.output.note(&format!(
                "agx: {lost} bytes that task {task_number} of job {} wrote were not kept",
                self.job_id
            ));
        }
        Ok(())
    }

    /// Prints the incomplete lines at the end of the output.
    pub(super) fn end(&mut self) -> Result<()> {
        let is_completed = matches!(self.form, LineForm::Lines { is_completed: true, .. });
        self.end_streams(is_completed)
    }

    /// Ends all streams. With `completes`, incomplete lines get a line feed.
    fn end_streams(&mut self, completes: bool) -> Result<()> {
        for ((_, stream), mut printed) in std::mem::take(&mut self.streams) {
            if let LineForm::Lines { prefix, .. } = &self.form
                && !printed.begun.is_empty()
            {
                let end: &[u8] = if completes { b"\n" } else { b"" };
                printed.write_line(&prefix_for(stream, prefix, self.output), end)?;
            }
            printed.end()?;
        }
        self.output.flush()
    }
}

impl PrintedStream {
    fn new(stream: Stream, output: OutputFormat) -> Self {
        Self { stream, begun: BegunLine::default(), out: output.stream(stream.into()) }
    }

    /// Writes the lines that `bytes` complete, each after the prefix, and keeps the rest.
    fn write_lines(&mut self, prefix: &[u8], bytes: &[u8]) -> Result<()> {
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if line.ends_with(b"\n") {
                self.write_line(prefix, line)?;
            } else {
                self.begun.add(line)?;
            }
        }
        Ok(())
    }

    /// Writes the prefix, the incomplete line, and `end`.
    fn write_line(&mut self, prefix: &[u8], end: &[u8]) -> Result<()> {
        let BegunLine { file, in_memory } = std::mem::take(&mut self.begun);
        let Some(mut file) = file else { return self.write(&[prefix, &in_memory, end].concat()) };
        self.write(prefix)?;
        file.rewind()?;
        let mut chunk = vec![0; MAX_IN_MEMORY];
        loop {
            match file.read(&mut chunk)? {
                0 => return self.write(&[&*in_memory, end].concat()),
                read => self.write(&chunk[..read])?,
            }
        }
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

impl BegunLine {
    fn is_empty(&self) -> bool {
        self.file.is_none() && self.in_memory.is_empty()
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.in_memory.extend_from_slice(bytes);
        if self.in_memory.len() > MAX_IN_MEMORY {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(temp_file::create()?),
            };
            let written = file.write_all(&std::mem::take(&mut self.in_memory));
            written.map_err(|error| temp_file::failed(&error))?;
        }
        Ok(())
    }
}

fn prefix_for(stream: Stream, prefix: &str, output: OutputFormat) -> Vec<u8> {
    bytes_for(output.escapes(stream.into()), prefix)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::{BegunLine, MAX_IN_MEMORY};

    #[test]
    fn log_printer_keeps_long_incomplete_lines_in_a_file() {
        let mut begun = BegunLine::default();
        assert!(begun.is_empty());
        begun.add(&vec![b'x'; MAX_IN_MEMORY]).unwrap();
        assert!(begun.file.is_none() && begun.in_memory.len() == MAX_IN_MEMORY, "at the bound");
        begun.add(b"y").unwrap();
        assert!(begun.file.is_some() && begun.in_memory.is_empty() && !begun.is_empty());
        begun.add(b"z").unwrap();
        let (mut kept, mut file) = (Vec::new(), begun.file.unwrap());
        file.rewind().unwrap();
        file.read_to_end(&mut kept).unwrap();
        assert_eq!(kept, [&vec![b'x'; MAX_IN_MEMORY][..], b"y"].concat());
        assert_eq!(begun.in_memory, b"z");
    }
}
