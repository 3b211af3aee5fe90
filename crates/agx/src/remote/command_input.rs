//! Stdin of a command that runs as a job: small text goes into the input of the job, and anything
//! else to agq as a blob.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, FileTypeExt},
    },
    time::Duration,
};

use agenix_client::ClientError;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    byte_escape::has_escapes,
    errors::ErrorKind,
    ids::ActionId,
};
use bytes::Bytes;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    remote::retrying_client::RetryingClient,
};

/// Maximum number of bytes of text in the input of a job.
const MAX_TEXT_BYTES: u64 = 64 * 1024;
/// Number of bytes of a chunk.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Maximum number of uploads from the beginning, after agq has lost the earlier ones.
const MAX_UPLOADS: u32 = 10;
/// Maximum number of repeated requests to end an upload, and the pause before each.
const MAX_COMMITS: u32 = 100;
const PAUSE: Duration = Duration::from_secs(1);
/// Time after which the user is told that agx waits for the end of stdin.
const WAIT_NOTED_AFTER: Duration = Duration::from_secs(2);

/// Stdin of a command.
#[derive(Debug)]
pub(crate) enum CommandInput {
    /// Stdin is a terminal or a device, or has no bytes.
    Empty,
    Text(String),
    File(InputFile),
}

/// Bytes of a file from an offset.
#[derive(Debug)]
pub(crate) struct InputFile {
    file: File,
    start: u64,
    length: u64,
}

impl CommandInput {
    /// Reads stdin to its end, unless it is a terminal or another device. A pipe is copied to a
    /// temporary file, because agx may have to send it again.
    pub(crate) async fn read(output: OutputFormat) -> Result<Self> {
        let (send, mut received) = oneshot::channel();
        // A read of a pipe cannot be cancelled, and must not delay the exit of agx.
        std::thread::spawn(move || send.send(read_now()));
        let read = match timeout(WAIT_NOTED_AFTER, &mut received).await {
            Ok(read) => read,
            Err(_) => {
                output.note(
                    "agx: the command gets stdin, and agx waits for its end; < /dev/null gives it none",
                );
                received.await
            }
        };
        let read = read.unwrap_or_else(|_| Err(io::Error::other("its reader has ended")));
        read.map_err(|error| CliError::usage(format!("stdin cannot be read: {error}"), "give it with < FILE"))
    }
}

fn read_now() -> io::Result<CommandInput> {
    read_all(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn read_all(mut file: File) -> io::Result<CommandInput> {
    let (kind, length) = (file.metadata()?.file_type(), file.metadata()?.len());
    // The length of a file of /proc is 0, whatever the file contains.
    let start = if kind.is_file() && length > 0 {
        file.stream_position()?
    } else if kind.is_file() || kind.is_fifo() || kind.is_socket() {
        let mut copy = tempfile::tempfile()?;
        io::copy(&mut file, &mut copy)?;
        file = copy;
        0
    } else {
        return Ok(CommandInput::Empty);
    };
    let length = file.metadata()?.len().saturating_sub(start);
    Ok(match text(&mut file, start, length)? {
        Some(text) if text.is_empty() => CommandInput::Empty,
        Some(text) => CommandInput::Text(text),
        None => CommandInput::File(InputFile { file, start, length }),
    })
}

/// Returns the bytes as text if they are few, UTF-8, without NUL, which no input of a job may have,
/// and without characters that the worker would decode as byte escapes. The offset of the file
/// stays.
fn text(file: &mut File, start: u64, length: u64) -> io::Result<Option<String>> {
    if length > MAX_TEXT_BYTES {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(start))?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !has_escapes(text) && !text.contains('\0')))
}

impl InputFile {
    /// Sends the bytes to agq under a new name, and returns the blob.
    pub(crate) async fn upload(&self, agq: &mut RetryingClient, name: &ActionId) -> Result<BlobHash> {
        let mut failed = 0;
        loop {
            match self.upload_once(agq, name).await {
                // agq was restarted, or a reply was lost.
                Err(CliError::Rejected { what, .. }) if ErrorKind::of(&what) == ErrorKind::UploadOffset => {
                    failed += 1;
                    if failed == MAX_UPLOADS {
                        let help = "run the command again when agq runs without restarts";
                        return Err(CliError::Rejected { what, help: help.into() });
                    }
                }
                done => return done,
            }
        }
    }

    async fn upload_once(&self, agq: &mut RetryingClient, name: &ActionId) -> Result<BlobHash> {
        let (mut hash, mut offset) = (BlobHasher::default(), 0);
        while offset < self.length {
            let chunk = self.chunk(offset).map_err(|error| {
                CliError::usage(
                    format!("stdin cannot be read: {error}"),
                    "it must not change while agx reads it",
                )
            })?;
            hash.update(&chunk);
            let chunk = Bytes::from(chunk);
            agq.with_retry(async |agq| agq.write_input(name, offset, chunk.clone()).await).await?;
            offset += chunk.len() as u64;
        }
        let hash = hash.finish();
        self.commit(agq, name, hash).await?;
        Ok(hash)
    }

    /// Ends the upload. An agq with a bucket may need several requests until the bucket has it all.
    async fn commit(&self, agq: &mut RetryingClient, name: &ActionId, hash: BlobHash) -> Result<()> {
        let mut failed = 0;
        loop {
            match agq.with_retry(async |agq| agq.commit_input(name, self.length, hash).await).await {
                Err(ClientError::Rejected(text))
                    if ErrorKind::of(&text) == ErrorKind::BlobStoreFailed && failed < MAX_COMMITS =>
                {
                    failed += 1;
                    sleep(PAUSE).await;
                }
                done => return Ok(done?),
            }
        }
    }

    fn chunk(&self, offset: u64) -> io::Result<Vec<u8>> {
        let length = CHUNK_BYTES.min(self.length - offset);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.file.read_exact_at(&mut bytes, self.start + offset)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Seek, SeekFrom, Write},
    };

    use super::{CommandInput, read_all};

    #[test]
    fn command_input_is_the_rest_of_a_file() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(matches!(read_all(file.try_clone().unwrap()), Ok(CommandInput::Empty)));
        file.write_all(b"abc").unwrap();
        file.seek(SeekFrom::Start(1)).unwrap();
        let CommandInput::Text(text) = read_all(file).unwrap() else { panic!("it is text") };
        assert_eq!(text, "bc");
        assert!(matches!(read_all(File::open("/dev/null").unwrap()), Ok(CommandInput::Empty)));
    }

    #[test]
    fn command_input_is_a_file_if_an_input_of_a_job_cannot_have_its_bytes() {
        for bytes in [&b"a\0b"[..], b"\0", b"\xff", "\u{10feff}".as_bytes()] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let CommandInput::File(input) = read_all(file).unwrap() else { panic!("{bytes:?} is no text") };
            assert_eq!(input.chunk(0).unwrap(), bytes);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn command_input_is_the_content_of_a_file_without_a_length() {
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        let CommandInput::Text(text) = read_all(file).unwrap() else { panic!("it is text") };
        assert!(text.starts_with("Name:"), "{text}");
    }
}
