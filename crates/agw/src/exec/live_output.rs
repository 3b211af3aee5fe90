//! Live output of a job's tasks for users that follow the job. Nothing is copied before a request.

use std::{
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use agenix_protocol::{
    blob::OutputStream,
    documents::{JobOutput, OutputChunk, OutputPosition, TaskOutput, TaskPosition, TaskResult, TaskStream},
    ids::JobId,
};

use crate::exec::spool::{SpoolFile, taken};

/// Maximum number of bytes of all streams in one reply.
pub(crate) const MAX_AT_ONCE: usize = 64 * 1024;

/// Output streams of the tasks that have started in the current or just finished attempt.
#[derive(Default)]
pub(crate) struct LiveOutput {
    tasks: Mutex<Vec<OutputStreams>>,
    has_ended: AtomicBool,
}

/// Output files of one task. A stream is `None` if it goes to a pipe or to a file of the user.
pub(crate) struct OutputStreams {
    pub(crate) task_number: u32,
    pub(crate) command: String,
    /// Number of the earlier task whose stdout file this task reads.
    pub(crate) reads: Option<u32>,
    pub(crate) stdout: Option<Arc<SpoolFile>>,
    pub(crate) stderr: Option<Arc<SpoolFile>>,
}

/// Output stream that is too large for a report.
#[derive(Debug, Clone)]
pub(crate) struct LargeOutput {
    pub(crate) task_number: u32,
    pub(crate) stream: OutputStream,
    pub(crate) file: Arc<SpoolFile>,
    /// Number of bytes when the job ended.
    pub(crate) length: u64,
}

impl LiveOutput {
    pub(crate) fn add(&self, written: OutputStreams) {
        self.lock().push(written);
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Returns the number of files that this value keeps open.
    pub(crate) fn files(&self) -> usize {
        let of = |written: &OutputStreams| {
            usize::from(written.stdout.is_some()) + usize::from(written.stderr.is_some())
        };
        self.lock().iter().map(of).sum()
    }

    /// Returns the bytes of disk that all output takes, and the task whose output takes the most.
    pub(crate) fn taken(&self) -> (u64, u32) {
        let of = |file: &Option<Arc<SpoolFile>>| file.as_deref().map_or(0, |file| taken(file));
        let tasks = self.lock();
        let taken =
            tasks.iter().map(|written| (of(&written.stdout) + of(&written.stderr), written.task_number));
        let taken: Vec<_> = taken.collect();
        let most = taken.iter().max_by_key(|(bytes, _)| *bytes).map_or(0, |(_, task)| *task);
        (taken.iter().map(|(bytes, _)| bytes).sum(), most)
    }

    /// Returns the number of bytes that the tasks have written.
    pub(crate) fn written(&self) -> u64 {
        let of = |file: &Option<Arc<SpoolFile>>| file.as_deref().map_or(0, SpoolFile::length);
        self.lock().iter().map(|written| of(&written.stdout) + of(&written.stderr)).sum()
    }

    /// Returns the streams of more than `most` bytes, and those that `results` have truncated,
    /// except streams that a later task has read. A file that the quota has cut is no whole stream.
    pub(crate) fn larger_than(&self, most: u64, results: &[TaskResult]) -> Vec<LargeOutput> {
        let (mut larger, tasks) = (Vec::new(), self.lock());
        let is_read = |task_number| tasks.iter().any(|later| later.reads == Some(task_number));
        let is_truncated = |task_number: u32, stream, length: u64| {
            let result = results.iter().find(|result| result.task_number == task_number);
            let kept = result.map(|result| result.stream(stream));
            kept.is_some_and(|kept| kept.is_truncated() && kept.total <= length)
        };
        for written in &*tasks {
            let task_number = written.task_number;
            let stdout = written.stdout.as_ref().filter(|_| !is_read(task_number));
            let streams = [(OutputStream::Stdout, stdout), (OutputStream::Stderr, written.stderr.as_ref())];
            for (stream, file) in streams {
                let Some(file) = file else { continue };
                let length = file.length();
                if length > most || is_truncated(task_number, stream, length) {
                    larger.push(LargeOutput { task_number, stream, file: Arc::clone(file), length });
                }
            }
        }
        larger
    }

    /// Cuts each file to `most` bytes, which would stay on the disk as long as the job is followed.
    pub(crate) fn cut(&self, most: u64) {
        for file in self.lock().iter().flat_map(|written| [&written.stdout, &written.stderr]).flatten() {
            if file.metadata().is_ok_and(|metadata| metadata.len() > most) {
                // A file that cannot be cut is deleted when the worker forgets the job.
                let _cut = file.set_len(most);
            }
        }
    }

    /// Returns the output after `position`, at most [`MAX_AT_ONCE`] bytes of all streams, or of
    /// the stream `only`.
    pub(crate) fn since(
        &self,
        job_id: &JobId,
        attempt: u32,
        position: &OutputPosition,
        only: Option<TaskStream>,
    ) -> JobOutput {
        // The flag is read first: a job that ends during the reads may still write, for the next
        // request.
        let ended = self.has_ended.load(Ordering::Acquire);
        let (mut left, mut more, mut tasks) = (MAX_AT_ONCE, false, Vec::new());
        for written in &*self.lock() {
            let is_it = |known: &&TaskPosition| known.task_number == written.task_number;
            let known = position.tasks.iter().find(is_it).filter(|_| position.attempt == attempt);
            let known = known.copied().unwrap_or_default();
            let task_number = written.task_number;
            let mut chunk = |file: &Option<Arc<SpoolFile>>, stream, from| {
                let is_wanted = only.is_none_or(|only| only == TaskStream { task_number, stream });
                let file = file.as_deref().filter(|_| is_wanted);
                let chunk = file.map(|file| chunk(file, from, &mut left));
                more |= chunk.as_ref().is_some_and(|(_, more)| *more);
                chunk.map(|(chunk, _)| chunk)
            };
            let stdout = chunk(&written.stdout, OutputStream::Stdout, known.stdout);
            let stderr = chunk(&written.stderr, OutputStream::Stderr, known.stderr);
            let command = written.command.clone();
            tasks.push(TaskOutput { task_number, command, stdout, stderr });
        }
        JobOutput { job_id: job_id.clone(), attempt, tasks, more, ended: ended && !more }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OutputStreams>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns at most `left` bytes from `from`, and whether more follow. Unreadable files have ended.
fn chunk(file: &SpoolFile, from: u64, left: &mut usize) -> (OutputChunk, bool) {
    let there = usize::try_from(file.length().saturating_sub(from)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; there.min(*left)];
    if file.read_exact_at(&mut bytes, from).is_err() {
        return (OutputChunk { from, bytes: Vec::new() }, false);
    }
    *left -= bytes.len();
    let more = there > bytes.len();
    (OutputChunk { from, bytes }, more)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use agenix_protocol::{
        blob::OutputStream,
        documents::{
            CapturedOutput, JobOutput, OutputChunk, OutputPosition, TaskPosition, TaskResult, TaskStream,
        },
    };

    use super::{LiveOutput, MAX_AT_ONCE, OutputStreams, SpoolFile};

    fn since(live_output: &LiveOutput, stdout: u64, stderr: u64) -> JobOutput {
        let tasks = vec![TaskPosition { task_number: 1, stdout, stderr }];
        live_output.since(&"j".parse().unwrap(), 2, &OutputPosition { attempt: 2, tasks }, None)
    }

    #[test]
    fn live_output_returns_the_bytes_after_the_position() {
        let [stdout, stderr] = [(); 2].map(|()| Arc::new(SpoolFile::from(tempfile::tempfile().unwrap())));
        let live_output = LiveOutput::default();
        assert!(since(&live_output, 0, 0).tasks.is_empty());
        live_output.add(OutputStreams {
            task_number: 1,
            command: "sh".into(),
            reads: None,
            stdout: Some(Arc::clone(&stdout)),
            stderr: Some(Arc::clone(&stderr)),
        });
        (&**stdout).write_all(b"one\n").unwrap();
        (&**stderr).write_all(b"two\n").unwrap();
        let output = since(&live_output, 1, 4);
        assert_eq!(output.tasks[0].stdout, Some(OutputChunk { from: 1, bytes: b"ne\n".into() }));
        assert_eq!(output.tasks[0].stderr, Some(OutputChunk { from: 4, bytes: Vec::new() }));
        let of_another_attempt = OutputPosition { attempt: 1, ..OutputPosition::default() };
        let output = live_output.since(&"j".parse().unwrap(), 2, &of_another_attempt, None);
        assert_eq!(output.tasks[0].stdout, Some(OutputChunk { from: 0, bytes: b"one\n".into() }));
        let only = Some(TaskStream { task_number: 1, stream: OutputStream::Stderr });
        let output = live_output.since(&"j".parse().unwrap(), 2, &OutputPosition::default(), only);
        assert_eq!(output.tasks[0].stdout, None);
        assert_eq!(output.tasks[0].stderr, Some(OutputChunk { from: 0, bytes: b"two\n".into() }));
    }

    #[test]
    fn large_output_is_what_no_later_task_has_read() {
        let live_output = LiveOutput::default();
        let of = |task_number, reads, bytes: usize| {
            let stdout = Arc::new(SpoolFile::from(tempfile::tempfile().unwrap()));
            (&**stdout).write_all(&vec![7; bytes]).unwrap();
            let command = "sh".into();
            live_output.add(OutputStreams {
                task_number,
                command,
                reads,
                stdout: Some(stdout),
                stderr: None,
            });
        };
        of(1, None, 9);
        of(2, Some(1), 5);
        of(3, None, 6);
        let larger = live_output.larger_than(5, &[]);
        assert_eq!(larger.iter().map(|it| (it.task_number, it.length)).collect::<Vec<_>>(), [(3, 6)]);
        assert_eq!(live_output.larger_than(6, &[]).len(), 0);
    }

    #[test]
    fn large_output_is_also_a_stream_that_the_results_have_truncated() {
        let [stdout, stderr] = [9, 5].map(|bytes| {
            let file = Arc::new(SpoolFile::from(tempfile::tempfile().unwrap()));
            (&**file).write_all(&vec![7; bytes]).unwrap();
            Some(file)
        });
        let live_output = LiveOutput::default();
        let command = "sh".into();
        live_output.add(OutputStreams { task_number: 1, command, reads: None, stdout, stderr });
        let large = |stdout, stderr| {
            let results = [TaskResult { task_number: 1, stdout, stderr, ..TaskResult::default() }];
            let large = live_output.larger_than(9, &results);
            large.iter().map(|it| (it.stream, it.length)).collect::<Vec<_>>()
        };
        let whole = |bytes| CapturedOutput::whole(vec![7; bytes]);
        let truncated = |total| CapturedOutput::inline(vec![7; 4], total);
        assert!(large(whole(9), whole(5)).is_empty());
        assert_eq!(large(truncated(9), truncated(5)), [(OutputStream::Stdout, 9), (OutputStream::Stderr, 5)]);
        // The quota has cut the file of stderr, which had 9 bytes.
        assert_eq!(large(truncated(9), truncated(9)), [(OutputStream::Stdout, 9)]);
    }

    #[test]
    fn live_output_is_split_and_ends_with_the_last_chunk() {
        let stderr = Arc::new(SpoolFile::from(tempfile::tempfile().unwrap()));
        (&**stderr).write_all(&vec![7; MAX_AT_ONCE + 1]).unwrap();
        let live_output = LiveOutput::default();
        let stderr = Some(stderr);
        live_output.add(OutputStreams {
            task_number: 1,
            command: "sh".into(),
            reads: None,
            stdout: None,
            stderr,
        });
        live_output.end();
        let output = since(&live_output, 0, 0);
        assert!(output.more && !output.ended && output.tasks[0].stdout.is_none());
        assert_eq!(output.tasks[0].stderr.as_ref().unwrap().bytes.len(), MAX_AT_ONCE);
        let output = since(&live_output, 0, MAX_AT_ONCE as u64);
        assert!(!output.more && output.ended);
        assert_eq!(output.tasks[0].stderr.as_ref().unwrap().bytes, [7]);
        assert_eq!(since(&live_output, 0, u64::MAX).tasks[0].stderr.as_ref().unwrap().bytes, b"");
    }
}
