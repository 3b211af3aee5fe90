//! Checks of the provenance of a job: its statements are for this job, and its outputs are those
//! that the worker has signed. An error is the reason for which nothing is proved.

use std::borrow::Borrow;

use agenix_order::{DigestSet, Envelope, ExitAnnotations, Statement, StreamHasher, Subject, TrustFile};
use agenix_protocol::{
    blob::OutputStream,
    documents::{CapturedOutput, JobStatus, Status, TaskResult},
    ids::JobId,
};

use crate::{
    error::{CliError, Result},
    remote::{output_reader::OutputReader, retrying_client::RetryingClient},
};

/// Returns the statement of each result, with the name of the worker whose key has signed it.
pub(super) fn statements(
    job: &JobStatus,
    job_id: &JobId,
    results: &[TaskResult],
    trust: &TrustFile,
) -> Result<Vec<(Statement, String)>, String> {
    if results.is_empty() {
        return Err(format!("job {job_id} is {}, and agq has no results of it", job.status.as_str()));
    }
    let checked = results.iter().map(|result| {
        let number = result.task_number;
        checked(job, job_id, result, trust).map_err(|reason| format!("task {number}: {reason}"))
    });
    let statements = checked.collect::<Result<Vec<_>, String>>()?;
    check_all(job, results, &statements)?;
    Ok(statements)
}

/// Checks that no task is missing or doubled, and that the status is that of the tasks.
fn check_all(
    job: &JobStatus,
    results: &[TaskResult],
    statements: &[(Statement, String)],
) -> Result<(), String> {
    let numbers: Vec<u32> = results.iter().map(|result| result.task_number).collect();
    if !numbers.is_sorted_by(|one, next| one < next) {
        return Err("agq has two results of one task".into());
    }
    if job.status != Status::Completed {
        return Ok(());
    }
    let count = statements.iter().map(|(statement, _)| statement.identity().task_count).max();
    let count = count.unwrap_or_default() as usize;
    if numbers.len() != count {
        return Err(format!("the job has {count} tasks, and agq has results of {}", numbers.len()));
    }
    match TaskResult::blamed(results) {
        Some(failed) => Err(format!("agq has the job as completed, and task {} failed", failed.task_number)),
        None => Ok(()),
    }
}

fn checked(
    job: &JobStatus,
    job_id: &JobId,
    result: &TaskResult,
    trust: &TrustFile,
) -> Result<(Statement, String), String> {
    let envelope = result.provenance.as_ref().ok_or("no worker has signed anything about it")?;
    let envelope = Envelope::from_document(envelope).map_err(|error| error.to_string())?;
    let (statement, worker) = Statement::open(&envelope, trust).map_err(|error| error.to_string())?;
    let identity = statement.identity();
    let same = |name: &str, signed: &str, found: &str| {
        if signed == found {
            return Ok(());
        }
        Err(format!("its statement is about {name} {signed}, and agq has {name} {found}"))
    };
    same("job", identity.job_id.as_str(), job_id.as_str())?;
    same("plan", identity.plan_id.as_str(), job.plan_id.as_str())?;
    same("attempt", &identity.attempt.to_string(), &job.attempt.to_string())?;
    same("task", &identity.task_number.to_string(), &result.task_number.to_string())?;
    if identity.input_sha256 != DigestSet::of(job.inputs.get().as_bytes()).sha256 {
        return Err("its statement is about another input".into());
    }
    let run = &statement.predicate.build_definition.internal_parameters;
    if statement.end() != Some(&ExitAnnotations::of(result))
        || run.sandbox != result.sandbox
        || run.admission != result.admission
    {
        return Err("agq has another result than the signed one".into());
    }
    Ok((statement, worker))
}

/// Checks that the streams in agq are the signed ones, by all of their bytes.
pub(super) async fn streams(
    job: &JobStatus,
    result: &TaskResult,
    statement: &Statement,
    agq: &mut RetryingClient,
) -> Result<()> {
    let number = result.task_number;
    let unproved = |reason: String| CliError::Unproved(format!("task {number}: {reason}"));
    for stream in [OutputStream::Stdout, OutputStream::Stderr] {
        let kept = result.stream(stream);
        if let Some(whole) = check_kept(stream, kept, statement).map_err(unproved)? {
            let mut reader = OutputReader::new(&job.job_id, (number, stream), kept.total, 0);
            let mut hasher = StreamHasher::default();
            while let Some(chunk) = reader.next(agq).await? {
                hasher.update(&chunk);
            }
            check_digest(stream, hasher.finish().borrow(), whole).map_err(unproved)?;
        }
    }
    Ok(())
}

/// Checks the bytes of a stream that the result has. Returns the subject of the whole stream if agq
/// has to have it as a blob.
fn check_kept<'s>(
    stream: OutputStream,
    kept: &CapturedOutput,
    statement: &'s Statement,
) -> Result<Option<&'s Subject>, String> {
    let name = Subject::name_of(stream);
    let subject = statement.subject(&name).ok_or_else(|| format!("its statement has no {name}"))?;
    let first = statement.subject(&Subject::name_of_first(stream));
    let inline = first.unwrap_or(subject);
    check_digest(stream, &(DigestSet::of(&kept.bytes), kept.bytes.len() as u64), inline)?;
    if kept.total != inline.annotations.total {
        let (total, signed) = (kept.total, inline.annotations.total);
        return Err(format!("agq says that its {name} has {total} bytes, and the statement says {signed}"));
    }
    match (first, kept.blob) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Ok(Some(subject)),
        (None, Some(_)) => Err(format!("agq has a blob of its {name}, and the statement has none")),
        (Some(_), None) => Err(format!(
            "agq has only the first {} of the {} bytes of its {name}",
            kept.bytes.len(),
            subject.annotations.bytes
        )),
    }
}

fn check_digest(
    stream: OutputStream,
    (digest, bytes): &(DigestSet, u64),
    signed: &Subject,
) -> Result<(), String> {
    if *digest == signed.digest && *bytes == signed.annotations.bytes {
        return Ok(());
    }
    let (name, found, signed) = (Subject::name_of(stream), &digest.sha256, &signed.digest.sha256);
    Err(format!("its {name} in agq is not the signed one: it has the SHA-256 {found}, and not {signed}"))
}
