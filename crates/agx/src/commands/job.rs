//! `agx job …`

use agenix_protocol::{
    documents::{JobStatus, Status, TaskResult},
    ids::{ActionId, JobId},
};

use crate::{cli::ServerArgs, failure::Failure, output::Output, progress};

pub(super) async fn status(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<(), Failure> {
    let job = server.connect().await?.job(job_id).await?;
    let help = "see the jobs of an action with `agx job list ACTION_ID`";
    let job = job.ok_or_else(|| Failure::not_found("job", job_id, help))?;
    output.show("job.status", &job, text)
}

pub(super) async fn explain(server: &ServerArgs, job_id: &JobId, output: Output) -> Result<(), Failure> {
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
) -> Result<(), Failure> {
    let mut connection = server.connect().await?;
    let action = connection.action(action_id).await?.ok_or_else(|| progress::not_found(action_id))?;
    let jobs = connection.jobs(&action, status).await?;
    output.show("job.list", &jobs, |jobs| jobs.iter().map(|id| format!("{id}\n")).collect())
}

fn text(job: &JobStatus) -> String {
    let mut lines = vec![
        format!("job {}: {}", job.job_id, job.status.as_str()),
        format!("  input      {}", job.inputs.get()),
        format!("  action     {} (input {})", job.action_id, job.index),
        format!("  plan       {}", job.plan_id),
        format!("  attempt    {}", job.attempt),
        format!("  submitted  {}", job.created_at),
    ];
    let mut more =
        |name: &str, value: Option<String>| lines.extend(value.map(|value| format!("  {name:<10} {value}")));
    more("started", job.started_at.map(|at| at.to_string()));
    more("ended", job.completed_at.map(|at| at.to_string()));
    more("worker", job.worker_id.clone());
    more("error", job.error.clone());
    for result in job.results() {
        lines.push(task_text(&result));
    }
    lines.join("\n")
}

fn task_text(result: &TaskResult) -> String {
    let stream = |name: &str, kept: &agenix_protocol::documents::Kept| {
        let cut = if kept.bytes.is_empty() {
            ", passed on".to_owned()
        } else if kept.is_truncated() {
            format!(", the first {} kept", kept.bytes.len())
        } else {
            String::new()
        };
        let text = String::from_utf8_lossy(&kept.bytes);
        let shown: String = text.lines().take(10).map(|line| format!("\n      {line}")).collect();
        let more = text.lines().count().saturating_sub(10);
        let more =
            if more > 0 { format!("\n      … {more} lines more, see --json") } else { String::new() };
        if kept.total == 0 {
            String::new()
        } else {
            format!("\n    {name}: {} bytes{cut}{shown}{more}", kept.total)
        }
    };
    let head = format!(
        "  task {} {}: exit code {}, {} ms",
        result.task_number, result.command, result.exit_code, result.duration_ms
    );
    head + &stream("stdout", &result.stdout) + &stream("stderr", &result.stderr)
}
