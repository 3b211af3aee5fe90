//! Timers of jobs: releases scheduled jobs and retries, and ends attempts whose lease or timeout is
//! over. The reaper and `fetch` call this module.

use std::collections::BTreeSet;

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::{
    job::{Job, RuleOutcome},
    worker::{self, Worker},
};
use futures_util::FutureExt;
use tokio::task::unconstrained;
use tracing::{error, warn};

use super::{
    job_changes::if_exists, job_ended::on_job_ended, worker_health::record_outcome,
    worker_messages::notify_worker,
};
use crate::{
    app::{AppState, is_connection},
    error::Result,
    store::AckLevel,
};

/// Rule of a due timer: [`due`](agenix_rules::job::due), or
/// [`due_while_waiting`](agenix_rules::job::due_while_waiting) while attempts may have to get
/// unobserved time back first.
pub(crate) type TimerRule = fn(&Job, Timestamp, f64) -> RuleOutcome;

/// Fires the earliest timers first, and returns their number. Does not wait for a timer of a job
/// that another session of the database has locked. The store fires that timer when the lock is
/// free, and the reaper advances the workflow of the job.
pub(crate) async fn fire_due_jobs(app: &AppState, due_rule: TimerRule, limit: usize) -> Result<usize> {
    let now = app.clock.now();
    let mut due = app.store.due(now, limit).await?;
    due.retain(|job_id| !app.late_timers.is_late(job_id, now));
    if due.is_empty() {
        return Ok(0);
    }
    let fire = |job_id| {
        let jitter = app.clock.chance();
        let rule = if_exists(move |job| due_rule(job, now, jitter));
        app.store.decide(job_id, AckLevel::Durable, None, rule)
    };
    let answers: Vec<_> = due.iter().map(fire).collect();
    let tried = app.store.wait_until_tried();
    let may_be_late = tried.is_some();
    if let Some(tried) = tried {
        tried.await?;
    }
    let (mut fired, mut late) = (0, Vec::new());
    for (job_id, answer) in due.iter().zip(answers) {
        // An answer that is there counts, even if this task has used up its cooperative budget.
        let answer = if may_be_late { unconstrained(answer).now_or_never() } else { Some(answer.await) };
        let decided = match answer {
            Some(Ok(decided)) => decided?,
            Some(Err(error)) if !may_be_late => return Err(error.into()),
            not_fired => {
                if let Some(Err(error)) = not_fired {
                    error!(%job_id, %error, "the timer of a job could not fire; agq tries again in a few seconds");
                }
                app.late_timers.add(job_id.clone(), now);
                continue;
            }
        };
        fired += 1;
        let Some(change) = decided else { continue };
        let has_timed_out = change.after.failures > change.before.failures;
        on_job_ended(app, Some(&change)).await;
        if let Some(holder) = change.released_holder().filter(|_| has_timed_out) {
            late.push((holder.to_owned(), change.before));
        }
    }
    flag_workers(app, late).await?;
    Ok(fired)
}

/// A worker whose job exceeds its timeout may hang. Counts each of the late jobs, and notifies the
/// workers that they have lost the jobs.
async fn flag_workers(app: &AppState, late: Vec<(String, Job)>) -> Result<()> {
    let mut holders = BTreeSet::new();
    for (holder, job) in late.into_iter().filter(|(holder, _)| !is_connection(holder)) {
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        warn!(%worker_id, "a job exceeded its timeout; its worker may hang");
        let rule = move |known: Option<&Worker>| Ok(known.map(worker::flagged));
        app.store.decide_worker(&worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
        record_outcome(app, &holder, &job, true).await?;
        holders.insert(holder);
    }
    holders.iter().for_each(|holder| notify_worker(app, holder));
    Ok(())
}
