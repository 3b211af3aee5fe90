//! Reorder buffer: output that waits for its turn. The output stays in memory up to a bound, and
//! goes to an unnamed temporary file beyond the bound.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

use agenix_protocol::blob::OutputStream;

use crate::{error::Result, util::temp_file};

/// Maximum number of waiting bytes in memory.
const MAX_IN_MEMORY: usize = 16 * 1024 * 1024;
/// Numbers of waiting bytes and of waiting jobs beyond which agx submits no more jobs.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024 * 1024;
const MAX_JOBS: usize = 1_000_000;
/// Number of bytes that are read from the file at once.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Output of a job as agx prints it, and the line of the joblog that follows the output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JobOutputText {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) log_line: Vec<u8>,
}

/// Part of the text of a job that waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitingPart {
    Stream(OutputStream),
    LogLine,
}

impl JobOutputText {
    /// Returns the parts in the order in which they are written.
    pub(crate) fn parts(&self) -> [(WaitingPart, &[u8]); 3] {
        [
            (WaitingPart::Stream(OutputStream::Stdout), &self.stdout),
            (WaitingPart::Stream(OutputStream::Stderr), &self.stderr),
            (WaitingPart::LogLine, &self.log_line),
        ]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// Output that waits for its turn.
#[derive(Debug)]
enum BufferedOutput {
    InMemory(JobOutputText),
    InFile(FileRegion),
}

/// Output of a job in the file: its stdout, behind that its stderr, and its line of the joblog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileRegion {
    from: u64,
    stdout: u64,
    stderr: u64,
    log_line: u64,
}

impl FileRegion {
    fn len(&self) -> u64 {
        self.stdout + self.stderr + self.log_line
    }
}

impl BufferedOutput {
    fn len(&self) -> u64 {
        match self {
            Self::InMemory(text) => text.len() as u64,
            Self::InFile(region) => region.len(),
        }
    }
}

/// Waiting outputs, by the index of their job.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    /// Number of waiting bytes beyond which the buffer is full.
    most_bytes: u64,
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

impl Default for ReorderBuffer {
    fn default() -> Self {
        Self::bounded(MAX_BYTES)
    }
}

impl ReorderBuffer {
    /// Creates a buffer that is full beyond `most_bytes` waiting bytes.
    pub(crate) fn bounded(most_bytes: u64) -> Self {
        Self {
            most_bytes,
            next: 0,
            waiting: BTreeMap::new(),
            in_memory: 0,
            bytes: 0,
            file: None,
            in_file: 0,
            end: 0,
        }
    }

    pub(crate) fn put(&mut self, at: u64, text: JobOutputText) -> Result<()> {
        let is_much = self.in_memory + text.len() > MAX_IN_MEMORY && at != self.next;
        if is_much {
            let mut region = self.begin();
            for (part, bytes) in text.parts() {
                self.append(&mut region, part, bytes)?;
            }
            self.put_region(at, region);
        } else {
            self.in_memory += text.len();
            self.insert(at, BufferedOutput::InMemory(text));
        }
        Ok(())
    }

    /// Begins a region at the end of the file. No other region may begin before the region is put.
    pub(crate) fn begin(&self) -> FileRegion {
        FileRegion { from: self.end, stdout: 0, stderr: 0, log_line: 0 }
    }

    /// Appends bytes to a region, whose parts come in the order of [`JobOutputText::parts`].
    pub(crate) fn append(&mut self, region: &mut FileRegion, part: WaitingPart, bytes: &[u8]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temp_file::create()?),
        };
        file.write_all_at(bytes, self.end).map_err(|error| temp_file::failed(&error))?;
        self.end += bytes.len() as u64;
        let length = match part {
            WaitingPart::Stream(OutputStream::Stdout) => &mut region.stdout,
            WaitingPart::Stream(OutputStream::Stderr) => &mut region.stderr,
            WaitingPart::LogLine => &mut region.log_line,
        };
        *length += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn put_region(&mut self, at: u64, region: FileRegion) {
        self.in_file += 1;
        self.insert(at, BufferedOutput::InFile(region));
    }

