//! Prints the output of jobs as they end, or in the order of the inputs. Output that waits for its
//! turn stays in memory up to a bound, and goes to an unnamed temporary file beyond it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
};

use crate::{error::Result, output::Output, watch::progress::ProgressLine};

/// Maximum number of waiting bytes in memory.
const MOST_IN_MEMORY: usize = 16 * 1024 * 1024;
/// Numbers of waiting bytes and of waiting jobs beyond which agx submits no more jobs.
const MOST_BYTES: u64 = 1024 * 1024 * 1024;
const MOST_JOBS: usize = 1_000_000;

/// Output of a job as agx prints it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JobOutputText {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl JobOutputText {
    fn len(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }
}

/// Output that waits for its turn.
#[derive(Debug)]
enum BufferedOutput {
    InMemory(JobOutputText),
    /// Offset in the file, and the numbers of bytes of stdout and of stderr.
    InFile(u64, usize, usize),
}

/// Waiting outputs, by the index of their job.
#[derive(Debug, Default)]
struct ReorderBuffer {
    next: u64,
    waiting: BTreeMap<u64, BufferedOutput>,
    in_memory: usize,
    bytes: u64,
    file: Option<File>,
    /// Number of waiting outputs in the file.
    in_file: usize,
    /// Offset of the end of the file.
    end: u64,
}

impl ReorderBuffer {
    fn put(&mut self, at: u64, text: JobOutputText) -> std::io::Result<()> {
        let len = text.len();
        self.bytes += len as u64;
        let is_much = self.in_memory + len > MOST_IN_MEMORY && at != self.next;
        let waiting = if is_much {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(tempfile::tempfile()?),
            };
            let from = self.end;
            file.seek(SeekFrom::Start(from))?;
            file.write_all(&text.stdout)?;
            file.write_all(&text.stderr)?;
            self.end += len as u64;
            self.in_file += 1;
            BufferedOutput::InFile(from, text.stdout.len(), text.stderr.len())
        } else {
            self.in_memory += len;
            BufferedOutput::InMemory(text)
        };
        self.waiting.insert(at, waiting);
        Ok(())
    }

    /// Takes the next output if it is there. With `skips`, takes the first output that is there.
    fn take(&mut self, skips: bool) -> std::io::Result<Option<JobOutputText>> {
        let Some(first) = self.waiting.first_entry() else { return Ok(None) };
        let at = *first.key();
        if at != self.next && !skips {
            return Ok(None);
        }
        let text = match first.remove() {
            BufferedOutput::InMemory(text) => {
                self.in_memory -= text.len();
                text
            }
            BufferedOutput::InFile(from, stdout, stderr) => {
                self.in_file -= 1;
                let mut text = JobOutputText { stdout: vec![0; stdout], stderr: vec![0; stderr] };
                if let Some(file) = &mut self.file {
                    file.seek(SeekFrom::Start(from))?;
                    file.read_exact(&mut text.stdout)?;
                    file.read_exact(&mut text.stderr)?;
                }
                text
            }
        };
        self.next = at + 1;
        self.bytes -= text.len() as u64;
        // The file is emptied, because no waiting output needs it.
        if self.in_file == 0
            && self.end > 0
            && let Some(file) = &mut self.file
        {
            file.set_len(0)?;
            self.end = 0;
        }
        Ok(Some(text))
    }

    fn is_full(&self) -> bool {
        self.bytes.max(self.end) > MOST_BYTES || self.waiting.len() > MOST_JOBS
    }
}

#[derive(Debug)]
pub(crate) struct Printer {
    output: Output,
    /// `None` if agx prints output as it comes.
    queue: Option<ReorderBuffer>,
}

impl Printer {
    pub(crate) fn new(output: Output, is_ordered: bool) -> Self {
        Self { output, queue: is_ordered.then(ReorderBuffer::default) }
    }

