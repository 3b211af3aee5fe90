//! Rules applied to an action and to its jobs. `actions` also follows up the ends of the jobs.

use std::collections::BTreeSet;

use agenix_protocol::{documents::Status, ids::ActionId, request::Slice};
use agenix_rules::{
    action::{self, Action},
    job::{self, Job, RuleOutcome},
    rejection::Rejection,
};

use super::{
    chunked_submission,
    job_changes::{BulkChange, decide_jobs, if_exists},
    worker_messages::withdraw,
};
use crate::{app::AppState, error::Result, store::ActionRule};

/// Closes an action to further jobs for good, once the jobs of its submission are stored.
pub(crate) async fn close(app: &AppState, action_id: &ActionId) -> Result<()> {
    drop(chunked_submission::finished_action(app, action_id).await?);
    let id = action_id.clone();
    let rule: ActionRule = Box::new(move |action: Option<&Action>| {
        Ok(action::closed(action.ok_or_else(|| Rejection::ActionNotFound(id.clone()))?))
    });
    Ok(app.store.decide_action(action_id, rule).await??)
}

/// Closes an action, and cancels its jobs that have not ended.
pub(crate) async fn cancel(app: &AppState, action_id: &ActionId) -> Result<BulkChange> {
    close(app, action_id).await?;
    cancel_jobs(app, action_id).await
}

pub(crate) async fn cancel_jobs(app: &AppState, action_id: &ActionId) -> Result<BulkChange> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending, Status::Running], Slice::ALL).await?;
    let now = app.clock.now();
    decide_jobs(app, &jobs, || {
        if_exists(move |job| job::cancelled(job, now).unwrap_or(RuleOutcome::Unchanged))
    })
    .await
}

pub(crate) async fn cancel_pending(app: &AppState, action_id: &ActionId) -> Result<BulkChange> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending], Slice::ALL).await?;
    let now = app.clock.now();
    decide_jobs(app, &jobs, || if_exists(move |job| job::cancelled_unclaimed(job, now))).await
}

/// Asks workers to give up the jobs of an action that they have claimed and not started.
pub(crate) async fn withdraw_unstarted(app: &AppState, action_id: &ActionId) -> Result<()> {
    let mut holders = BTreeSet::new();
    for job_id in app.store.jobs_of(action_id, vec![Status::Running], Slice::ALL).await? {
        let job = app.store.job_record(&job_id).await?;
        holders.extend(job.filter(Job::may_be_unstarted).and_then(|job| job.holder));
    }
    holders.iter().for_each(|holder| withdraw(app, holder, action_id));
    Ok(())
}
