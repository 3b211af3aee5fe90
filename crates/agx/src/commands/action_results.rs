//! `agx action results`

use std::path::Path;

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    blob::OutputStream,
    documents::{JobStatus, Status, TaskResult},
    ids::{ActionId, JobId},
};
use futures_util::{Stream, StreamExt, stream};

use crate::{
    connection_args::ConnectionArgs,
    error::{CliError, Result},
    output::OutputFormat,
    remote::{
        command_pace::{CALLS_AT_ONCE, CommandPace},
        retrying_client::RetryingClient,
        stored_stream::StoredStream,
    },
    util::atomic_file::cannot_write,
    watch::progress,
};

/// Number of concurrent requests.
const AT_ONCE: usize = 16;

pub(super) async fn run(
    server: &ConnectionArgs,
    action_id: &ActionId,
    ordered: bool,
    output_dir: Option<&Path>,
    output: OutputFormat,
) -> Result<()> {
    // A pager may suspend agx for an unlimited time, so replies have no timeout.
    let server = server.server()?;
    let connection = Connection::open_without_timeout(&server).await?;
    let mut agq = RetryingClient::new(server, connection.clone(), output);
    let action = agq.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    if let Some(dir) = output_dir {
        std::fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    let jobs = agq.with_retry(async |connection| connection.jobs(&action, None).await).await?;
    let mut pace = CommandPace::begin();
    let (mut unended, mut failed, mut unread, mut shown) = (0, 0, 0, 0);
    for part in jobs.chunks(CALLS_AT_ONCE) {
        pace.keep().await;
        let connection = agq.connection().unwrap_or_else(|| connection.clone());
        let mut results = std::pin::pin!(fetch(connection, part.to_vec(), ordered));
        while let Some((job_id, job)) = results.next().await {
            let job = match job {
                // The connection of the other requests stays closed after a restart of agq.
                Err(error) if error.is_outage() => agq.jobs(&[job_id]).await?.pop().flatten(),
                job => job?,
            };
            // agq has removed the job since the list was made.
            let Some(job) = job else { continue };
            shown += 1;
            match job.status {
                Status::Pending | Status::Running => unended += 1,
                Status::Completed => {}
                _ => failed += 1,
            }
            if job.status.is_ended() {
                match deliver(&job, output_dir, output, &mut agq).await {
                    Err(failure) if failure.is_of_an_output() => {
                        unread += 1;
                        output.note(&format!("job {} (input {}): {failure}", job.job_id, job.index));
                    }
                    delivered => delivered?,
                }
            }
        }
    }
    output.flush()?;
    verdict(action.total_jobs, shown, (unended, failed), unread)
}

/// Returns a failure that counts the jobs that did not complete, the jobs that agq has removed, and
/// the outputs that it cannot read.
fn verdict(total: u64, shown: u64, (unended, failed): (u64, u64), unread: u64) -> Result<()> {
    let mut parts = Vec::new();
    let gone = total.saturating_sub(shown);
    if gone > 0 {
        parts.push(format!(
            "{gone} of {total} results are no longer kept (--keep-ended, --keep-ended-count of agq)"
        ));
    }
    match (unended, failed) {
        (0, 0) => {}
        (0, failed) => parts.push(format!("jobs that did not complete: {failed}")),
        (unended, 0) => parts.push(format!("jobs that have not ended yet: {unended}")),
        (unended, failed) => {
            parts.push(format!("jobs that have not ended yet: {unended}; that did not complete: {failed}"));
        }
    }
    if unread > 0 {
        parts.push(format!("outputs that could not be fetched: {unread}"));
    }
    if parts.is_empty() { Ok(()) } else { Err(CliError::Jobs(parts.join("; "))) }
}

fn fetch(
    connection: Connection,
    jobs: Vec<JobId>,
    ordered: bool,
) -> impl Stream<Item = (JobId, Result<Option<JobStatus>, ClientError>)> {
    let calls = stream::iter(jobs).map(move |job_id| {
        let mut connection = connection.clone();
        async move {
            let job = connection.job(&job_id).await;
            (job_id, job)
        }
    });
    if ordered {
        calls.buffered(AT_ONCE).left_stream()
    } else {
        calls.buffer_unordered(AT_ONCE).right_stream()
    }
}

async fn deliver(
    job: &JobStatus,
    output_dir: Option<&Path>,
    output: OutputFormat,
    agq: &mut RetryingClient,
) -> Result<()> {
    let results = job.results();
    let last = results.last();
    if output.is_json && output_dir.is_none() {
        return output.show("action.result", job, |_| String::new());
    }
    if job.status != Status::Completed {
        let why = job.error.as_deref().unwrap_or("no reason was given");
        output.note(&format!("job {} (input {}) {}: {why}", job.job_id, job.index, job.status.as_str()));
        if let (Some(dir), Some(last)) = (output_dir, TaskResult::blamed(&results).or(last)) {
            let stored = StoredStream::of(job, last, OutputStream::Stderr);
            stored.write(dir, &format!("{}.err", job.index), agq).await?;
        }
        return Ok(());
    }
    let Some(last) = last else { return Ok(()) };
    if last.stdout.is_cut() {
        let (kept, total) = (last.stdout.bytes.len(), last.stdout.total);
        output.note(&format!(
            "job {} (input {}): only {kept} of {total} bytes of its output were kept",
            job.job_id, job.index
        ));
    }
    let stored = StoredStream::of(job, last, OutputStream::Stdout);
    match output_dir {
        Some(dir) => stored.write(dir, &format!("{}.out", job.index), agq).await,
        None => stored.print(output, agq).await,
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn results_report_missing_jobs_as_a_failure() {
        let failure = |total, shown, ended, unread| {
            verdict(total, shown, ended, unread).err().map(|failure| failure.to_string())
        };
        assert_eq!(failure(3, 3, (0, 0), 0), None);
        assert!(failure(200, 10, (0, 0), 0).unwrap().starts_with("190 of 200 results are no longer kept"));
        assert_eq!(failure(3, 3, (0, 1), 0).unwrap(), "jobs that did not complete: 1");
        assert!(
            failure(3, 2, (1, 1), 0)
                .unwrap()
                .ends_with("; jobs that have not ended yet: 1; that did not complete: 1")
        );
        assert_eq!(
            failure(3, 3, (0, 1), 2).unwrap(),
            "jobs that did not complete: 1; outputs that could not be fetched: 2"
        );
    }
}