    fn insert(&mut self, at: u64, output: BufferedOutput) {
        self.bytes += output.len();
        self.waiting.insert(at, output);
    }

    /// Returns true if output `at` is the next one.
    pub(crate) fn is_next(&self, at: u64) -> bool {
        at == self.next
    }

    /// Notes that output `at` was printed without waiting.
    pub(crate) fn pass(&mut self, at: u64) {
        self.next = at + 1;
    }

    /// Writes the next output if it is there, or with `skips` the first output that is there.
    /// Returns false if there is no such output.
    pub(crate) fn write_next(
        &mut self,
        skips: bool,
        mut write: impl FnMut(WaitingPart, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Some(first) = self.waiting.first_entry() else { return Ok(false) };
        let at = *first.key();
        if at != self.next && !skips {
            return Ok(false);
        }
        let output = first.remove();
        self.next = at + 1;
        self.bytes -= output.len();
        let written = match output {
            BufferedOutput::InMemory(text) => {
                self.in_memory -= text.len();
                text.parts().into_iter().try_for_each(|(part, bytes)| write(part, bytes))
            }
            BufferedOutput::InFile(region) => {
                self.in_file -= 1;
                self.write_region(region, write)
            }
        };
        // The file is emptied, because no waiting output needs it.
        if self.in_file == 0
            && self.end > 0
            && let Some(file) = &mut self.file
        {
            file.set_len(0)?;
            self.end = 0;
        }
        written.map(|()| true)
    }

    fn write_region(
        &self,
        region: FileRegion,
        mut write: impl FnMut(WaitingPart, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut from = region.from;
        let parts = [
            (WaitingPart::Stream(OutputStream::Stdout), region.stdout),
            (WaitingPart::Stream(OutputStream::Stderr), region.stderr),
            (WaitingPart::LogLine, region.log_line),
        ];
        for (part, length) in parts {
            let end = from + length;
            while from < end {
                let length = (end - from).min(CHUNK_BYTES);
                let mut chunk = vec![0; usize::try_from(length).unwrap_or_default()];
                file.read_exact_at(&mut chunk, from)?;
                write(part, &chunk)?;
                from += length;
            }
        }
        Ok(())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.max(self.end) > self.most_bytes || self.waiting.len() > MAX_JOBS
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::blob::OutputStream;

    use super::{JobOutputText, MAX_IN_MEMORY, ReorderBuffer, WaitingPart};

    const STDOUT: WaitingPart = WaitingPart::Stream(OutputStream::Stdout);
    const STDERR: WaitingPart = WaitingPart::Stream(OutputStream::Stderr);

    fn text(stdout: &[u8]) -> JobOutputText {
        JobOutputText { stdout: stdout.to_vec(), stderr: b"e".to_vec(), log_line: b"l\n".to_vec() }
    }

    /// Returns the next output, or the first one with `skips`.
    fn take(queue: &mut ReorderBuffer, skips: bool) -> Option<JobOutputText> {
        let mut text = JobOutputText::default();
        let write = |part, bytes: &[u8]| {
            match part {
                WaitingPart::Stream(OutputStream::Stdout) => text.stdout.extend(bytes),
                WaitingPart::Stream(OutputStream::Stderr) => text.stderr.extend(bytes),
                WaitingPart::LogLine => text.log_line.extend(bytes),
            }
            Ok(())
        };
        queue.write_next(skips, write).unwrap().then_some(text)
    }

    #[test]
    fn reorder_buffer_keeps_the_order_of_the_inputs() {
        let mut queue = ReorderBuffer::default();
        queue.put(1, text(b"b")).unwrap();
        assert_eq!(take(&mut queue, false), None, "the first is missing");
        queue.put(0, text(b"a")).unwrap();
        assert_eq!(take(&mut queue, false), Some(text(b"a")));
        assert_eq!(take(&mut queue, false), Some(text(b"b")));
        assert_eq!(take(&mut queue, false), None);
        queue.put(3, text(b"d")).unwrap();
        assert_eq!(take(&mut queue, false), None);
        assert_eq!(take(&mut queue, true), Some(text(b"d")), "what is missing is passed over");
    }

    #[test]
    fn reorder_buffer_spills_output_to_a_file_and_empties_it() {
        let mut queue = ReorderBuffer::default();
        let much = |byte: u8| text(&vec![byte; MAX_IN_MEMORY / 2]);
        for (at, byte) in [(1, b'b'), (2, b'c'), (3, b'd'), (4, b'e')] {
            queue.put(at, much(byte)).unwrap();
        }
        assert!(queue.in_memory <= MAX_IN_MEMORY && queue.end > 0);
        queue.put(0, much(b'a')).unwrap();
        for byte in *b"abcde" {
            assert_eq!(take(&mut queue, false), Some(much(byte)));
        }
        assert_eq!((queue.in_memory, queue.bytes, queue.end), (0, 0, 0));
    }

    #[test]
    fn reorder_buffer_empties_the_file_while_output_waits_in_memory() {
        let mut queue = ReorderBuffer::default();
        let much = |byte: u8| text(&vec![byte; MAX_IN_MEMORY - 10]);
        queue.put(1, much(b'b')).unwrap();
        queue.put(2, much(b'c')).unwrap();
        queue.put(0, text(b"a")).unwrap();
        assert!(queue.in_file == 1 && queue.end > 0);
        assert_eq!(take(&mut queue, false), Some(text(b"a")));
        assert_eq!(take(&mut queue, false), Some(much(b'b')));
        queue.put(4, text(b"e")).unwrap();
        assert_eq!(take(&mut queue, false), Some(much(b'c')));
        assert_eq!((queue.in_file, queue.end, queue.waiting.len()), (0, 0, 1));
    }

    #[test]
    fn reorder_buffer_takes_a_region_in_chunks() {
        let mut queue = ReorderBuffer::default();
        let mut region = queue.begin();
        for chunk in [&b"ab"[..], b"cd"] {
            queue.append(&mut region, STDOUT, chunk).unwrap();
        }
        queue.append(&mut region, STDERR, b"e").unwrap();
        queue.append(&mut region, WaitingPart::LogLine, b"l\n").unwrap();
        queue.put_region(1, region);
        assert_eq!((queue.bytes, take(&mut queue, false)), (7, None));
        assert!(queue.is_next(0));
        queue.pass(0);
        assert_eq!(take(&mut queue, false), Some(text(b"abcd")));
        assert_eq!((queue.bytes, queue.end), (0, 0));
    }

    /// Puts `bytes` bytes of large output of job `at` into the file.
    fn put_large(queue: &mut ReorderBuffer, at: u64, bytes: usize) {
        let mut region = queue.begin();
        queue.append(&mut region, STDOUT, &vec![b'x'; bytes]).unwrap();
        queue.put_region(at, region);
    }

    #[test]
    fn reorder_buffer_is_full_one_byte_beyond_its_bound() {
        let mut queue = ReorderBuffer::bounded(10);
        put_large(&mut queue, 1, 6);
        put_large(&mut queue, 2, 4);
        assert!(!queue.is_full(), "at the bound");
        queue.put(3, JobOutputText { stdout: b"y".to_vec(), ..JobOutputText::default() }).unwrap();
        assert!(queue.is_full(), "one byte beyond it");
        queue.pass(0);
        assert!(take(&mut queue, false).is_some_and(|text| text.stdout == b"xxxxxx"));
        assert_eq!((queue.bytes, queue.end), (5, 10), "the file keeps its length for job 2");
        assert!(!queue.is_full());
    }

    #[test]
    fn reorder_buffer_counts_the_file_until_it_is_emptied() {
        let mut queue = ReorderBuffer::bounded(10);
        put_large(&mut queue, 1, 10);
        put_large(&mut queue, 2, 1);
        assert!(queue.is_full());
        queue.pass(0);
        assert!(take(&mut queue, false).is_some());
        assert!(queue.bytes == 1 && queue.is_full(), "the disk is still in use");
        assert!(take(&mut queue, false).is_some());
        assert!(queue.end == 0 && !queue.is_full());
    }
}
