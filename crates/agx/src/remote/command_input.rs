//! Stdin of a command that runs as a job: small text goes into the input of the job, and anything
//! else to agq as a blob.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
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
    util::{temp_file, threads},
};

/// Maximum number of bytes of text in the input of a job.
const MAX_TEXT_BYTES: u64 = 64 * 1024;
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Maximum number of uploads from the beginning, after agq has lost the earlier ones.
const MAX_UPLOADS: u32 = 10;
/// Maximum number of repeated requests to end an upload, and the pause before each.
const MAX_COMMITS: u32 = 100;
const PAUSE: Duration = Duration::from_secs(1);
/// Time after which the user is notified that agx waits for the end of stdin.
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
    /// Reads stdin to its end, unless stdin is a terminal or another device. A pipe is copied to a
    /// temporary file if it has more than a short text, because agx may have to send it again.
    pub(crate) async fn read(output: OutputFormat) -> Result<Self> {
        let (send, mut received) = oneshot::channel();
        // A read of a pipe cannot be cancelled, and must not delay the exit of agx.
        threads::start(move || send.send(read_now()))?;
        let read = match timeout(WAIT_NOTED_AFTER, &mut received).await {
            Ok(read) => read,
            Err(_) => {
                output.note(
                    "agx: the command gets stdin, and agx waits for its end; < /dev/null gives it none",
                );
                received.await
            }
        };
        read.unwrap_or_else(|_| Err(unreadable(&io::Error::other("its reader has ended"))))
    }
}

fn unreadable(error: &io::Error) -> CliError {
    CliError::usage(format!("stdin cannot be read: {error}"), "give it with < FILE")
}

fn read_now() -> Result<CommandInput> {
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| unreadable(&error))?;
    read_all(File::from(stdin))
}

fn read_all(file: File) -> Result<CommandInput> {
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let kind = metadata.file_type();
    // The length of a file of /proc is 0, whatever the file contains.
    if kind.is_file() && metadata.len() > 0 {
        return read_file(file, metadata.len()).map_err(|error| unreadable(&error));
    }
    if kind.is_file() || kind.is_fifo() || kind.is_socket() {
        return read_stream(&file);
    }
    Ok(CommandInput::Empty)
}

/// Reads a file of `length` bytes from its offset, which stays.
fn read_file(mut file: File, length: u64) -> io::Result<CommandInput> {
    let start = file.stream_position()?;
    let length = length.saturating_sub(start);
    let mut bytes = Vec::new();
    if length <= MAX_TEXT_BYTES {
        (&file).take(length).read_to_end(&mut bytes)?;
        file.seek(SeekFrom::Start(start))?;
    }
    let text = (length <= MAX_TEXT_BYTES).then(|| text(&bytes)).flatten();
    Ok(text.unwrap_or(CommandInput::File(InputFile { file, start, length })))
}

/// Reads a stream to its end. Everything but a short text goes to a temporary file.
fn read_stream(stream: &File) -> Result<CommandInput> {
    let read = |most: u64, chunk: &mut Vec<u8>| {
        chunk.clear();
        stream.take(most).read_to_end(chunk).map_err(|error| unreadable(&error))
    };
    let mut chunk = Vec::new();
    read(MAX_TEXT_BYTES + 1, &mut chunk)?;
    if chunk.len() as u64 <= MAX_TEXT_BYTES
        && let Some(text) = text(&chunk)
    {
        return Ok(text);
    }
    let (mut file, mut length) = (temp_file::create()?, 0);
    while !chunk.is_empty() {
        file.write_all(&chunk).map_err(|error| temp_file::failed(&error))?;
        length += chunk.len() as u64;
        read(CHUNK_BYTES, &mut chunk)?;
    }
    Ok(CommandInput::File(InputFile { file, start: 0, length }))
}

/// Returns the bytes as text if they are UTF-8, without NUL, which no input of a job may have, and
/// without characters that the worker would decode as byte escapes.
fn text(bytes: &[u8]) -> Option<CommandInput> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.is_empty() {
        return Some(CommandInput::Empty);
    }
    let is_plain = !has_escapes(text) && !text.contains('\0');
    is_plain.then(|| CommandInput::Text(text.to_owned()))
}

impl InputFile {
    /// Sends the bytes to agq under a new name, and returns the blob.
    pub(crate) async fn upload(&self, agq: &mut RetryingClient, name: &ActionId) -> Result<BlobHash> {
        let mut failed = 0;
        loop {
            match self.upload_once(agq, name).await {
                // agq was restarted, or a reply was lost.
                Err(CliError::Rejected { problem, .. })
                    if ErrorKind::of(&problem) == ErrorKind::UploadOffset =>
                {
                    failed += 1;
                    if failed == MAX_UPLOADS {
                        let help = "run the command again when agq runs without restarts";
                        return Err(CliError::Rejected { problem, help: help.into() });
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

    /// Ends the upload. An agq with a bucket may need several requests until the bucket has all
    /// bytes.
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
        os::fd::OwnedFd,
        thread,
    };

    use super::{CHUNK_BYTES, CommandInput, MAX_TEXT_BYTES, read_all};

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

    /// Returns the input of a pipe with these bytes.
    fn piped(bytes: Vec<u8>) -> CommandInput {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let write = thread::spawn(move || writer.write_all(&bytes).unwrap());
        let input = read_all(File::from(OwnedFd::from(reader))).unwrap();
        write.join().unwrap();
        input
    }

    #[test]
    fn command_input_of_a_pipe_is_text_or_a_file_with_all_bytes() {
        assert!(matches!(piped(Vec::new()), CommandInput::Empty));
        let most = usize::try_from(MAX_TEXT_BYTES).unwrap();
        assert!(matches!(piped(vec![b'a'; most]), CommandInput::Text(text) if text.len() == most));
        let beyond = usize::try_from(2 * CHUNK_BYTES).unwrap();
        for bytes in [b"\xff".to_vec(), vec![b'a'; most + 1], vec![b'a'; beyond]] {
            let CommandInput::File(input) = piped(bytes.clone()) else { panic!("it is no short text") };
            assert_eq!(input.length, bytes.len() as u64);
            assert_eq!(input.chunk(0).unwrap(), &bytes[..bytes.len().min(1 << 20)]);
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
