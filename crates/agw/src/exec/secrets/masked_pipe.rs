//! Pipe for the output of a task that has secrets: a relay thread masks the secrets, and writes to
//! the spool file. Results, uploads, live output and later tasks, which read the spool file,
//! therefore never have secrets.

use std::{
    fs::File,
    io::{self, PipeReader, Read, Write},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use super::masker::{Masker, Patterns};
use crate::exec::relay_pool;

/// Maximum number of bytes of one read: the default capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Reason for which the output of a task may lack something.
const HELD_OPEN: &str = "a process that the task has left behind may hold its output open, because agw has not masked all of it in time: \
    redirect the output of that process";

/// Relay between a task and its spool file.
pub(crate) struct MaskRelay(oneshot::Receiver<io::Result<()>>);

impl MaskRelay {
    /// Waits at most `timeout_after` for the end: an escaped process may keep the pipe open. An
    /// error means that the file may lack output of the task.
    pub(crate) async fn end(self, timeout_after: Duration) -> io::Result<()> {
        match timeout(timeout_after, self.0).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panicked)) => Err(io::Error::other("the relay of its output has ended")),
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, HELD_OPEN)),
        }
    }
}

/// Returns the end of a pipe for a task, whose masked bytes go to `file`.
pub(crate) fn masked_pipe(file: File, patterns: Arc<Patterns>) -> io::Result<(OwnedFd, MaskRelay)> {
    let (source, from_task) = io::pipe()?;
    let (end, over) = oneshot::channel();
    relay_pool::run(move || {
        let outcome = relay(source, file, Masker::new(patterns));
        // The receiver may have stopped waiting.
        let _unwanted = end.send(outcome);
    })?;
    Ok((from_task.into(), MaskRelay(over)))
}

/// Masks all bytes until the writer has gone. After an error, the writer gets SIGPIPE.
fn relay(mut source: PipeReader, mut file: File, mut masker: Masker) -> io::Result<()> {
    let (mut buffer, mut masked) = (vec![0; CHUNK], Vec::with_capacity(CHUNK));
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                masker.push(&buffer[..read], &mut masked);
                file.write_all(&masked)?;
                masked.clear();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    masker.end(&mut masked);
    file.write_all(&masked)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Seek, Write},
        sync::Arc,
        time::Duration,
    };

    use super::{Patterns, masked_pipe};

    const LONG: Duration = Duration::from_secs(60);

    fn patterns() -> Arc<Patterns> {
        Arc::new(Patterns::of([&b"s3cret-key"[..]].into_iter()))
    }

    #[tokio::test]
    async fn secrets_are_masked_across_reads() {
        let mut file = tempfile::tempfile().unwrap();
        let (from_task, relay) = masked_pipe(file.try_clone().unwrap(), patterns()).unwrap();
        let mut from_task = File::from(from_task);
        let filler = "x".repeat(65_531);
        let text = format!("{filler}s3cret-key{filler}");
        let writer = tokio::task::spawn_blocking(move || from_task.write_all(text.as_bytes()));
        writer.await.unwrap().unwrap();
        relay.end(LONG).await.unwrap();
        let mut written = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut written).unwrap();
        assert!(written == format!("{filler}***{filler}"), "{} bytes", written.len());
    }

    #[tokio::test]
    async fn relay_that_does_not_end_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let (_held_open, relay) = masked_pipe(file, patterns()).unwrap();
        let error = relay.end(Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("may hold its output open"), "{error}");
    }

    #[tokio::test]
    async fn relay_says_that_the_file_cannot_be_written() {
        let read_only = File::open("/dev/null").unwrap();
        let (from_task, relay) = masked_pipe(read_only, patterns()).unwrap();
        File::from(from_task).write_all(b"abc").unwrap();
        assert!(relay.end(LONG).await.is_err());
    }
}
