//! `agx job`

use agenix_protocol::{
    documents::{Explanation, JobStatus, Status},
    ids::{ActionId, JobId},
};

use clap::Subcommand;

use crate::{
    connection_args::ConnectionArgs,
    documents::JobRef,
    error::{CliError, Result},
    output::OutputFormat,
    remote::overview::{admission_text, job_text, sandbox_text},
    util::printable::one_line,
    watch::progress,
};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Explain why a job is not running, and which workers come closest to running it; for a job
    /// that ran, the policy and the signed order by which it ran, and what its sandbox enforced and
    /// denied
    Explain { job_id: JobId },
    /// Cancel a job
    Cancel { job_id: JobId },
    /// Remove an ended job with its results, which frees the disk that its outputs take
    Forget { job_id: JobId },
    /// Retry a failed job
    Retry {
        job_id: JobId,
        /// Also retry a dead or cancelled job
        #[arg(long)]
        force: bool,
    },
    /// Show a job and the output of its tasks
    Status { job_id: JobId },
    /// List the jobs of an action
    List {
        action_id: ActionId,
        /// Only jobs with this status: pending, running, completed, failed, dead or cancelled
        #[arg(long, value_parser = parse_status)]
        status: Option<Status>,
    },
}

pub(crate) async fn run(server: &ConnectionArgs, command: JobCommand, output: OutputFormat) -> Result<()> {
    match command {
        JobCommand::Status { job_id } => status(server, &job_id, output).await,
        JobCommand::Explain { job_id } => explain(server, &job_id, output).await,
        JobCommand::Cancel { job_id } => cancel(server, &job_id, output).await,
        JobCommand::Forget { job_id } => forget(server, &job_id, output).await,
        JobCommand::Retry { job_id, force } => retry(server, &job_id, force, output).await,
        JobCommand::List { action_id, status } => list(server, &action_id, status, output).await,
    }
}

async fn status(server: &ConnectionArgs, job_id: &JobId, output: OutputFormat) -> Result<()> {
    let job = server.connect().await?.job(job_id).await?;
    let help = "see the jobs of an action with `agx job list ACTION_ID`";
    let job = job.ok_or_else(|| CliError::not_found("job", job_id, help))?;
    output.show("job.status", &job, job_text)
}

async fn explain(server: &ConnectionArgs, job_id: &JobId, output: OutputFormat) -> Result<()> {
    let mut connection = server.connect().await?;
    let explanation = connection.explain_job(job_id).await?;
    // Only the text shows results, because the document of the explanation has none.
    let ran =
        if output.is_json || explanation.waits_for.is_some() { None } else { connection.job(job_id).await? };
    output.show("job.explain", &explanation, |why| explanation_text(why, ran.as_ref()))
}

/// Formats an explanation, with the owner, admissions and sandboxes of a job that ran.
fn explanation_text(why: &Explanation, ran: Option<&JobStatus>) -> String {
    let head = format!("job {} is {}: {}", why.job_id, why.status.as_str(), why.reason);
    let sandbox = why.waits_for.as_ref().and_then(|needs| needs.sandbox.as_ref());
    let sandbox = sandbox.map(|profile| format!("\n  it runs only in a sandbox with the profile {profile}"));
    let nearest = why.workers.iter().map(|worker| {
        let lacks = if worker.missing.is_empty() {
            "could run it".to_owned()
        } else {
            format!("lacks {}", worker.missing.join(", "))
        };
        format!(
            "\n  {} is {}, has {} of {} jobs, and {lacks}",
            worker.worker_id, worker.state, worker.active_jobs, worker.max_concurrent_jobs
        )
    });
    let results = ran.map(JobStatus::results).unwrap_or_default();
    let owner = ran.and_then(|job| job.owner.as_ref());
    let owner = owner.map(|owner| format!("\n  submitted by {}", one_line(owner)));
    let tasks = results.iter().filter_map(|result| {
        let admission: String = result.admission.iter().map(admission_text).collect();
        let about = admission + &result.sandbox.iter().map(sandbox_text).collect::<String>();
        (!about.is_empty())
            .then(|| format!("\n  task {} {}{about}", result.task_number, one_line(&result.command)))
    });
    sandbox.into_iter().chain(nearest).chain(owner).chain(tasks).fold(head, |text, more| text + &more)
}