    /// Prints the output of the job with index `at`, now or at its turn.
    pub(crate) fn print(&mut self, at: u64, text: JobOutputText, line: &ProgressLine) -> Result<()> {
        let Some(queue) = &mut self.queue else { return line.aside(|| write(self.output, &text)) };
        queue.put(at, text)?;
        self.print_waiting(false, line)
    }

    /// Prints all waiting outputs, even if outputs between them are missing.
    pub(crate) fn finish(&mut self, line: &ProgressLine) -> Result<()> {
        self.print_waiting(true, line)
    }

    fn print_waiting(&mut self, skips: bool, line: &ProgressLine) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while let Some(text) = queue.take(skips)? {
            line.aside(|| write(self.output, &text))?;
        }
        Ok(())
    }

    /// Returns true if so much output waits that agx should submit no more jobs.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.as_ref().is_some_and(ReorderBuffer::is_full)
    }
}

impl Drop for Printer {
    /// Prints the waiting outputs, because the joblog has these jobs as done. Errors are ignored.
    fn drop(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        while let Ok(Some(text)) = queue.take(true) {
            if write(self.output, &text).is_err() {
                return;
            }
        }
    }
}

fn write(output: Output, text: &JobOutputText) -> Result<()> {
    if !text.stdout.is_empty() {
        output.raw(&text.stdout)?;
        output.flush()?;
    }
    // A closed stderr is not an error.
    let _unread = std::io::stderr().lock().write_all(&text.stderr);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{JobOutputText, MOST_IN_MEMORY, ReorderBuffer};

    fn text(stdout: &[u8]) -> JobOutputText {
        JobOutputText { stdout: stdout.to_vec(), stderr: b"e".to_vec() }
    }

    #[test]
    fn printer_keeps_the_order_of_the_inputs() {
        let mut queue = ReorderBuffer::default();
        queue.put(1, text(b"b")).unwrap();
        assert_eq!(queue.take(false).unwrap(), None, "the first is missing");
        queue.put(0, text(b"a")).unwrap();
        assert_eq!(queue.take(false).unwrap(), Some(text(b"a")));
        assert_eq!(queue.take(false).unwrap(), Some(text(b"b")));
        assert_eq!(queue.take(false).unwrap(), None);
        queue.put(3, text(b"d")).unwrap();
        assert_eq!(queue.take(false).unwrap(), None);
        assert_eq!(queue.take(true).unwrap(), Some(text(b"d")), "what is missing is passed over");
    }

    #[test]
    fn printer_spills_waiting_output_to_a_file_and_empties_it() {
        let mut queue = ReorderBuffer::default();
        let much = |byte: u8| text(&vec![byte; MOST_IN_MEMORY / 2]);
        for (at, byte) in [(1, b'b'), (2, b'c'), (3, b'd'), (4, b'e')] {
            queue.put(at, much(byte)).unwrap();
        }
        assert!(queue.in_memory <= MOST_IN_MEMORY && queue.end > 0);
        queue.put(0, much(b'a')).unwrap();
        for byte in *b"abcde" {
            assert_eq!(queue.take(false).unwrap(), Some(much(byte)));
        }
        assert_eq!((queue.in_memory, queue.bytes, queue.end), (0, 0, 0));
    }

    #[test]
    fn printer_empties_the_file_while_output_waits_in_memory() {
        let mut queue = ReorderBuffer::default();
        let much = |byte: u8| text(&vec![byte; MOST_IN_MEMORY - 10]);
        queue.put(1, much(b'b')).unwrap();
        queue.put(2, much(b'c')).unwrap();
        queue.put(0, text(b"a")).unwrap();
        assert!(queue.in_file == 1 && queue.end > 0);
        assert_eq!(queue.take(false).unwrap(), Some(text(b"a")));
        assert_eq!(queue.take(false).unwrap(), Some(much(b'b')));
        queue.put(4, text(b"e")).unwrap();
        assert_eq!(queue.take(false).unwrap(), Some(much(b'c')));
        assert_eq!((queue.in_file, queue.end, queue.waiting.len()), (0, 0, 1));
    }
}
