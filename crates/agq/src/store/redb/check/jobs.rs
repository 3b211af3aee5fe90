//! Checks that the record of every job is possible, and that everything that belongs to the job
//! exists.

use std::collections::BTreeMap;

use agenix_rules::{
    action::Action,
    job::{Job, JobState, MAX_LOSSES},
};
use redb::Error;

use super::{Inconsistencies, counts::CountedJobs, own_record};
use crate::store::redb::{
    schema::{Result, decode, ended_key, ready_key},
    txn::tables::Tables,
};

/// Checks all jobs, and counts them.
pub(super) fn check(
    tables: &Tables<'_>,
    queues: &BTreeMap<u32, String>,
    last_seq: u64,
    found: &mut Inconsistencies,
) -> Result<CountedJobs> {
    let mut counted = CountedJobs::default();
    tables.jobs.for_each(|id, record| {
        let id_of: fn(&Job) -> &str = |job| job.job_id.as_str();
        let Some(job) = own_record("jobs", id, record, id_of, found) else { return Ok(()) };
        if job.seq > last_seq {
            report!(found, "meta: next_seq is {last_seq}, but {id} has place {}", job.seq);
        }
        impossible(&job, found);
        belongings(tables, queues, &job, found)?;
        places(tables, &job, found)?;
        counted.add(job);
        Ok::<_, Error>(())
    })?;
    Ok(counted)
}

/// Reports states of a job that no rule produces.
fn impossible(job: &Job, found: &mut Inconsistencies) {
    let (is_active, is_ended) = (job.state == JobState::Active, job.is_ended());
    let waits = matches!(job.state, JobState::Scheduled | JobState::Retryable);
    let was_claimed = matches!(job.state, JobState::Active | JobState::Retryable | JobState::Completed);
    let expires_at = job.ojs.as_ref().and_then(|ojs| ojs.expires_at);
    let most_failures = job.max_retries.saturating_add(u32::from(is_ended));
    let most_losses = if is_ended { MAX_LOSSES } else { MAX_LOSSES - 1 };
    let faults = [
        (is_ended && job.ended_at.is_none(), "does not say when it ended"),
        (!is_ended && job.ended_at.is_some(), "says when it ended"),
        (waits && job.due_at.is_none(), "does not say for which time it waits"),
        (is_ended && job.due_at.is_some(), "waits for a time"),
        (job.state == JobState::Available && job.due_at != expires_at, "waits for a time"),
        (is_active && job.holder.is_none(), "has no holder"),
        (was_claimed && job.attempt == 0, "was never claimed"),
        ((job.attempt > 0) != job.started_at.is_some(), "its attempts and its start contradict each other"),
        (job.is_dead && job.state != JobState::Discarded, "counts as dead"),
        (job.failures > job.attempt, "failed more often than it was claimed"),
        (job.failures > most_failures, "failed more often than it may"),
        (job.losses > most_losses, "lost more workers than it may"),
    ];
    for (_, fault) in faults.iter().filter(|(is_so, _)| *is_so) {
        report!(found, "jobs: {} is {}, but {fault}", job.job_id, job.state.as_str());
    }
}

/// Checks action, index, input, lane and plan of a job.
fn belongings(
    tables: &Tables<'_>,
    queues: &BTreeMap<u32, String>,
    job: &Job,
    found: &mut Inconsistencies,
) -> Result<()> {
    let (id, action_id, index, lane) = (job.job_id.as_str(), job.action_id.as_str(), job.index, job.lane);
    match tables.actions.get(action_id)?.map(|record| decode::<Action>(record.value())) {
        None => {
            report!(found, "actions: {id} belongs to {action_id}, but there is no such action");
        }
        Some(Ok(action)) => against_action(&action, queues, job, found),
        // The check of the actions reports unreadable records.
        Some(Err(_)) => {}
    }
    let named = tables.action_jobs.get((action_id, index))?;
    let named = named.as_ref().map(|other| other.value());
    if named != Some(id) {
        let other = named.unwrap_or("nobody");
        report!(found, "action_jobs: input {index} of {action_id} should be {id}, but is {other}");
    }
    if tables.inputs.get(id)?.is_none() {
        report!(found, "inputs: {id} has no input");
    }
    if !queues.contains_key(&lane) {
        report!(found, "lanes: {id} belongs to lane {lane}, but there is no such lane");
    }
    // A job that was retried while its plan was deleted is available without a plan. The next claim
    // ends it.
    let needs_plan = matches!(job.state, JobState::Active | JobState::Scheduled | JobState::Retryable);
    if needs_plan && tables.plans.get(job.plan_id.as_str())?.is_none() {
        let (state, plan_id) = (job.state.as_str(), &job.plan_id);
        report!(found, "plans: {id} is {state}, but there is no plan {plan_id}");
    }
    Ok(())
}

fn against_action(action: &Action, queues: &BTreeMap<u32, String>, job: &Job, found: &mut Inconsistencies) {
    let (id, action_id) = (&job.job_id, &action.action_id);
    if job.index >= action.total_jobs {
        let (index, total) = (job.index, action.total_jobs);
        report!(found, "actions: {id} is input {index} of {action_id}, which has {total} inputs");
    }
    if let Some(ojs) = &job.ojs {
        // The job has a queue and a plan of its own.
        if let Some(queue) = queues.get(&job.lane).filter(|queue| **queue != ojs.queue) {
            let (lane, other) = (job.lane, &ojs.queue);
            report!(
                found,
                "lanes: {id} belongs to lane {lane} of queue {queue}, but its record says {other}"
            );
        }
        return;
    }
    if job.plan_id != action.plan_id {
        let (plan_id, other) = (&job.plan_id, &action.plan_id);
        report!(found, "jobs: {id} runs plan {plan_id}, but its action {action_id} runs {other}");
    }
    if let Some(queue) = queues.get(&job.lane).filter(|queue| **queue != action.queue) {
        let (lane, other) = (job.lane, &action.queue);
        report!(
            found,
            "lanes: {id} belongs to lane {lane} of queue {queue}, but its action {action_id} has queue {other}"
        );
    }
}

/// Checks that the job is in every index to which it belongs.
fn places(tables: &Tables<'_>, job: &Job, found: &mut Inconsistencies) -> Result<()> {
    let id = job.job_id.as_str();
    let is_active = job.state == JobState::Active;
    if job.state == JobState::Available {
        let (lane, rank, seq) = ready_key(job);
        let named = tables.ready.get((lane, rank, seq))?;
        let named = named.as_ref().map(|other| other.value());
        if named != Some(id) {
            let other = named.unwrap_or("nobody");
            report!(
                found,
                "ready: {id} should stand in lane {lane} at rank {rank}, place {seq}, but {other} does"
            );
        }
    }
    if let Some(due) = job.due_at {
        let (name, table) = if is_active || job.state == JobState::Available {
            ("leases", &tables.leases)
        } else {
            ("waiting", &tables.waiting)
        };
        if table.get((due.0, id))?.is_none() {
            report!(found, "{name}: {id} should stand at {}, but does not", due.0);
        }
    }
    if let Some(holder) = job.holder.as_deref().filter(|_| is_active)
        && tables.held.get((holder, id))?.is_none()
    {
        report!(found, "held: {id} should stand under {holder}, but does not");
    }
    if let Some((status, at)) = ended_key(job)
        && tables.ended.get((status, at, id))?.is_none()
    {
        report!(found, "ended: {id} should stand under status {status} at {at}, but does not");
    }
    Ok(())
}
