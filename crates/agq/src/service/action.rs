//! ACTION.*: one plan, N inputs, N jobs, all of them or none (AGQ API spec §4).

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::{
    documents::{self, ActionSubmission, Plan, Requires, Status},
    ids::{ActionId, JobId},
    request::{Page, Slice},
    reserved_keys::READY,
    resp::Reply,
};
use agenix_rules::{
    action::{self, Action},
    job::{self, Job, JobParams, NewJob},
    plan,
    rejection::Rejection,
};
use serde_json::value::RawValue;

use super::{
    ojs::check_room,
    submission,
    worker_health::{notify_worker, withdraw},
    workflow,
};
use crate::{
    app::AppState,
    error::CommandError,
    resp::outcome::{CommandResult, json},
    store::{AckLevel, ActionRule, AddOutcome, AppendJobs, JobRule, NewAction},
};

/// How many jobs of an action are cancelled or tried again in one step: others get their turn between two.
const STEP: usize = 500;

/// ACTION.SUBMIT
pub(crate) async fn submit(app: &AppState, json: &[u8]) -> CommandResult {
    let submission: ActionSubmission = documents::parse_object(json).map_err(|error| invalid(&error))?;
    let (action_id, jobs_created) = submit_action(app, submission).await?;
    Ok(Reply::Simple(format!("OK action_id={action_id} jobs_created={jobs_created}")))
}

/// Submits an action; its id, and how many jobs it has.
pub(crate) async fn submit_action(
    app: &AppState,
    submission: ActionSubmission,
) -> Result<(ActionId, usize), CommandError> {
    let plan = match super::plan::find(app, &submission.plan_id).await {
        Ok(plan) => plan,
        // Its plan may have been deleted since it was submitted for the first time: the store knows whether it was.
        Err(CommandError::Rejected(Rejection::PlanNotFound(_))) if is_known(app, &submission).await? => {
            Arc::new(no_plan())
        }
        Err(error) => return Err(error),
    };
    action::check(&submission, &plan, &app.settings.limits)?;
    let queue = submission.queue.as_ref().map_or(READY, |queue| queue.as_str());
    check_room(app, &[(queue.to_owned(), submission.inputs.len() as u64)].into()).await?;
    let (now, wishes) = (app.clock.now(), action::options(&submission));
    let action_id = submission.action_id.clone().unwrap_or_else(|| app.clock.action_id());
    let jobs_created = submission.inputs.len();
    let action = Action {
        queue: submission.queue.as_ref().map_or(READY, |queue| queue.as_str()).into(),
        priority: submission.priority,
        run_at: action::run_at(&wishes, now),
        is_open: submission.open,
        wishes,
        halt: submission.halt,
        ..Action::new(action_id.clone(), submission.plan_id, now)
    };
    let inputs = match submission::pieces(submission.inputs, app.settings.inputs_at_once) {
        Ok(pieces) => {
            let jobs_created = submission::store(app, action, &plan, &pieces, jobs_created).await?;
            return Ok((action_id, jobs_created));
        }
        Err(inputs) => inputs,
    };
    let new = NewAction {
        needs: plan::needs(&plan),
        terms: JobParams::of(&action, &plan, app.settings.job_timeout_ms, now),
        jobs: new_jobs(app, inputs),
        notes: Vec::new(),
        action,
    };
    match app.store.add_action(new).await?? {
        // The same submission again is one whose answer was lost: it is answered as the first time.
        AddOutcome::New | AddOutcome::Same => Ok((action_id, jobs_created)),
        // Only jobs that are to be the only ones of their kind have others that stand for them; these are not.
        AddOutcome::Differs | AddOutcome::Stands(_) => Err(Rejection::ActionExists(action_id).into()),
    }
}

/// Whether there is an action of this id already.
async fn is_known(app: &AppState, submission: &ActionSubmission) -> Result<bool, CommandError> {
    match &submission.action_id {
        Some(action_id) => Ok(app.store.action(action_id).await?.is_some()),
        None => Ok(false),
    }
}