async fn list(
    server: &ConnectionArgs,
    id: &ActionId,
    status: Option<Status>,
    output: OutputFormat,
) -> Result<()> {
    let mut connection = server.connect().await?;
    let action = connection.action(id).await?.ok_or_else(|| progress::not_found(id))?;
    let jobs = connection.jobs(&action, status).await?;
    output.list("job.list", &jobs)
}

async fn cancel(server: &ConnectionArgs, id: &JobId, output: OutputFormat) -> Result<()> {
    server.connect().await?.cancel_job(id).await?;
    output.show("job.cancel", &JobRef { job_id: id.clone() }, |_| format!("job {id} is cancelled"))
}

async fn forget(server: &ConnectionArgs, id: &JobId, output: OutputFormat) -> Result<()> {
    server.connect().await?.forget_job(id).await?;
    output.show("job.forget", &JobRef { job_id: id.clone() }, |_| format!("job {id} is forgotten"))
}

async fn retry(server: &ConnectionArgs, id: &JobId, force: bool, output: OutputFormat) -> Result<()> {
    server.connect().await?.retry_job(id, force).await?;
    output.show("job.retry", &JobRef { job_id: id.clone() }, |_| format!("job {id} is retried"))
}

fn parse_status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| "use pending, running, completed, failed, dead or cancelled".into())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Explanation, JobStatus, parse};

    use super::explanation_text;

    #[test]
    fn explanation_names_the_profile_that_a_job_waits_for() {
        let json = br#"{"job_id":"j","status":"pending","state":"available","reason":"No worker can run it.","jobs_ahead":0,
            "waits_for":{"queue":"ready","priority":0,"tools":["sort"],"tags":["gpu"],"labels":{},"sandbox":"reader",
                "due_at":null,"paused":false},
            "workers":[{"worker_id":"w1","state":"active","missing":["sandbox profile reader: no Landlock; use Linux 6.2"],"active_jobs":0,
                "max_concurrent_jobs":4}]}"#;
        let why: Explanation = parse(json).unwrap();
        let expected = "job j is pending: No worker can run it.
  it runs only in a sandbox with the profile reader
  w1 is active, has 0 of 4 jobs, and lacks sandbox profile reader: no Landlock; use Linux 6.2";
        assert_eq!(explanation_text(&why, None), expected);
    }

    #[test]
    fn explanation_of_a_job_that_ran_shows_its_owner_admissions_and_sandboxes() {
        let json =
            br#"{"job_id":"j","status":"failed","state":"discarded","reason":"It failed.","jobs_ahead":0,
            "waits_for":null,"workers":[]}"#;
        let why: Explanation = parse(json).unwrap();
        let json = br#"{"job_id":"j","action_id":"a","plan_id":"p","status":"failed","state":"discarded","index":0,
            "attempt":1,"queue":"ready","priority":0,"created_at":"2026-01-31T08:00:00.000Z","started_at":null,
            "completed_at":null,"worker_id":"w1","owner":"client:alice","inputs":{},
            "task_results":[{"task_number":1,"command":"cat","exit_code":0},
                {"task_number":2,"command":"wc","exit_code":1,
                    "admission":{"policy":"sha256:1","rule":"tools.wc"},"sandbox":{"profile":"reader","denied":["it read /x"]}}]}"#;
        let ran: JobStatus = parse(json).unwrap();
        let expected = "job j is failed: It failed.
  submitted by client:alice
  task 2 wc
    admitted by tools.wc of the policy sha256:1
    sandbox with the profile reader
      denied: it read /x";
        assert_eq!(explanation_text(&why, Some(&ran)), expected);
    }
}
