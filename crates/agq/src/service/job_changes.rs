//! Rules applied to one job or to many jobs. `jobs` and `actions` also follow up the ends of jobs.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use agenix_protocol::{
    ids::{JobId, WorkerId},
    time::Timestamp,
};
use agenix_rules::{
    job::{self, Job, RuleOutcome},
    rejection::Rejection,
};

use super::worker_messages::notify_worker;
use crate::{
    app::AppState,
    error::Result,
    store::{AckLevel, JobChange, JobRule, RuleResult},
};

/// Jobs in one step of [`decide_jobs`]. Other writes get their turn between two steps.
const STEP: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct BulkChange {
    pub(crate) changed: usize,
    /// Ids of the workflows whose jobs have ended.
    pub(crate) workflows: BTreeSet<String>,
}

impl BulkChange {
    pub(crate) fn add(&mut self, change: &JobChange) {
        self.changed += 1;
        self.workflows.extend(workflow_to_advance(change).map(str::to_owned));
    }
}

/// Returns the id of the workflow that a job belongs to, if `change` has ended the job.
pub(crate) fn workflow_to_advance(change: &JobChange) -> Option<&str> {
    let ended = Some(&change.after).filter(|after| after.is_ended())?;
    ended.ojs.as_ref()?.workflow.as_deref()
}

/// Returns a rule that rejects a job that does not exist.
pub(crate) fn for_existing(
    job_id: &JobId,
    rule: impl Fn(&Job) -> RuleResult<RuleOutcome> + Send + Sync + 'static,
) -> JobRule {
    let id = job_id.clone();
    Box::new(move |job| rule(job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?))
}

/// Returns a rule that changes nothing if the job does not exist.
pub(crate) fn if_exists(rule: impl Fn(&Job) -> RuleOutcome + Send + Sync + 'static) -> JobRule {
    Box::new(move |job| Ok(job.map_or(RuleOutcome::Unchanged, &rule)))
}

/// Skips jobs that have changed meanwhile, so that the rule rejects them. Notifies the workers that
/// lose jobs.
pub(crate) async fn decide_jobs(
    app: &AppState,
    jobs: &[JobId],
    rule: impl Fn() -> JobRule,
) -> Result<BulkChange> {
    let (mut bulk, mut released) = (BulkChange::default(), BTreeSet::new());
    for step in jobs.chunks(STEP) {
        let answers: Vec<_> =
            step.iter().map(|job_id| app.store.decide(job_id, AckLevel::Durable, None, rule())).collect();
        for answer in answers {
            let Ok(Some(change)) = answer.await? else { continue };
            bulk.add(&change);
            released.extend(change.released_holder().map(str::to_owned));
        }
    }
    released.iter().for_each(|holder| notify_worker(app, holder));
    Ok(bulk)
}

/// `refuses_ended` decides between a rejection and no change of an ended job.
pub(crate) async fn cancel(app: &AppState, job_id: &JobId, refuses_ended: bool) -> Result<Option<JobChange>> {
    let now = app.clock.now();
    let rule = for_existing(job_id, move |job| {
        if refuses_ended && job.is_ended() {
            return Err(Rejection::JobEnded(job.status()));
        }
        job::cancelled(job, now)
    });
    let change = app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    if let Some(holder) = change.as_ref().and_then(JobChange::released_holder) {
        notify_worker(app, holder);
    }
    Ok(change)
}

/// Returns a job to its queue, because the reply with the claim may be lost, unless `holder` has
/// reported the `attempt`.
pub(crate) async fn release_unreported(
    app: &AppState,
    job_id: &JobId,
    holder: &str,
    attempt: u32,
) -> Result<()> {
    let rule = release_rule(holder, Some(attempt), app.clock.now());
    app.store.decide(job_id, AckLevel::Applied, None, rule).await??;
    Ok(())
}

pub(crate) async fn release_all(app: &AppState, holder: &str) -> Result<()> {
    let now = app.clock.now();
    decide_all(app, holder, || release_rule(holder, None, now)).await.map(drop)
}

/// The loss by a dead holder counts against each job, so that a job may end as dead.
pub(crate) async fn requeue_lost(app: &AppState, holder: &str) -> Result<BulkChange> {
    let now = app.clock.now();
    decide_all(app, holder, || {
        let holder = holder.to_owned();
        if_exists(move |job| job::abandoned(job, &holder, now))
    })
    .await
}

/// Takes back the jobs that a newly registered worker no longer `has`.
pub(crate) async fn reclaim(
    app: &AppState,
    worker_id: &WorkerId,
    has: Option<Vec<JobId>>,
) -> Result<BulkChange> {
    let has: Option<Arc<HashSet<JobId>>> = has.map(|has| Arc::new(has.into_iter().collect()));
    let now = app.clock.now();
    decide_all(app, worker_id.as_str(), || {
        let (holder, has) = (worker_id.clone(), has.clone());
        if_exists(move |job| job::reclaimed(job, holder.as_str(), has.as_deref(), now))
    })
    .await
}

/// Applies a rule to every job of `holder`, in one group of writes.
async fn decide_all(app: &AppState, holder: &str, rule: impl Fn() -> JobRule) -> Result<BulkChange> {
    let jobs = app.store.held_by(holder).await?;
    let answers: Vec<_> =
        jobs.iter().map(|job_id| app.store.decide(job_id, AckLevel::Durable, None, rule())).collect();
    let mut bulk = BulkChange::default();
    for answer in answers {
        if let Some(change) = answer.await?? {
            bulk.add(&change);
        }
    }
    Ok(bulk)
}

fn release_rule(holder: &str, attempt: Option<u32>, now: Timestamp) -> JobRule {
    let holder = holder.to_owned();
    if_exists(move |job| job::given_back(job, &holder, attempt, now))
}
