//! Timers of jobs: releases scheduled jobs and retries, and ends attempts whose lease or timeout is
//! over. The reaper and `fetch` call it.

use std::collections::BTreeMap;

use agenix_protocol::ids::WorkerId;
use agenix_rules::{
    job::{self, Job},
    worker::{self, Worker},
};
use tracing::warn;

use super::{
    job_changes::if_exists, job_ended::on_job_ended, worker_health::record_outcome,
    worker_messages::notify_worker,
};
use crate::{
    app::{AppState, is_connection},
    error::Result,
    store::AckLevel,
};

/// Fires the earliest timers first, and returns their number.
pub(crate) async fn fire_due_jobs(app: &AppState, limit: usize) -> Result<usize> {
    let now = app.clock.now();
    let due = app.store.due(now, limit).await?;
    let fire = |job_id| {
        let jitter = app.clock.chance();
        let rule = if_exists(move |job| job::due(job, now, jitter));
        app.store.decide(job_id, AckLevel::Durable, None, rule)
    };
    let answers: Vec<_> = due.iter().map(fire).collect();
    let mut late = BTreeMap::new();
    for answer in answers {
        let Some(change) = answer.await?? else { continue };
        let has_timed_out = change.after.failures > change.before.failures;
        on_job_ended(app, Some(&change)).await?;
        if let Some(holder) = change.released_holder().filter(|_| has_timed_out) {
            late.insert(holder.to_owned(), change.before);
        }
    }
    flag_workers(app, late).await?;
    Ok(due.len())
}

/// A worker whose job exceeds its timeout may hang. Notifies the workers that they have lost the
/// jobs.
async fn flag_workers(app: &AppState, late: BTreeMap<String, Job>) -> Result<()> {
    for (holder, job) in late.into_iter().filter(|(holder, _)| !is_connection(holder)) {
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        warn!(%worker_id, "a job exceeded its timeout; its worker may hang");
        let rule = move |known: Option<&Worker>| Ok(known.map(worker::flagged));
        app.store.decide_worker(&worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
        record_outcome(app, &holder, &job, true).await?;
        notify_worker(app, &holder);
    }
    Ok(())
}
