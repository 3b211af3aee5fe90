//! Provenance: statements about the tasks of a job, signed by the key of this worker (ADR 27).
//!
//! agq stores the statements with the results of the tasks, and cannot change their content: the
//! command that ran, its program, its end, and the bytes of its streams.

mod key_file;
mod record;

use std::{io, os::unix::fs::FileExt, path::Path, sync::Arc};

use agenix_order::{
    DigestSet, ExitAnnotations, PublicKey, Resource, SigningKey, Statement, StreamBytes, StreamHasher,
    Subject, TaskFacts, TaskIdentity, TaskRun,
};
use agenix_protocol::{
    blob::OutputStream,
    documents::{JobDocument, TaskResult},
    ids::WorkerId,
};
use tokio::task::yield_now;
use tracing::warn;

pub(crate) use self::record::{JobRecord, TaskRecord};
use crate::exec::{live_output::LargeOutput, program_file::ProgramFiles};

/// Number of bytes that are hashed at once.
const HASHED_BYTES: usize = 256 * 1024;

/// Key of the worker, and the programs whose SHA-256 is known.
#[derive(Debug)]
pub(crate) struct ProvenanceSigner {
    key: SigningKey,
    programs: ProgramFiles,
}

/// Digest of a stream that does not fit into the report.
type LargeDigest = (u32, OutputStream, u64, DigestSet);

impl ProvenanceSigner {
    /// Reads the key in a file, which is made if it is missing.
    pub(crate) fn open(key: &Path) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self { key: key_file::open(key)?, programs: ProgramFiles::default() }))
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.key.public()
    }
}

impl JobRecord {
    /// Adds a statement to each result. `large` are the streams that do not fit into the report.
    pub(crate) async fn sign(
        &self,
        job: &JobDocument,
        worker: Option<WorkerId>,
        large: Vec<LargeOutput>,
        results: &mut [TaskResult],
    ) {
        let digests = match digests(&large).await {
            Ok(digests) => digests,
            Err(error) => {
                warn!(job_id = %job.job_id, %error, "an output cannot be read, so the job has no provenance");
                return;
            }
        };
        let input_sha256 = DigestSet::of(job.inputs.get().as_bytes()).sha256;
        let worker = worker.map(|worker| worker.to_string()).unwrap_or_default();
        for result in results {
            let identity = TaskIdentity {
                plan_id: job.plan_id.clone(),
                job_id: job.job_id.clone(),
                attempt: job.attempt,
                task_number: result.task_number,
                task_count: self.task_count,
                input_sha256: input_sha256.clone(),
            };
            let record = self.of(result.task_number);
            let facts = facts(identity, record, worker.clone(), result, &digests);
            result.provenance = Some(Statement::of(facts).sign(&self.provenance.key).to_document());
        }
    }
}

fn facts(
    identity: TaskIdentity,
    record: Option<TaskRecord>,
    worker: String,
    result: &TaskResult,
    digests: &[LargeDigest],
) -> TaskFacts {
    let started = record.as_ref().map(|record| record.started);
    let (run, program) = record.map(TaskRecord::into_parts).unwrap_or_default();
    let run = TaskRun { sandbox: result.sandbox.clone(), admission: result.admission.clone(), ..run };
    let order = result.admission.as_ref().and_then(|admission| admission.order.as_deref());
    let order = order.and_then(|order| order.strip_prefix("sha256:")).map(|sha256| Resource {
        name: "order".into(),
        uri: None,
        digest: Some(DigestSet { sha256: sha256.to_owned() }),
    });
    TaskFacts {
        identity,
        run,
        dependencies: program.into_iter().chain(order).collect(),
        worker,
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        duration_ms: result.duration_ms,
        end: ExitAnnotations::of(result),
        subject: subjects(result, digests),
    }
}

/// Returns a subject for each stream, and one for the first bytes of a stream that is large.
fn subjects(result: &TaskResult, digests: &[LargeDigest]) -> Vec<Subject> {
    let mut subjects = Vec::with_capacity(2);
    for stream in [OutputStream::Stdout, OutputStream::Stderr] {
        let kept = result.stream(stream);
        let is_it = |(number, of, ..): &&LargeDigest| (*number, *of) == (result.task_number, stream);
        let large = digests.iter().find(is_it);
        if let Some((_, _, length, digest)) = large {
            let annotations = StreamBytes { bytes: *length, total: *length };
            subjects.push(Subject { name: Subject::name_of(stream), digest: digest.clone(), annotations });
        }
        let name = if large.is_some() { Subject::name_of_first(stream) } else { Subject::name_of(stream) };
        let total = large.map_or(kept.total, |(_, _, length, _)| *length);
        let annotations = StreamBytes { bytes: kept.bytes.len() as u64, total };
        subjects.push(Subject { name, digest: DigestSet::of(&kept.bytes), annotations });
    }
    subjects
}

/// Returns the digests of large streams, whose files no longer change.
async fn digests(large: &[LargeOutput]) -> io::Result<Vec<LargeDigest>> {
    let mut digests = Vec::with_capacity(large.len());
    for output in large {
        digests.push(digest(output).await?);
    }
    Ok(digests)
}

/// Returns the digest of one stream. The other jobs of the lane run between two chunks. No thread
/// computes the hash, because the system may refuse a thread.
async fn digest(output: &LargeOutput) -> io::Result<LargeDigest> {
    let (mut hasher, mut offset) = (StreamHasher::default(), 0);
    let mut buffer = vec![0; HASHED_BYTES];
    while offset < output.length {
        let left = usize::try_from(output.length - offset).unwrap_or(usize::MAX);
        let chunk = &mut buffer[..left.min(HASHED_BYTES)];
        output.file.read_exact_at(chunk, offset)?;
        hasher.update(chunk);
        offset += chunk.len() as u64;
        yield_now().await;
    }
    Ok((output.task_number, output.stream, output.length, hasher.finish().0))
}

#[cfg(test)]
mod tests;
