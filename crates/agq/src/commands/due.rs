//! Jobs whose time has come: they become available, or their attempt is over. The reaper sees to it, and whoever looks for a job and
//! finds none.

use std::collections::BTreeMap;

use agenix_protocol::ids::WorkerId;
use agenix_rules::{
    job::{self, Job, RuleOutcome},
    worker::{self, Worker},
};
use tracing::warn;

use super::{
    notice::{note_outcome, nudge},
    ojs,
};
use crate::{
    app::{House, is_connection},
    error::CommandError,
    store::{JobRule, Promise},
};

/// Gives the jobs whose time has come their turn, the earliest first, at most so many; how many there were.
pub(crate) async fn wake_due(house: &House, limit: usize) -> Result<usize, CommandError> {
    let now = house.clock.now();
    let due = house.store.due(now, limit).await?;
    let wake = |job_id| {
        let jitter = house.clock.chance();
        let rule: JobRule = Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(RuleOutcome::Unchanged, |job| job::due(job, now, jitter)))
        });
        house.store.decide(job_id, Promise::Durable, None, rule)
    };
    let answers: Vec<_> = due.iter().map(wake).collect();
    let mut late = BTreeMap::new();
    for answer in answers {
        let Some(change) = answer.await?? else { continue };
        let took_too_long = change.after.failures > change.before.failures;
        ojs::follow(house, Some(&change)).await?;
        if let Some(holder) = change.loser().filter(|_| took_too_long) {
            late.insert(holder.to_owned(), change.before);
        }
    }
    flag_workers(house, late).await?;
    Ok(due.len())
}

/// Jobs took longer than they may: their workers may hang, and learn that the jobs are not theirs any more.
async fn flag_workers(house: &House, late: BTreeMap<String, Job>) -> Result<(), CommandError> {
    for (holder, job) in late.into_iter().filter(|(holder, _)| !is_connection(holder)) {
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        warn!(%worker_id, "a job took longer than it may; its worker may hang");
        let rule = move |known: Option<&Worker>| Ok(known.map(worker::flagged));
        house.store.decide_worker(&worker_id, Promise::Visible, None, Box::new(rule)).await??;
        note_outcome(house, &holder, &job, true).await?;
        nudge(house, &holder);
    }
    Ok(())
}
