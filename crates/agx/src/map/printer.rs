//! Prints the output of jobs as they end, or in the order of the inputs. The line of the joblog
//! follows the output, so that `--resume` skips no job whose output was not printed.

use agenix_protocol::blob::OutputStream;

use crate::{
    error::{CliError, Result},
    map::{
        joblog::JobLog,
        live::Grouping,
        reorder_buffer::{FileRegion, JobOutputText, ReorderBuffer, WaitingPart},
    },
    output::OutputFormat,
    util::terminal_stream::TerminalStream,
    watch::progress::ProgressLine,
};

/// Output of a job that comes in chunks, stdout before stderr.
#[derive(Debug)]
pub(crate) struct StreamedOutput {
    at: u64,
    /// Region of the reorder buffer, if the output has to wait for its turn.
    waiting: Option<FileRegion>,
}

/// Stdout and stderr of agx, and the joblog, which take the output of one job at a time.
#[derive(Debug)]
struct PrintedStreams {
    output: OutputFormat,
    stdout: TerminalStream,
    stderr: TerminalStream,
    joblog: Option<JobLog>,
    /// Failure that has ended the joblog.
    broken: Option<CliError>,
}

#[derive(Debug)]
pub(crate) struct Printer {
    streams: PrintedStreams,
    /// `None` if agx prints output as it comes.
    queue: Option<ReorderBuffer>,
    /// True if output is printed elsewhere, while its job runs.
    is_silent: bool,
}

impl Printer {
    pub(crate) fn new(output: OutputFormat, grouping: Grouping, joblog: Option<JobLog>) -> Self {
        let queue = (grouping == Grouping::InOrder).then(ReorderBuffer::default);
        Self { streams: PrintedStreams::new(output, joblog), queue, is_silent: grouping.is_live() }
    }

    /// Returns true if printed jobs are logged.
    pub(crate) fn has_joblog(&self) -> bool {
        self.streams.joblog.is_some()
    }

    /// Returns true if a failed write has ended the joblog.
    pub(crate) fn is_broken(&self) -> bool {
        self.streams.broken.is_some()
    }

    /// Returns the failure that has ended the joblog.
    pub(crate) fn take_failure(&mut self) -> Option<CliError> {
        self.streams.broken.take()
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Prints and logs the job with index `at`, now or at its turn.
    pub(crate) fn print(&mut self, at: u64, text: JobOutputText, line: &ProgressLine) -> Result<()> {
        if self.is_silent {
            return self.streams.write(WaitingPart::LogLine, &text.log_line);
        }
        let Some(queue) = &mut self.queue else {
            return line.aside(|| {
                text.parts().into_iter().try_for_each(|(part, bytes)| self.streams.write(part, bytes))?;
                self.streams.end()
            });
        };
        queue.put(at, text)?;
        self.print_waiting(false, line)
    }

    /// Begins to print output that comes in chunks. The output must end before any other output.
    pub(crate) fn begin(&self, at: u64) -> StreamedOutput {
        let queue = self.queue.as_ref().filter(|queue| !queue.is_next(at));
        StreamedOutput { at, waiting: queue.map(ReorderBuffer::begin) }
    }

    pub(crate) fn print_chunk(
        &mut self,
        of: &mut StreamedOutput,
        stream: OutputStream,
        bytes: &[u8],
        line: &ProgressLine,
    ) -> Result<()> {
        match (&mut of.waiting, &mut self.queue) {
            _ if self.is_silent => Ok(()),
            (Some(region), Some(queue)) => queue.append(region, WaitingPart::Stream(stream), bytes),
            _ => line.aside(|| self.streams.write(WaitingPart::Stream(stream), bytes)),
        }
    }

    /// Ends output that was printed in chunks, and logs its job, now or at its turn.
    pub(crate) fn end(&mut self, of: &StreamedOutput, log_line: &[u8], line: &ProgressLine) -> Result<()> {
        let StreamedOutput { at, waiting } = *of;
        match (&mut self.queue, waiting) {
            (Some(queue), Some(mut region)) => {
                queue.append(&mut region, WaitingPart::LogLine, log_line)?;
                queue.put_region(at, region);
            }
            (queue, _) => {
                line.aside(|| {
                    self.streams.write(WaitingPart::LogLine, log_line)?;
                    self.streams.end()
                })?;
                queue.iter_mut().for_each(|queue| queue.pass(at));
            }
        }
        self.print_waiting(false, line)
    }

    /// Prints all waiting outputs, even if outputs between them are missing.
    pub(crate) fn finish(&mut self, line: &ProgressLine) -> Result<()> {
        self.print_waiting(true, line)
    }

    fn print_waiting(&mut self, skips: bool, line: &ProgressLine) -> Result<()> {
        let (streams, Some(queue)) = (&mut self.streams, &mut self.queue) else { return Ok(()) };
        while queue.write_next(skips, |part, bytes| line.aside(|| streams.write(part, bytes)))? {
            if !streams.are_ended() {
                line.aside(|| streams.end())?;
            }
        }
        Ok(())
    }

    /// Returns true if so much output waits that agx should submit no more jobs.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.as_ref().is_some_and(ReorderBuffer::is_full)
    }