/// Stands for a plan that is not there any more; no job is made of it, for the store takes no action without its plan.
fn no_plan() -> Plan {
    Plan {
        plan_id: None,
        plan_description: None,
        tasks: Vec::new(),
        max_retries: 0,
        timeout_secs: None,
        pipefail: true,
        requires: Requires::default(),
    }
}

pub(crate) fn new_jobs(app: &AppState, inputs: Vec<Box<RawValue>>) -> Vec<NewJob> {
    let new = |input: Box<RawValue>| NewJob { job_id: app.clock.job_id(), input: input.into(), own: None };
    inputs.into_iter().map(new).collect()
}

fn invalid(error: &documents::BadDocument) -> Rejection {
    Rejection::InvalidAction(error.to_string())
}

/// ACTION.ADD
pub(crate) async fn add(app: &AppState, action_id: ActionId, json: &[u8], at: Option<u64>) -> CommandResult {
    let inputs: Vec<Box<RawValue>> = documents::parse(json).map_err(|error| invalid(&error))?;
    let jobs_created = inputs.len();
    let total_jobs = add_inputs(app, &action_id, inputs, at).await?;
    Ok(Reply::Simple(format!("OK action_id={action_id} jobs_created={jobs_created} total_jobs={total_jobs}")))
}

/// Adds `inputs` to an open action, and returns the number of jobs that the action then has. `at`
/// is the place of the first input, if the caller says one.
pub(crate) async fn add_inputs(
    app: &AppState,
    action_id: &ActionId,
    inputs: Vec<Box<RawValue>>,
    at: Option<u64>,
) -> Result<u64, CommandError> {
    submission::finish(app, action_id).await?;
    let (action, _) = find(app, action_id).await?;
    let plan = super::plan::find(app, &action.plan_id).await?;
    action::check_inputs(&inputs, &plan, &app.settings.limits)?;
    check_room(app, &[(action.queue.clone(), inputs.len() as u64)].into()).await?;
    let now = app.clock.now();
    let more = AppendJobs {
        at,
        needs: plan::needs(&plan),
        terms: JobParams::of(&action, &plan, app.settings.job_timeout_ms, now),
        jobs: new_jobs(app, inputs),
        now,
        action_id: action_id.clone(),
    };
    Ok(app.store.add_jobs(more).await??)
}

/// ACTION.CLOSE
pub(crate) async fn close(app: &AppState, action_id: &ActionId) -> CommandResult {
    close_for_good(app, action_id).await?;
    Ok(Reply::ok())
}

/// Closes an action for good, so that nobody can add jobs to the action any more.
pub(crate) async fn close_for_good(app: &AppState, action_id: &ActionId) -> Result<(), CommandError> {
    submission::finish(app, action_id).await?;
    let id = action_id.clone();
    let rule: ActionRule = Box::new(move |action: Option<&Action>| {
        Ok(action::closed(action.ok_or_else(|| Rejection::ActionNotFound(id.clone()))?))
    });
    Ok(app.store.decide_action(action_id, rule).await??)
}

/// ACTION.STATUS
pub(crate) async fn status(app: &AppState, action_id: &ActionId) -> CommandResult {
    let found = app.store.action(action_id).await?;
    Ok(found.map_or(Reply::Nil, |(action, tally)| json(&action::status(&action, &tally))))
}

/// ACTION.LIST
pub(crate) async fn list(app: &AppState, page: Page) -> CommandResult {
    Ok(Reply::bulks(app.store.actions(page).await?.into_iter().map(String::from)))
}

async fn find(app: &AppState, action_id: &ActionId) -> Result<(Action, action::JobCounts), CommandError> {
    let found = app.store.action(action_id).await?;
    Ok(found.ok_or_else(|| Rejection::ActionNotFound(action_id.clone()))?)
}

/// ACTION.CANCEL
pub(crate) async fn cancel(app: &AppState, action_id: &ActionId) -> CommandResult {
    // First it is closed, so that nothing comes in behind.
    close_for_good(app, action_id).await?;
    let cancelled = cancel_all(app, action_id).await?;
    Ok(Reply::Simple(format!("OK cancelled={cancelled}")))
}

