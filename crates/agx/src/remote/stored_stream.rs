//! Stored stream of a job: inline in its report, or a blob that agx fetches in chunks.

use std::{
    fs::{File, OpenOptions, TryLockError, metadata},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use agenix_protocol::{
    blob::{BlobHash, BlobHasher, OutputStream},
    documents::{CapturedOutput, JobStatus, TaskResult},
    ids::JobId,
};

use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    remote::{output_reader::OutputReader, retrying_client::RetryingClient},
    util::{
        atomic_file::{cannot_write, write_output},
        shorten::shortened,
    },
};

/// Number of bytes that are hashed at once.
const HASHED_BYTES: usize = 256 * 1024;

pub(crate) struct StoredStream<'r> {
    job_id: &'r JobId,
    stream: (u32, OutputStream),
    captured: &'r CapturedOutput,
}

impl<'r> StoredStream<'r> {
    pub(crate) fn of(job: &'r JobStatus, result: &'r TaskResult, stream: OutputStream) -> Self {
        let captured = result.stream(stream);
        Self { job_id: &job.job_id, stream: (result.task_number, stream), captured }
    }

    /// Writes all bytes to stdout.
    pub(crate) async fn print(&self, output: OutputFormat, agq: &mut RetryingClient) -> Result<()> {
        let mut out = output.stream(OutputStream::Stdout);
        if self.captured.blob.is_none() {
            out.write(&self.captured.bytes)?;
        } else {
            let mut reader = self.reader(0);
            while let Some(chunk) = reader.next(agq).await? {
                out.write(&chunk)?;
            }
        }
        Ok(out.end()?)
    }

    /// Writes all bytes to a file, which gets its name when it is complete. An interrupted download
    /// leaves `NAME.part`, and the next one continues it.
    pub(crate) async fn write(&self, dir: &Path, name: &str, agq: &mut RetryingClient) -> Result<()> {
        let Some(hash) = self.captured.blob else { return write_output(dir, name, &self.captured.bytes) };
        let part = dir.join(format!("{name}.part"));
        let failed = |error: io::Error| cannot_write(&part, &error);
        let mut file = open_locked(&part)?;
        let known = file.metadata().map_err(failed)?.len().min(self.captured.total);
        let mut written = self.append(&mut file, &part, known, agq).await?;
        if known > 0 {
            written = hash_of(&part).map_err(failed)?;
            if written != hash {
                // The part was that of another output.
                file.set_len(0).map_err(failed)?;
                written = self.append(&mut file, &part, 0, agq).await?;
            }
        }
        if written != hash {
            return Err(self.wrong_bytes(&part));
        }
        std::fs::rename(&part, dir.join(name)).map_err(failed)
    }

    /// Appends the stream from the offset `from`, and returns the hash of the appended bytes.
    async fn append(
        &self,
        file: &mut File,
        path: &Path,
        from: u64,
        agq: &mut RetryingClient,
    ) -> Result<BlobHash> {
        let (mut reader, mut hash) = (self.reader(from), BlobHasher::default());
        while let Some(chunk) = reader.next(agq).await? {
            hash.update(&chunk);
            file.write_all(&chunk).map_err(|error| cannot_write(path, &error))?;
        }
        Ok(hash.finish())
    }

    fn wrong_bytes(&self, part: &Path) -> CliError {
        let (job_id, task, stream) = (self.job_id, self.stream.0, self.stream.1.as_str());
        CliError::Jobs(format!(
            "the {stream} of task {task} of job {job_id} differs from the hash in its result: remove {} and try \
             again; if that does not help, `agq check` finds damaged outputs",
            shortened(&part.display().to_string())
        ))
    }

    fn reader(&self, from: u64) -> OutputReader {
        OutputReader::new(self.job_id, self.stream, self.captured.total, from)
    }
}

/// Opens the part of a download, and locks it, because two processes that append to it would mix
/// their bytes.
fn open_locked(part: &Path) -> Result<File> {
    let failed = |error: io::Error| cannot_write(part, &error);
    loop {
        let file = OpenOptions::new().create(true).append(true).open(part).map_err(failed)?;
        // On a file system without locks, the hash still detects mixed bytes.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let part = shortened(&part.display().to_string());
            return Err(CliError::usage(
                format!("another process is writing {part}"),
                "wait until it has ended, or choose another directory",
            ));
        }
        let own = file.metadata().map_err(failed)?;
        // Another process may have completed and renamed the file before it was locked here.
        if metadata(part).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
            return Ok(file);
        }
    }
}

fn hash_of(path: &Path) -> io::Result<BlobHash> {
    let (mut file, mut hash) = (File::open(path)?, BlobHasher::default());
    let mut bytes = vec![0; HASHED_BYTES];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hash.finish()),
            read => hash.update(&bytes[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
    };

    use super::open_locked;

    #[test]
    fn part_of_a_download_is_written_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let [part, whole] = ["0.out.part", "0.out"].map(|name| dir.path().join(name));
        let mut first = open_locked(&part).unwrap();
        let refused = open_locked(&part).unwrap_err().to_string();
        assert!(refused.contains("another process is writing"), "{refused}");
        first.write_all(b"first").unwrap();
        fs::rename(&part, &whole).unwrap();
        // The lock belongs to the file and not to its name.
        let mut second = open_locked(&part).unwrap();
        second.write_all(b"second").unwrap();
        let mut bytes = String::new();
        fs::File::open(&whole).unwrap().read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "first");
        drop(second);
        assert_eq!(open_locked(&part).unwrap().metadata().unwrap().len(), 6);
    }
}
