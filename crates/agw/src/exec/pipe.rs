//! Counted pipe between two streaming tasks: two pipes, and a relay thread that moves the bytes
//! from one to the other and counts them. On Linux the kernel moves the bytes (`splice`); elsewhere
//! the thread copies them.

use std::{
    io::{self, PipeReader, PipeWriter},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use crate::exec::relay_pool;

/// Maximum number of bytes of one move, and size of a Linux pipe of an unprivileged process.
const CHUNK: usize = 1024 * 1024;
/// Default capacity of a Linux pipe, which is enlarged only after it was full, because that is
/// slow.
#[cfg(target_os = "linux")]
const NARROW: u64 = 64 * 1024;

/// Both ends of a counted pipe.
pub(crate) struct CountedPipe {
    /// Stdout of the previous task.
    pub(crate) from_task: PipeWriter,
    /// Stdin of the next task.
    pub(crate) to_task: PipeReader,
    pub(crate) counter: PipeCounter,
}

/// Counter of the bytes that pass through the pipe.
pub(crate) struct PipeCounter {
    bytes: Arc<AtomicU64>,
    over: oneshot::Receiver<()>,
}

impl PipeCounter {
    /// Returns the number of bytes so far, which changes while tasks write.
    pub(crate) fn so_far(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Waits at most `timeout_after` for the end: an escaped process may keep the pipe open.
    pub(crate) async fn count(self, timeout_after: Duration) -> u64 {
        // The thread drops its sender at the end.
        let _over = timeout(timeout_after, self.over).await;
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Creates a counted pipe and starts its relay.
pub(crate) fn counted_pipe() -> io::Result<CountedPipe> {
    let (source, from_task) = io::pipe()?;
    let (to_task, sink) = io::pipe()?;
    let (bytes, (end, over)) = (Arc::new(AtomicU64::new(0)), oneshot::channel());
    let passed = Arc::clone(&bytes);
    relay_pool::run(move || {
        relay(&source, &sink, &passed);
        drop((source, sink));
        drop::<oneshot::Sender<()>>(end);
    })?;
    Ok(CountedPipe { from_task, to_task, counter: PipeCounter { bytes, over } })
}

#[cfg(target_os = "linux")]
fn widen(source: &PipeReader, sink: &PipeWriter) {
    // The call fails if the user's pipe quota is used up, and the default size works as well.
    let _narrow = rustix::pipe::fcntl_setpipe_size(source, CHUNK);
    let _narrow = rustix::pipe::fcntl_setpipe_size(sink, CHUNK);
}

/// Moves all bytes until the writer or the reader has gone. The caller then drops the pipe ends.
#[cfg(target_os = "linux")]
fn relay(source: &PipeReader, sink: &PipeWriter, passed: &AtomicU64) {
    use rustix::pipe::{SpliceFlags, splice};
    let mut is_wide = false;
    loop {
        match splice(source, None, sink, None, CHUNK, SpliceFlags::MOVE) {
            Ok(0) => return,
            Ok(moved) => {
                let before = passed.fetch_add(moved as u64, Ordering::Relaxed);
                if before + moved as u64 >= NARROW && !is_wide {
                    widen(source, sink);
                    is_wide = true;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // The reader has closed its end. The writer gets SIGPIPE, as in a shell.
            Err(_) => return,
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn relay(mut source: &PipeReader, mut sink: &PipeWriter, passed: &AtomicU64) {
    use std::io::{Read, Write};
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) if sink.write_all(&buffer[..read]).is_ok() => {
                drop(passed.fetch_add(read as u64, Ordering::Relaxed))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::{CountedPipe, counted_pipe};

    const LONG: std::time::Duration = std::time::Duration::from_secs(60);

    #[tokio::test]
    async fn pipe_relays_and_counts_all_bytes() {
        let CountedPipe { mut from_task, mut to_task, counter } = counted_pipe().unwrap();
        let writer = tokio::task::spawn_blocking(move || from_task.write_all(&vec![7; 3_000_000]));
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            to_task.read_to_end(&mut all).map(|_| all.len())
        });
        writer.await.unwrap().unwrap();
        assert_eq!((read.await.unwrap().unwrap(), counter.count(LONG).await), (3_000_000, 3_000_000));
    }

    #[tokio::test]
    async fn pipe_reports_a_closed_reader_to_the_writer() {
        let CountedPipe { mut from_task, to_task, counter } = counted_pipe().unwrap();
        drop(to_task);
        let wrote = tokio::task::spawn_blocking(move || {
            loop {
                if let Err(error) = from_task.write_all(&[7; 65_536]) {
                    return error.kind();
                }
            }
        });
        assert_eq!(wrote.await.unwrap(), std::io::ErrorKind::BrokenPipe);
        counter.count(LONG).await;
    }

    #[tokio::test]
    async fn pipe_count_stops_waiting_for_an_open_writer() {
        let CountedPipe { mut from_task, to_task: _kept, counter } = counted_pipe().unwrap();
        from_task.write_all(b"abc").unwrap();
        // `from_task` stands for an escaped process that holds the writing end.
        counter.count(std::time::Duration::from_millis(1)).await;
        drop(from_task);
    }
}
