//! `agx job`

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId},
};

use clap::Subcommand;

use crate::{
    documents::JobRef,
    error::{CliError, Result},
    output::Output,
    remote::overview::job_text,
    server_args::ServerArgs,
    watch::progress,
};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Explain why a job is not running, and which workers come closest to running it
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

pub(crate) async fn run(server: &ServerArgs, command: JobCommand, output: Output) -> Result<()> {
    match command {
        JobCommand::Status { job_id } => status(server, &job_id, output).await,
        JobCommand::Explain { job_id } => explain(server, &job_id, output).await,
        JobCommand::Cancel { job_id } => cancel(server, &job_id, output).await,
        JobCommand::Forget { job_id } => forget(server, &job_id, output).await,
        JobCommand::Retry { job_id, force } => retry(server, &job_id, force, output).await,
        JobCommand::List { action_id, status } => list(server, &action_id, status, output).await,
    }
}

async fn status(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<()> {
    let job = server.connect().await?.job(job_id).await?;
    let help = "see the jobs of an action with `agx job list ACTION_ID`";
    let job = job.ok_or_else(|| CliError::not_found("job", job_id, help))?;
    output.show("job.status", &job, job_text)
}

async fn explain(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<()> {
    let explanation = server.connect().await?.explain_job(job_id).await?;
    output.show("job.explain", &explanation, |why| {
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
        format!("job {job_id} is {}: {}{}", why.status.as_str(), why.reason, nearest.collect::<String>())
    })
}

async fn list(server: &ServerArgs, id: &ActionId, status: Option<Status>, output: Output) -> Result<()> {
    let mut connection = server.connect().await?;
    let action = connection.action(id).await?.ok_or_else(|| progress::not_found(id))?;
    let jobs = connection.jobs(&action, status).await?;
    output.list("job.list", &jobs)
}

async fn cancel(server: &ServerArgs, id: &JobId, output: Output) -> Result<()> {
    server.connect().await?.cancel_job(id).await?;
    output.show("job.cancel", &JobRef { job_id: id.clone() }, |_| format!("job {id} is cancelled"))
}

async fn forget(server: &ServerArgs, id: &JobId, output: Output) -> Result<()> {
    server.connect().await?.forget_job(id).await?;
    output.show("job.forget", &JobRef { job_id: id.clone() }, |_| format!("job {id} is forgotten"))
}

async fn retry(server: &ServerArgs, id: &JobId, force: bool, output: Output) -> Result<()> {
    server.connect().await?.retry_job(id, force).await?;
    output.show("job.retry", &JobRef { job_id: id.clone() }, |_| format!("job {id} is retried"))
}

fn parse_status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| "use pending, running, completed, failed, dead or cancelled".into())
}
