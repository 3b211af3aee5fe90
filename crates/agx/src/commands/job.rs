//! `agx job …`

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId},
};

use crate::{cli::ServerArgs, error::CliError, output::Output, remote::overview::job_text, watch::progress};

pub(super) async fn status(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<(), CliError> {
    let job = server.connect().await?.job(job_id).await?;
    let help = "see the jobs of an action with `agx job list ACTION_ID`";
    let job = job.ok_or_else(|| CliError::not_found("job", job_id, help))?;
    output.show("job.status", &job, job_text)
}

pub(super) async fn explain(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<(), CliError> {
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

pub(super) async fn list(
    server: &ServerArgs,
    action_id: &ActionId,
    status: Option<Status>,
    output: Output,
) -> Result<(), CliError> {
    let mut connection = server.connect().await?;
    let action = connection.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    let jobs = connection.jobs(&action, status).await?;
    output.show("job.list", &jobs, |jobs| jobs.iter().map(|id| format!("{id}\n")).collect())
}