    /// Returns true if output of job `at` would be printed at once.
    pub(crate) fn is_turn_of(&self, at: u64) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.is_next(at))
    }
}

impl Drop for Printer {
    /// Prints and logs the waiting outputs, because their jobs have ended. Errors are ignored.
    fn drop(&mut self) {
        let (streams, Some(queue)) = (&mut self.streams, &mut self.queue) else { return };
        while queue.write_next(true, |part, bytes| streams.write(part, bytes)).is_ok_and(|more| more)
            && streams.end().is_ok()
        {}
    }
}

impl PrintedStreams {
    fn new(output: OutputFormat, joblog: Option<JobLog>) -> Self {
        let [stdout, stderr] =
            [OutputStream::Stdout, OutputStream::Stderr].map(|stream| output.stream(stream));
        Self { output, stdout, stderr, joblog, broken: None }
    }

    fn write(&mut self, part: WaitingPart, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match part {
            WaitingPart::Stream(OutputStream::Stdout) => {
                self.stdout.write(bytes)?;
                self.output.flush()?;
            }
            WaitingPart::Stream(OutputStream::Stderr) => {
                // The stdout of a job ends before its stderr.
                self.stdout.end()?;
                // A closed stderr is not an error.
                drop(self.stderr.write(bytes));
            }
            WaitingPart::LogLine => {
                self.end()?;
                let added = self.joblog.as_mut().map_or(Ok(()), |joblog| joblog.add(bytes));
                if let Err(failure) = added {
                    // The map ends, and prints the jobs that have ended.
                    (self.joblog, self.broken) = (None, Some(failure));
                }
            }
        }
        Ok(())
    }

    fn are_ended(&self) -> bool {
        self.stdout.is_ended() && self.stderr.is_ended()
    }

    /// Ends the output of a job.
    fn end(&mut self) -> Result<()> {
        self.stdout.end()?;
        drop(self.stderr.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Grouping, JobLog, OutputFormat, PrintedStreams, Printer, ProgressLine, ReorderBuffer};
    use crate::map::reorder_buffer::JobOutputText;

    #[test]
    fn printer_logs_a_job_when_its_output_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = ProgressLine::hidden(OutputFormat::default());
        let logged = || std::fs::read_to_string(&path).unwrap().lines().skip(1).collect::<String>();
        let text =
            |log_line: &[u8]| JobOutputText { log_line: log_line.to_vec(), ..JobOutputText::default() };
        let printer = |grouping| {
            let joblog = JobLog::open(&path, false).unwrap();
            Printer::new(OutputFormat::default(), grouping, Some(joblog))
        };
        let mut in_order = printer(Grouping::InOrder);
        in_order.print(1, text(b"b\n"), &line).unwrap();
        let large = in_order.begin(2);
        in_order.end(&large, b"c\n", &line).unwrap();
        assert_eq!(logged(), "", "the output before it is missing");
        let first = in_order.begin(0);
        in_order.end(&first, b"a\n", &line).unwrap();
        assert_eq!(logged(), "abc");
        in_order.print(4, text(b"e\n"), &line).unwrap();
        assert_eq!(logged(), "abc");
        drop(in_order);
        assert_eq!(logged(), "abce", "the last outputs are printed even if outputs before are missing");
        for grouping in [Grouping::AsJobsEnd, Grouping::Lines] {
            let mut printer = printer(grouping);
            printer.print(1, text(b"b\n"), &line).unwrap();
            let large = printer.begin(0);
            printer.end(&large, b"a\n", &line).unwrap();
            assert_eq!(logged(), "ba", "{grouping:?}");
        }
    }

    #[test]
    fn printer_is_full_until_the_turn_of_the_next_output() {
        let mut queue = ReorderBuffer::bounded(4);
        let text = |bytes| JobOutputText { stdout: vec![b'x'; bytes], ..JobOutputText::default() };
        queue.put(2, text(4)).unwrap();
        let streams = PrintedStreams::new(OutputFormat::default(), None);
        let mut printer = Printer { streams, queue: Some(queue), is_silent: false };
        assert!(!printer.is_full());
        printer.queue.as_mut().unwrap().put(3, text(1)).unwrap();
        assert_eq!((printer.is_full(), printer.is_turn_of(1), printer.is_turn_of(0)), (true, false, true));
        // The drop would print the waiting output.
        printer.queue = None;
    }
}