/// Cancels the jobs of an action that have not ended, and returns their number.
pub(crate) async fn cancel_all(app: &AppState, action_id: &ActionId) -> Result<usize, CommandError> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending, Status::Running], Slice::ALL).await?;
    let now = app.clock.now();
    decide_jobs(app, &jobs, || {
        Box::new(move |job: Option<&Job>| {
            job.map_or(Ok(job::RuleOutcome::Unchanged), |job| job::cancelled(job, now))
        })
    })
    .await
}

/// Handles `ACTION.CANCEL … UNSTARTED`: cancels the pending jobs of an action, and asks workers to
/// give up the jobs that they have claimed and not started. A started job goes on, even if agq has
/// not heard of its start yet.
pub(crate) async fn cancel_unstarted(app: &AppState, action_id: &ActionId) -> CommandResult {
    close_for_good(app, action_id).await?;
    let cancelled = cancel_pending(app, action_id).await?;
    take_back(app, action_id).await?;
    Ok(Reply::Simple(format!("OK cancelled={cancelled}")))
}

/// Cancels the pending jobs of an action, and returns their number.
pub(crate) async fn cancel_pending(app: &AppState, action_id: &ActionId) -> Result<usize, CommandError> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending], Slice::ALL).await?;
    let now = app.clock.now();
    decide_jobs(app, &jobs, || {
        Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::cancelled_unclaimed(job, now)))
        })
    })
    .await
}

/// Asks workers to give up the jobs of an action that they have claimed and not started.
pub(crate) async fn take_back(app: &AppState, action_id: &ActionId) -> Result<(), CommandError> {
    let mut holders = BTreeSet::new();
    for job_id in app.store.jobs_of(action_id, vec![Status::Running], Slice::ALL).await? {
        let job = app.store.job_record(&job_id).await?;
        holders.extend(job.filter(Job::may_be_unstarted).and_then(|job| job.holder));
    }
    holders.iter().for_each(|holder| withdraw(app, holder, action_id));
    Ok(())
}

/// ACTION.RETRY
pub(crate) async fn retry(app: &AppState, action_id: &ActionId) -> CommandResult {
    let (action, _) = find(app, action_id).await?;
    let plan = super::plan::find(app, &action.plan_id).await?;
    let jobs = app.store.jobs_of(action_id, vec![Status::Failed, Status::Dead], Slice::ALL).await?;
    if let Some(first) = jobs.first()
        && let Some(stored) = app.store.job(first).await?
    {
        plan::check_same_needs(&plan, &action.plan_id, &stored.needs)?;
    }
    // Nothing is tried again of an action whose jobs have all ended well.
    let place = if jobs.is_empty() { None } else { workflow::place_of_action(app, action_id).await? };
    workflow::resume(app, place.as_ref()).await?;
    let retried = decide_jobs(app, &jobs, || {
        Box::new(|job: Option<&Job>| {
            job.map_or(Ok(job::RuleOutcome::Unchanged), |job| job::retried(job, true))
        })
    })
    .await?;
    workflow::resume(app, place.as_ref()).await?;
    Ok(Reply::Simple(format!("OK retried={retried}")))
}

/// Applies a rule to jobs; how many it changed. One that changed its status meanwhile, so that the rule refuses it, is passed
/// by. Who loses one by it is told.
async fn decide_jobs(
    app: &AppState,
    jobs: &[JobId],
    rule: impl Fn() -> JobRule,
) -> Result<usize, CommandError> {
    let (mut changed, mut losers) = (0, BTreeSet::new());
    for step in jobs.chunks(STEP) {
        let answers: Vec<_> =
            step.iter().map(|job_id| app.store.decide(job_id, AckLevel::Durable, None, rule())).collect();
        for answer in answers {
            let Ok(Some(change)) = answer.await? else { continue };
            changed += 1;
            losers.extend(change.released_holder().map(str::to_owned));
        }
    }
    losers.iter().for_each(|holder| notify_worker(app, holder));
    Ok(changed)
}
