//! Prints the output of jobs as they end, or in the order of the inputs.

use agenix_protocol::blob::OutputStream;

use crate::{
    error::Result,
    map::{
        live::Grouping,
        reorder_buffer::{FileRegion, JobOutputText, ReorderBuffer},
    },
    output::Output,
    util::terminal_stream::TerminalStream,
    watch::progress::ProgressLine,
};

/// Output of a job that comes in pieces. Its stderr comes after its stdout.
#[derive(Debug)]
pub(crate) struct PieceByPiece {
    at: u64,
    /// Region of the reorder buffer, if the output has to wait for its turn.
    waiting: Option<FileRegion>,
}

/// Stdout and stderr of agx. They print the output of one job at a time.
#[derive(Debug)]
struct PrintedStreams {
    output: Output,
    stdout: TerminalStream,
    stderr: TerminalStream,
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
    pub(crate) fn new(output: Output, grouping: Grouping) -> Self {
        let queue = (grouping == Grouping::InOrder).then(ReorderBuffer::default);
        Self { streams: PrintedStreams::new(output), queue, is_silent: grouping.is_live() }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Prints the output of the job with index `at`, now or at its turn.
    pub(crate) fn print(&mut self, at: u64, text: JobOutputText, line: &ProgressLine) -> Result<()> {
        if self.is_silent {
            return Ok(());
        }
        let Some(queue) = &mut self.queue else {
            return line.aside(|| {
                self.streams.write(OutputStream::Stdout, &text.stdout)?;
                self.streams.write(OutputStream::Stderr, &text.stderr)?;
                self.streams.end()
            });
        };
        queue.put(at, text)?;
        self.print_waiting(false, line)
    }

    /// Begins to print output that comes in pieces. It must end before any other output.
    pub(crate) fn begin(&self, at: u64) -> PieceByPiece {
        let queue = self.queue.as_ref().filter(|queue| !queue.is_next(at));
        PieceByPiece { at, waiting: queue.map(ReorderBuffer::begin) }
    }

    pub(crate) fn print_piece(
        &mut self,
        of: &mut PieceByPiece,
        stream: OutputStream,
        bytes: &[u8],
        line: &ProgressLine,
    ) -> Result<()> {
        match (&mut of.waiting, &mut self.queue) {
            _ if self.is_silent => Ok(()),
            (Some(region), Some(queue)) => Ok(queue.append(region, stream, bytes)?),
            _ => line.aside(|| self.streams.write(stream, bytes)),
        }
    }

    pub(crate) fn end(&mut self, of: &PieceByPiece, line: &ProgressLine) -> Result<()> {
        let PieceByPiece { at, waiting } = *of;
        if waiting.is_none() {
            line.aside(|| self.streams.end())?;
        }
        let Some(queue) = &mut self.queue else { return Ok(()) };
        match waiting {
            Some(region) => queue.put_region(at, region),
            None => queue.pass(at),
        }
        self.print_waiting(false, line)
    }

    /// Prints all waiting outputs, even if outputs between them are missing.
    pub(crate) fn finish(&mut self, line: &ProgressLine) -> Result<()> {
        self.print_waiting(true, line)
    }

    fn print_waiting(&mut self, skips: bool, line: &ProgressLine) -> Result<()> {
        let (streams, Some(queue)) = (&mut self.streams, &mut self.queue) else { return Ok(()) };
        while queue.write_next(skips, |stream, bytes| line.aside(|| streams.write(stream, bytes)))? {
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
    /// Prints the waiting outputs, because the joblog has these jobs as done. Errors are ignored.
    fn drop(&mut self) {
        let (streams, Some(queue)) = (&mut self.streams, &mut self.queue) else { return };
        while queue.write_next(true, |stream, bytes| streams.write(stream, bytes)).is_ok_and(|more| more)
            && streams.end().is_ok()
        {}
    }
}

impl PrintedStreams {
    fn new(output: Output) -> Self {
        let [stdout, stderr] =
            [OutputStream::Stdout, OutputStream::Stderr].map(|stream| output.stream(stream));
        Self { output, stdout, stderr }
    }

    fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match stream {
            OutputStream::Stdout => {
                self.stdout.write(bytes)?;
                self.output.flush()?;
            }
            OutputStream::Stderr => {
                // The stdout of a job ends before its stderr.
                self.stdout.end()?;
                // A closed stderr is not an error.
                drop(self.stderr.write(bytes));
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
    use super::{Output, PrintedStreams, Printer, ReorderBuffer};
    use crate::map::reorder_buffer::JobOutputText;

    #[test]
    fn printer_is_full_until_the_turn_of_the_next_output() {
        let mut queue = ReorderBuffer::bounded(4);
        let text = |bytes| JobOutputText { stdout: vec![b'x'; bytes], stderr: Vec::new() };
        queue.put(2, text(4)).unwrap();
        let mut printer =
            Printer { streams: PrintedStreams::new(Output::default()), queue: Some(queue), is_silent: false };
        assert!(!printer.is_full());
        printer.queue.as_mut().unwrap().put(3, text(1)).unwrap();
        assert_eq!((printer.is_full(), printer.is_turn_of(1), printer.is_turn_of(0)), (true, false, true));
        // The drop would print what waits.
        printer.queue = None;
    }
}
