//! Position in the output of a job, which separates new output from printed output.

use std::collections::BTreeMap;

use agenix_protocol::{
    blob::OutputStream,
    documents::{CapturedOutput, JobOutput, OutputChunk, OutputPosition, TaskPosition, TaskResult},
};
use schemars::JsonSchema;
use serde::Serialize;

/// One of the output streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl From<Stream> for OutputStream {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}

impl From<OutputStream> for Stream {
    fn from(stream: OutputStream) -> Self {
        match stream {
            OutputStream::Stdout => Self::Stdout,
            OutputStream::Stderr => Self::Stderr,
        }
    }
}

/// New part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewOutput {
    pub(super) attempt: u32,
    pub(super) task_number: u32,
    pub(super) stream: Stream,
    pub(super) chunk: OutputChunk,
    /// Number of lost bytes before this part.
    pub(super) lost: u64,
}

/// Number of printed bytes of each stream, for one attempt.
#[derive(Debug, Default)]
pub(super) struct StreamPositions {
    attempt: u32,
    streams: BTreeMap<(u32, Stream), u64>,
}

impl StreamPositions {
    /// Returns the position for a request to the worker.
    pub(super) fn position(&self) -> OutputPosition {
        let numbers: std::collections::BTreeSet<u32> =
            self.streams.keys().map(|(number, _)| *number).collect();
        let shown = |number, stream| self.streams.get(&(number, stream)).copied().unwrap_or_default();
        let tasks = numbers.into_iter().map(|task_number| TaskPosition {
            task_number,
            stdout: shown(task_number, Stream::Stdout),
            stderr: shown(task_number, Stream::Stderr),
        });
        OutputPosition { attempt: self.attempt, tasks: tasks.collect() }
    }

    /// Returns the new parts of an answer of the worker about `attempt`. An answer about another
    /// attempt has no new part: the job was started again since its state was read, and the rest of
    /// `attempt` comes first.
    pub(super) fn of_output(&mut self, attempt: u32, output: JobOutput) -> Vec<NewOutput> {
        if output.attempt != attempt {
            return Vec::new();
        }
        self.switch_to(attempt);
        let streams = output.tasks.into_iter().flat_map(|task| {
            let number = task.task_number;
            let [stdout, stderr] = [(Stream::Stdout, task.stdout), (Stream::Stderr, task.stderr)];
            [stdout, stderr].into_iter().filter_map(move |(stream, chunk)| Some((number, stream, chunk?)))
        });
        streams.filter_map(|(number, stream, chunk)| self.new_output(number, stream, chunk, None)).collect()
    }

    /// Returns the new parts of the output in a job's results.
    pub(super) fn of_results(&mut self, attempt: u32, results: Vec<TaskResult>) -> Vec<NewOutput> {
        self.switch_to(attempt);
        let streams = results.into_iter().flat_map(|task| {
            let number = task.task_number;
            [(number, Stream::Stdout, task.stdout), (number, Stream::Stderr, task.stderr)]
        });
        let fresh = streams.filter_map(|(number, stream, CapturedOutput { bytes, total, .. })| {
            // A stream without stored bytes went to a pipe or to a file, so nothing is lost.
            let total = Some(total).filter(|_| !bytes.is_empty());
            self.new_output(number, stream, OutputChunk { from: 0, bytes }, total)
        });
        fresh.collect()
    }

    /// Returns the number of bytes of a stream of an attempt that were printed.
    pub(super) fn printed(&self, attempt: u32, task_number: u32, stream: OutputStream) -> u64 {
        let known = self.streams.get(&(task_number, stream.into())).filter(|_| self.attempt == attempt);
        known.copied().unwrap_or_default()
    }

    /// Returns the new part of a chunk of a stored stream.
    pub(super) fn of_chunk(
        &mut self,
        attempt: u32,
        (task_number, stream): (u32, OutputStream),
        chunk: OutputChunk,
    ) -> Option<NewOutput> {
        self.switch_to(attempt);
        self.new_output(task_number, stream.into(), chunk, None)
    }

    /// Resets the position if `attempt` is another attempt.
    fn switch_to(&mut self, attempt: u32) {
        if self.attempt != attempt {
            *self = Self { attempt, ..Self::default() };
        }
    }

