//! The joint between two tasks that stream: two pipes, and a thread that moves the bytes from one to the other and counts
//! them. On Linux the kernel moves them (`splice`); elsewhere they are copied.

use std::io::{self, PipeReader, PipeWriter};

/// How much is moved at once; as large as a Linux pipe may be made by anyone.
const CHUNK: usize = 1024 * 1024;

/// Both ends of a joint.
pub(crate) struct Joint {
    /// The stdout of the task before.
    pub(crate) from_task: PipeWriter,
    /// The stdin of the task after.
    pub(crate) to_task: PipeReader,
    /// Says how many bytes passed, when they all have.
    pub(crate) passed: tokio::task::JoinHandle<u64>,
}

/// Makes a joint and starts moving.
pub(crate) fn joint() -> io::Result<Joint> {
    let (source, from_task) = io::pipe()?;
    let (to_task, sink) = io::pipe()?;
    widen(&source, &sink);
    let passed = tokio::task::spawn_blocking(move || relay(&source, &sink));
    Ok(Joint { from_task, to_task, passed })
}

#[cfg(target_os = "linux")]
fn widen(source: &PipeReader, sink: &PipeWriter) {
    // Where the user's pipe quota is used up, the default size works as well.
    let _narrow = rustix::pipe::fcntl_setpipe_size(source, CHUNK);
    let _narrow = rustix::pipe::fcntl_setpipe_size(sink, CHUNK);
}

#[cfg(not(target_os = "linux"))]
fn widen(_source: &PipeReader, _sink: &PipeWriter) {}

/// Moves everything until the writer is done or the reader has gone; dropping the ends tells the other side.
#[cfg(target_os = "linux")]
fn relay(source: &PipeReader, sink: &PipeWriter) -> u64 {
    use rustix::pipe::{SpliceFlags, splice};
    let mut passed = 0;
    loop {
        match splice(source, None, sink, None, CHUNK, SpliceFlags::MOVE) {
            Ok(0) => return passed,
            Ok(moved) => passed += moved as u64,
            Err(rustix::io::Errno::INTR) => {}
            // The reader has gone: the writer gets SIGPIPE, as in a shell.
            Err(_) => return passed,
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn relay(mut source: &PipeReader, mut sink: &PipeWriter) -> u64 {
    use std::io::{Read, Write};
    let (mut passed, mut buffer) = (0, vec![0; 64 * 1024]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return passed,
            Ok(read) if sink.write_all(&buffer[..read]).is_ok() => passed += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::{Joint, joint};

    #[tokio::test]
    async fn bytes_pass_and_are_counted() {
        let Joint { mut from_task, mut to_task, passed } = joint().unwrap();
        let writer = tokio::task::spawn_blocking(move || from_task.write_all(&vec![7; 3_000_000]));
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            to_task.read_to_end(&mut all).map(|_| all.len())
        });
        writer.await.unwrap().unwrap();
        assert_eq!((read.await.unwrap().unwrap(), passed.await.unwrap()), (3_000_000, 3_000_000));
    }

    #[tokio::test]
    async fn a_reader_that_goes_stops_the_writer() {
        let Joint { mut from_task, to_task, passed } = joint().unwrap();
        drop(to_task);
        let wrote = tokio::task::spawn_blocking(move || {
            loop {
                if let Err(error) = from_task.write_all(&[7; 65_536]) {
                    return error.kind();
                }
            }
        });
        assert_eq!(wrote.await.unwrap(), std::io::ErrorKind::BrokenPipe);
        passed.await.unwrap();
    }
}
