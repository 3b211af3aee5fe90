//! Stored stream of a job: inline in its report, or a blob that agx fetches in pieces.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use agenix_protocol::{
    blob::{BlobHash, BlobHasher, OutputStream},
    documents::{CapturedOutput, JobStatus, TaskResult},
    ids::JobId,
};

use crate::{
    error::Result,
    output::Output,
    remote::{output_reader::OutputReader, retrying_client::RetryingClient},
    util::atomic_file::{cannot_write, write_output},
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
    pub(crate) async fn print(&self, output: Output, agq: &mut RetryingClient) -> Result<()> {
        let mut out = output.stream(OutputStream::Stdout);
        if self.captured.blob.is_none() {
            out.write(&self.captured.bytes)?;
        } else {
            let mut reader = self.reader(0);
            while let Some(piece) = reader.next(agq).await? {
                out.write(&piece)?;
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
        let mut file = OpenOptions::new().create(true).append(true).open(&part).map_err(failed)?;
        let known = file.metadata().map_err(failed)?.len();
        self.append(&mut file, &part, known.min(self.captured.total), agq).await?;
        if known > 0 && hash_of(&part).map_err(failed)? != hash {
            // The part was that of another output.
            file.set_len(0).map_err(failed)?;
            self.append(&mut file, &part, 0, agq).await?;
        }
        std::fs::rename(&part, dir.join(name)).map_err(failed)
    }

    async fn append(&self, file: &mut File, path: &Path, from: u64, agq: &mut RetryingClient) -> Result<()> {
        let mut reader = self.reader(from);
        while let Some(piece) = reader.next(agq).await? {
            file.write_all(&piece).map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    }

    fn reader(&self, from: u64) -> OutputReader {
        OutputReader::new(self.job_id, self.stream, self.captured.total, from)
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