    /// Returns the unprinted part of a chunk. With a `total`, missing bytes at the end are lost.
    fn new_output(
        &mut self,
        task_number: u32,
        stream: Stream,
        chunk: OutputChunk,
        total: Option<u64>,
    ) -> Option<NewOutput> {
        let shown = self.streams.entry((task_number, stream)).or_default();
        let OutputChunk { from, mut bytes } = chunk;
        let known = usize::try_from(shown.saturating_sub(from)).unwrap_or(usize::MAX).min(bytes.len());
        bytes.drain(..known);
        let from = from + known as u64;
        let mut lost = if bytes.is_empty() { 0 } else { from.saturating_sub(*shown) };
        *shown = (*shown).max(from + bytes.len() as u64);
        if let Some(total) = total {
            lost += total.saturating_sub(*shown);
            *shown = (*shown).max(total);
        }
        let is_news = !bytes.is_empty() || lost > 0;
        is_news.then_some(NewOutput {
            attempt: self.attempt,
            task_number,
            stream,
            chunk: OutputChunk { from, bytes },
            lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{
        CapturedOutput, JobOutput, OutputChunk, TaskOutput, TaskPosition, TaskResult,
    };

    use super::{Stream, StreamPositions};

    fn output(attempt: u32, from: u64, text: &str) -> JobOutput {
        let stderr = Some(OutputChunk { from, bytes: text.into() });
        let tasks = vec![TaskOutput { task_number: 1, command: "sh".into(), stdout: None, stderr }];
        JobOutput { job_id: "j".parse().unwrap(), attempt, tasks, more: false, ended: false }
    }

    fn kept(text: &str, total: u64) -> Vec<TaskResult> {
        let stderr = CapturedOutput::inline(text.into(), total);
        vec![TaskResult { task_number: 1, stderr, ..TaskResult::default() }]
    }

    fn texts(fresh: &[super::NewOutput]) -> Vec<(Stream, u64, &str, u64)> {
        let text = |fresh: &super::NewOutput| std::str::from_utf8(&fresh.chunk.bytes).unwrap().to_owned();
        fresh.iter().map(|fresh| (fresh.stream, fresh.chunk.from, &*text(fresh).leak(), fresh.lost)).collect()
    }

    #[test]
    fn log_position_shows_nothing_twice() {
        let mut seen = StreamPositions::default();
        assert_eq!(texts(&seen.of_output(1, output(1, 0, "abc"))), [(Stream::Stderr, 0, "abc", 0)]);
        assert_eq!(seen.position().tasks, [TaskPosition { task_number: 1, stdout: 0, stderr: 3 }]);
        assert!(seen.of_output(1, output(1, 3, "")).is_empty());
        assert_eq!(texts(&seen.of_output(1, output(1, 2, "cd"))), [(Stream::Stderr, 3, "d", 0)]);
        assert_eq!(texts(&seen.of_results(1, kept("abcde", 5))), [(Stream::Stderr, 4, "e", 0)]);
        assert!(seen.of_results(1, kept("abcde", 5)).is_empty());
    }

    #[test]
    fn log_position_restarts_with_another_attempt() {
        let mut seen = StreamPositions::default();
        seen.of_output(1, output(1, 0, "abc"));
        assert_eq!(texts(&seen.of_output(2, output(2, 0, "abc"))), [(Stream::Stderr, 0, "abc", 0)]);
        assert_eq!(seen.position().attempt, 2);
    }

    #[test]
    fn log_position_shows_the_rest_of_an_attempt_before_the_next_one() {
        let mut seen = StreamPositions::default();
        seen.of_output(1, output(1, 0, "abc"));
        // The job runs again since its state was read, which is that of the first attempt.
        assert!(seen.of_output(1, output(2, 0, "next")).is_empty());
        assert_eq!(texts(&seen.of_results(1, kept("abcd", 4))), [(Stream::Stderr, 3, "d", 0)]);
        assert_eq!(texts(&seen.of_output(2, output(2, 0, "next"))), [(Stream::Stderr, 0, "next", 0)]);
    }

    #[test]
    fn log_position_counts_lost_bytes_once() {
        let mut seen = StreamPositions::default();
        assert_eq!(texts(&seen.of_results(1, kept("ab", 10))), [(Stream::Stderr, 0, "ab", 8)]);
        assert!(seen.of_results(1, kept("ab", 10)).is_empty());
        let mut seen = StreamPositions::default();
        seen.of_output(1, output(1, 0, "abcdefgh"));
        assert_eq!(texts(&seen.of_results(1, kept("ab", 10))), [(Stream::Stderr, 2, "", 2)]);
        assert!(StreamPositions::default().of_results(1, kept("", 10)).is_empty(), "a pipe took them");
    }
}
