//! File that the process of a client has open. agq reads it through `/proc` (proc_pid_fd(5)), which
//! saves the copies through a socket.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use agenix_protocol::request::OpenFile;
use agenix_rules::rejection::Rejection;
use bytes::Bytes;
use rustix::process::Pid;
use tokio::task::spawn_blocking;

use crate::blobs::uploads::Upload;

/// Number of bytes that are read at once, so few that they stay in the cache of the processor until
/// they are written.
const CHUNK_BYTES: u64 = 256 * 1024;

/// Reason why no file can be read without [`crate::app::Caller::process`].
pub(super) const NO_PROCESS: &str = "the client is not a process of the user of agq on a Unix socket";

/// Open file of another process.
#[derive(Debug, Clone)]
pub(super) struct PeerFile {
    file: Arc<File>,
    /// Number of bytes of the file, if agq may keep the file.
    adoptable: Option<u64>,
}

impl PeerFile {
    /// Opens the file. The error is [`Rejection::UnreadableFile`] if the client is not on a Unix
    /// socket, runs as another user or in another PID namespace, or has another file open under
    /// the descriptor, and on systems other than Linux.
    pub(super) async fn open(process: Option<Pid>, file: OpenFile) -> Result<Self, Rejection> {
        let Some(process) = process else {
            return Err(Rejection::UnreadableFile(NO_PROCESS.into()));
        };
        let opened = spawn_blocking(move || opened(process, file)).await.map_err(io::Error::other);
        let opened = opened.and_then(|opened| opened);
        opened.map_err(|error| unreadable(&error))
    }

    /// Returns the file and its number of bytes, if agq may keep the file.
    pub(super) fn adoptable(&self) -> Option<(&Arc<File>, u64)> {
        self.adoptable.map(|bytes| (&self.file, bytes))
    }

    /// Reads the next bytes from `offset`, at most to `end`. Returns no bytes at the end of the
    /// file.
    pub(super) async fn read(&self, offset: u64, end: u64) -> Result<Bytes, Rejection> {
        let length = usize::try_from(end.saturating_sub(offset).min(CHUNK_BYTES)).unwrap_or_default();
        let file = Arc::clone(&self.file);
        let read = spawn_blocking(move || {
            let mut bytes = vec![0; length];
            let count = file.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            Ok::<_, io::Error>(Bytes::from(bytes))
        });
        read.await.map_err(io::Error::other).and_then(|read| read).map_err(|error| unreadable(&error))
    }

    /// Returns an upload with the following bytes up to `end`, which are not written.
    pub(super) async fn add_to(&self, mut upload: Upload, end: u64) -> Result<Upload, Rejection> {
        let file = Arc::clone(&self.file);
        let added = spawn_blocking(move || {
            let mut bytes = vec![0; usize::try_from(CHUNK_BYTES).unwrap_or_default()];
            loop {
                let left = usize::try_from(end.saturating_sub(upload.length)).unwrap_or(usize::MAX);
                let most = left.min(bytes.len());
                let count = file.read_at(&mut bytes[..most], upload.length)?;
                if count == 0 {
                    return Ok(upload);
                }
                upload.add(&bytes[..count]);
            }
        });
        added.await.map_err(io::Error::other).and_then(|added| added).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &io::Error) -> Rejection {
    Rejection::UnreadableFile(error.to_string())
}

#[cfg(target_os = "linux")]
fn opened(process: Pid, expected: OpenFile) -> io::Result<PeerFile> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{FileType, OFlags, fstat};

    let path = format!("/proc/{}/fd/{}", process.as_raw_pid(), expected.descriptor);
    // The open of a pipe would wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    if (stat.st_dev, stat.st_ino) != (expected.device, expected.inode) {
        return Err(io::Error::other("the descriptor is that of another file"));
    }
    let adoptable = expected.may_be_kept.then(|| u64::try_from(stat.st_size).unwrap_or_default());
    Ok(PeerFile { file: Arc::new(file), adoptable })
}

#[cfg(not(target_os = "linux"))]
fn opened(_: Pid, _: OpenFile) -> io::Result<PeerFile> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::MetadataExt};

    use agenix_protocol::request::OpenFile;
    use rustix::{
        fs::{CWD, FileType, Mode, OFlags, mknodat},
        process::getpid,
    };

    use super::{CHUNK_BYTES, PeerFile};

    #[tokio::test]
    async fn file_of_a_process_is_read_in_chunks() {
        let file = tempfile::tempfile().unwrap();
        let bytes = vec![7; CHUNK_BYTES as usize + 3];
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        let (descriptor, metadata) = (file.as_raw_fd().cast_unsigned(), file.metadata().unwrap());
        let (device, inode) = (metadata.dev(), metadata.ino());
        let open = OpenFile { descriptor, device, inode, may_be_kept: false };
        let read = PeerFile::open(Some(getpid()), open).await.unwrap();
        let end = bytes.len() as u64;
        assert_eq!(read.read(0, end).await.unwrap(), bytes[3..]);
        assert_eq!(read.read(CHUNK_BYTES, end).await.unwrap(), bytes[..3]);
        assert_eq!(read.read(end - 2, end - 1).await.unwrap().len(), 1);
        assert!(read.read(end, end).await.unwrap().is_empty());
        let refusal = async |process, open| PeerFile::open(process, open).await.unwrap_err().to_string();
        let other = OpenFile { inode: open.inode + 1, ..open };
        let text = "Unreadable file: the descriptor is that of another file";
        assert_eq!(refusal(Some(getpid()), other).await, text);
        assert!(refusal(None, open).await.contains("not a process of the user of agq"));
        // Nobody writes to this pipe.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fifo = rustix::fs::open(&path, OFlags::NONBLOCK | OFlags::RDONLY, Mode::empty()).unwrap();
        let of_fifo = OpenFile { descriptor: fifo.as_raw_fd().cast_unsigned(), ..open };
        assert!(refusal(Some(getpid()), of_fifo).await.contains("it is not a regular file"));
        drop(file);
        assert!(
            PeerFile::open(Some(getpid()), open).await.is_err(),
            "the descriptor is closed, or that of another file"
        );
    }
}
