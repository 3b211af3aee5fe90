//! Prints the output of jobs as they end, or in the order of the inputs.

use std::io::Write;

use agenix_protocol::blob::OutputStream;

use crate::{
    error::Result,
    map::{
        live::Grouping,
        reorder_buffer::{FileRegion, JobOutputText, ReorderBuffer},
    },
    output::Output,
    watch::progress::ProgressLine,
};

/// Output of a job that comes in pieces. Its stderr comes after its stdout.
#[derive(Debug)]
pub(crate) struct PieceByPiece {
    at: u64,
    /// Region of the reorder buffer, if the output has to wait for its turn.
    waiting: Option<FileRegion>,
}

#[derive(Debug)]
pub(crate) struct Printer {
    output: Output,
    /// `None` if agx prints output as it comes.
    queue: Option<ReorderBuffer>,
    /// True if output is printed elsewhere, while its job runs.
    is_silent: bool,
}

impl Printer {
    pub(crate) fn new(output: Output, grouping: Grouping) -> Self {
        let queue = (grouping == Grouping::InOrder).then(ReorderBuffer::default);
        Self { output, queue, is_silent: grouping.is_live() }
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
                write(self.output, OutputStream::Stdout, &text.stdout)?;
                write(self.output, OutputStream::Stderr, &text.stderr)
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
            _ => line.aside(|| write(self.output, stream, bytes)),
        }
    }

    pub(crate) fn end(&mut self, of: &PieceByPiece, line: &ProgressLine) -> Result<()> {
        let PieceByPiece { at, waiting } = *of;
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
        let (output, Some(queue)) = (self.output, &mut self.queue) else { return Ok(()) };
        let print = |stream, bytes: &[u8]| line.aside(|| write(output, stream, bytes));
        while queue.write_next(skips, print)? {}
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
        let (output, Some(queue)) = (self.output, &mut self.queue) else { return };
        while queue.write_next(true, |stream, bytes| write(output, stream, bytes)).is_ok_and(|more| more) {}
    }
}

fn write(output: Output, stream: OutputStream, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match stream {
        OutputStream::Stdout => {
            output.raw(bytes)?;
            output.flush()?;
        }
        // A closed stderr is not an error.
        OutputStream::Stderr => drop(std::io::stderr().lock().write_all(bytes)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Output, Printer, ReorderBuffer};
    use crate::map::reorder_buffer::JobOutputText;

    #[test]
    fn printer_is_full_until_the_turn_of_the_next_output() {
        let mut queue = ReorderBuffer::bounded(4);
        let text = |bytes| JobOutputText { stdout: vec![b'x'; bytes], stderr: Vec::new() };
        queue.put(2, text(4)).unwrap();
        let mut printer = Printer { output: Output { is_json: false }, queue: Some(queue), is_silent: false };
        assert!(!printer.is_full());
        printer.queue.as_mut().unwrap().put(3, text(1)).unwrap();
        assert_eq!((printer.is_full(), printer.is_turn_of(1), printer.is_turn_of(0)), (true, false, true));
        // The drop would print what waits.
        printer.queue = None;
    }
}
