//! `agx action results`

use std::path::Path;

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{JobStatus, Status, TaskResult},
    ids::{ActionId, JobId},
};
use futures_util::{Stream, StreamExt, stream};

use crate::{
    cli::ServerArgs,
    failure::Failure,
    files::{cannot_write, write_whole},
    output::Output,
    progress,
};

/// How many results are fetched at once.
const AT_ONCE: usize = 16;

pub(super) async fn run(
    server: &ServerArgs,
    action_id: &ActionId,
    ordered: bool,
    output_dir: Option<&Path>,
    output: Output,
) -> Result<(), Failure> {
    // A pager may stop us for as long as its reader likes.
    let mut connection = Connection::open_patiently(&server.server()?).await?;
    let action = connection.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    if let Some(dir) = output_dir {
        std::fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    let jobs = connection.jobs(&action, None).await?;
    let mut results = std::pin::pin!(fetch(connection, jobs, ordered));
    let (mut unended, mut failed) = (0, 0);
    while let Some(job) = results.next().await {
        let Some(job) = job? else { continue };
        match job.status {
            Status::Pending | Status::Running => unended += 1,
            Status::Completed => {}
            _ => failed += 1,
        }
        if job.status.is_ended() {
            deliver(&job, output_dir, output)?;
        }
    }
    output.flush()?;
    match (unended, failed) {
        (0, 0) => Ok(()),
        (0, failed) => Err(Failure::Jobs(format!("jobs that did not complete: {failed}"))),
        (unended, 0) => Err(Failure::Jobs(format!("jobs that have not ended yet: {unended}"))),
        (unended, failed) => Err(Failure::Jobs(format!(
            "jobs that have not ended yet: {unended}; that did not complete: {failed}"
        ))),
    }
}

fn fetch(
    connection: Connection,
    jobs: Vec<JobId>,
    ordered: bool,
) -> impl Stream<Item = Result<Option<JobStatus>, ClientError>> {
    let calls = stream::iter(jobs).map(move |job_id| {
        let mut connection = connection.clone();
        async move { connection.job(&job_id).await }
    });
    if ordered {
        calls.buffered(AT_ONCE).left_stream()
    } else {
        calls.buffer_unordered(AT_ONCE).right_stream()
    }
}

fn deliver(job: &JobStatus, output_dir: Option<&Path>, output: Output) -> Result<(), Failure> {
    let results = job.results();
    let last = results.last();
    if output.is_json && output_dir.is_none() {
        return output.show("action.result", job, |_| String::new());
    }
    if job.status != Status::Completed {
        let why = job.error.as_deref().unwrap_or("no reason was given");
        output.note(&format!("job {} (input {}) {}: {why}", job.job_id, job.index, job.status.as_str()));
        if let (Some(dir), Some(last)) = (output_dir, TaskResult::blamed(&results).or(last)) {
            write_whole(dir, &format!("{}.err", job.index), &last.stderr.bytes)?;
        }
        return Ok(());
    }
    let Some(last) = last else { return Ok(()) };
    if last.stdout.is_truncated() {
        let (kept, total) = (last.stdout.bytes.len(), last.stdout.total);
        output.note(&format!(
            "job {} (input {}): only {kept} of {total} bytes of its output were kept",
            job.job_id, job.index
        ));
    }
    match output_dir {
        Some(dir) => write_whole(dir, &format!("{}.out", job.index), &last.stdout.bytes),
        None => output.raw(&last.stdout.bytes),
    }
}
