//! Formats of the answers of a store in a script.

use agenix_rules::{action::JobCounts, job::Job, owner::Owner};

pub(super) fn job(job: &Job) -> String {
    let mut shown = format!("{} {} attempt={}", job.job_id, job.state.as_str(), job.attempt);
    let mut field =
        |name: &str, value: Option<String>| shown.extend(value.map(|value| format!(" {name}={value}")));
    field("holder", job.holder.clone());
    field("due", job.due_at.map(|at| at.0.to_string()));
    field("ended", job.ended_at.map(|at| at.0.to_string()));
    field("error", job.error.clone().map(|error| format!("{error:?}")));
    field("losses", (job.losses > 0).then(|| job.losses.to_string()));
    shown + &owner(job.owner.as_ref())
}

pub(super) fn owner(owner: Option<&Owner>) -> String {
    owner.map(|owner| format!(" owner={owner}")).unwrap_or_default()
}

pub(super) fn counts(counts: &JobCounts) -> String {
    let [pending, running, completed, failed, dead, cancelled] = counts.jobs;
    let started = if counts.started > 0 { format!(" started={}", counts.started) } else { String::new() };
    format!(
        "pending={pending} running={running} completed={completed} failed={failed} dead={dead} cancelled={cancelled}{started}"
    )
}
