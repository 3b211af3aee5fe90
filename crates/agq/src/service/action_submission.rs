//! Submission of actions: one plan, N inputs, N jobs, all of them or none (AGQ API spec §4).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::{
    documents::{ActionSubmission, Plan, Requires},
    ids::ActionId,
    reserved_keys::READY,
};
use agenix_rules::{
    action::{self, Action},
    action_bounds, blob, concurrency_key,
    job::{JobParams, NewJob},
    rejection::Rejection,
    unique_jobs,
};
use serde_json::value::RawValue;

use super::{
    approvals,
    budgets::{self, SubmitterBudget},
    chunked_submission::{self, NewInputs, new_jobs},
    lookup, owned,
    queues::check_capacity,
    staged_jobs,
};
use crate::{
    app::{AppState, Submitter},
    error::{CommandError, Result},
    store::{AddOutcome, NewAction},
};

/// Returns the id and the number of jobs. Idempotent for an equal action with the same id.
pub(crate) async fn submit(
    app: &AppState,
    by: Submitter<'_>,
    submission: ActionSubmission,
) -> Result<(ActionId, usize)> {
    let plan = plan_for(app, by, &submission).await?;
    action::check(&submission, &plan, &app.settings.limits)?;
    unique_jobs::check(&submission, app.settings.inputs_at_once)?;
    let (now, wishes) = (app.clock.now(), action::options(&submission));
    if let Some(agent) = by.agent {
        agent.terms.check(&submission, now)?;
    }
    app.shares.terms().check_named(submission.share.as_ref(), by.owner)?;
    let queue = submission.queue.as_ref().map_or(READY, |queue| queue.as_str());
    check_room(app, &submission, queue).await?;
    let action_id = submission.action_id.clone().unwrap_or_else(|| app.clock.action_id());
    let jobs_created = submission.inputs.len();
    let budget = SubmitterBudget::of(app, by.owner);
    let action = Action {
        queue: queue.into(),
        priority: submission.priority,
        run_at: action::run_at(&wishes, now),
        is_open: submission.open,
        wishes,
        halt: submission.halt,
        max_running: submission.max_running,
        labels: submission.labels,
        owner: by.owner.cloned(),
        ..Action::new(action_id.clone(), submission.plan_id, now)
    };
    let terms = JobParams::of(&action, &plan, app.settings.job_timeout_ms, now);
    let of_jobs = budget.as_ref().map(|budget| budget.of_job(Some(&plan), terms.timeout_ms)).transpose()?;
    let action = Action { budget: of_jobs.map(Box::new), ..action };
    let inputs = match chunked_submission::chunks(submission.inputs, app.settings.inputs_at_once) {
        Ok(chunks) => {
            blob::check_reads_none(&plan)?;
            let plan_id = action.plan_id.clone();
            let charge = |later| budget.as_ref().map(|budget| budget.charge(later));
            let stored = chunked_submission::store(app, action, &plan, &chunks, jobs_created, charge);
            let (jobs_created, is_staged) = Box::pin(stored).await?;
            if is_staged {
                Box::pin(staged_jobs::recheck(app, &plan_id, &action_id)).await;
            }
            return Ok((action_id, jobs_created));
        }
        Err(inputs) => inputs,
    };
    let named = inputs.iter().enumerate().map(|(at, input)| blob::input_blobs(&plan, at, input));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let of_plan = (&action.plan_id, &action_id);
    let is_staged = approvals::is_submission_staged(app, by.owner, of_plan, jobs_created as u64).await?;
    let terms = JobParams { is_staged, ..terms };
    let jobs = new_jobs(app, (&action, &plan, &terms), inputs)?;
    let of_job = |(job, blobs): (&NewJob, BTreeSet<_>)| (job.job_id.clone(), blobs);
    let named = jobs.iter().zip(named).filter(|(_, blobs)| !blobs.is_empty());
    let input_blobs = named.map(of_job).collect();
    let staged_plan = is_staged.then(|| action.plan_id.clone());
    let new = NewAction {
        needs: action_bounds::needs(&action, &plan),
        terms,
        jobs,
        documents: Vec::new(),
        input_blobs,
        action,
        charge: budget.map(|budget| budget.charge(0)),
    };
    let jobs_created = add(app, new).await?;
    if let Some(plan_id) = staged_plan {
        // Boxed, because every submission contains the future.
        Box::pin(staged_jobs::recheck(app, &plan_id, &action_id)).await;
    }
    Ok((action_id, jobs_created))
}

/// Checks that the queue has room for the jobs. A repeated submission needs no room, because its
/// jobs are stored. The action is read after the check, because the check counts its jobs.
async fn check_room(app: &AppState, submission: &ActionSubmission, queue: &str) -> Result<()> {
    match check_capacity(app, &[(queue.to_owned(), submission.inputs.len() as u64)].into()).await {
        Err(CommandError::Rejected(Rejection::QueueFull { .. })) if is_known(app, submission).await? => {
            Ok(())
        }
        checked => checked,
    }
}

/// Stores an action with one write, and returns the number of its jobs. A client repeats a
/// submission whose reply was lost, and gets the reply of the first submission.
async fn add(app: &AppState, new: NewAction) -> Result<usize> {
    let (action_id, submitted) = (new.action.action_id.clone(), new.jobs.len());
    let may_leave_out = new.may_leave_out();
    match app.store.add_action(new).await?? {
        AddOutcome::Same if may_leave_out => {
            let known = app.store.action(&action_id).await?;
            Ok(known.map_or(0, |(known, _)| usize::try_from(known.total_jobs).unwrap_or(usize::MAX)))
        }
        AddOutcome::New | AddOutcome::Same => Ok(submitted),
        AddOutcome::Stands(stands) => Ok(submitted.saturating_sub(stands.len())),
        AddOutcome::Differs => Err(Rejection::ActionExists(action_id).into()),
    }
}

/// Returns the plan of a submission. For an agent, the plans of others do not exist.
async fn plan_for(app: &AppState, by: Submitter<'_>, submission: &ActionSubmission) -> Result<Arc<Plan>> {
    let plan_id = &submission.plan_id;
    if let Some(agent) = by.agent
        && !owned::plan(app, agent.owner, plan_id).await?
    {
        return Err(Rejection::PlanNotFound(plan_id.clone()).into());
    }
    match lookup::plan(app, plan_id).await {
        // A repeated submission may find its plan deleted.
        Err(CommandError::Rejected(Rejection::PlanNotFound(_))) if is_known(app, submission).await? => {
            Ok(Arc::new(no_plan()))
        }
        found => found,
    }
}

async fn is_known(app: &AppState, submission: &ActionSubmission) -> Result<bool> {
    match &submission.action_id {
        Some(action_id) => Ok(app.store.action(action_id).await?.is_some()),
        None => Ok(false),
    }
}

/// Placeholder that no job gets, because the store rejects a new action without its plan.
fn no_plan() -> Plan {
    Plan {
        plan_id: None,
        plan_description: None,
        tasks: Vec::new(),
        max_retries: 0,
        timeout_secs: None,
        pipefail: true,
        requires: Requires::default(),
        sandbox: None,
        inputs: BTreeMap::new(),
        max_running: None,
        rate: None,
        retry_memory_factor: None,
    }
}

/// Returns the action with the bound of a run of `plan`. The plan that the action was submitted
/// with may have been replaced by one whose runs use more of the budget.
fn with_bound_of_plan(app: &AppState, by: Submitter<'_>, action: Action, plan: &Plan) -> Result<Action> {
    let Some(budget) = SubmitterBudget::of(app, by.owner) else { return Ok(action) };
    let terms = JobParams::of(&action, plan, app.settings.job_timeout_ms, app.clock.now());
    let of_jobs = budget.of_job(Some(plan), terms.timeout_ms)?;
    Ok(Action { budget: Some(Box::new(of_jobs)), ..action })
}

/// Returns the number of jobs of the action. `at` is the index of the first input, if it is named.
pub(crate) async fn add_inputs(
    app: &AppState,
    by: Submitter<'_>,
    action_id: &ActionId,
    inputs: Vec<Box<RawValue>>,
    at: Option<u64>,
) -> Result<u64> {
    let action = chunked_submission::finished_action(app, action_id).await?;
    if let Some(agent) = by.agent {
        agent.terms.check_queue(&action.queue)?;
    }
    let plan = lookup::plan(app, &action.plan_id).await?;
    blob::check_reads_none(&plan)?;
    let limits = &app.settings.limits;
    action::check_inputs(&inputs, &plan, limits)?;
    if let Some(concurrency) = &action.wishes.scheduling.concurrency {
        concurrency_key::check_inputs(concurrency, &inputs, limits)?;
    }
    // Repeated inputs need neither room in the queue nor an approval.
    let added = action::count_new(&action, at, inputs.len() as u64);
    check_capacity(app, &[(action.queue.clone(), added)].into()).await?;
    let charge = budgets::charge_of_inputs(app, by.owner, action.owner.as_ref())?;
    let action = with_bound_of_plan(app, by, action, &plan)?;
    let jobs = action.total_jobs.saturating_add(added);
    let of_plan = (&action.plan_id, action_id);
    let is_staged = added > 0 && approvals::is_staged(app, by.owner, of_plan, jobs).await?;
    let inputs = NewInputs { inputs, at, is_staged };
    let total = chunked_submission::append(app, &action, &plan, inputs, charge).await?;
    if is_staged {
        Box::pin(staged_jobs::recheck(app, &action.plan_id, action_id)).await;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{parse, parse_object};
    use agenix_rules::{fair_share::KeyShares, owner::Owner};
    use serde_json::value::RawValue;

    use super::{add_inputs, submit};
    use crate::{
        app::Submitter,
        service::{plans, queues, schedules, workflow},
        startup::services::without_tasks,
    };

    const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;
    const ACTION: &str = r#"{"plan_id":"p","inputs":[{}],"share":"night"}"#;

    #[tokio::test]
    async fn shares_are_named_by_those_whom_an_admin_lets() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let [alice, bob] = ["alice", "bob"].map(|name| Owner::new("client", name));
        let named = KeyShares { named: ["night".parse().unwrap()].into(), ..KeyShares::default() };
        app.shares.set_keys(&[(alice.clone(), named)]);
        plans::submit(&app, Submitter::NOBODY, PLAN).await.unwrap();
        let schedule = format!(r#"{{"name":"s","expression":"* * * * *","action":{ACTION}}}"#);
        let workflow = format!(r#"{{"name":"w","steps":[{ACTION}]}}"#);
        for (owner, is_right) in [(&alice, true), (&bob, false)] {
            let by = Submitter { owner: Some(owner), ..Submitter::NOBODY };
            let action = submit(&app, by, parse(ACTION.as_bytes()).unwrap()).await.map(drop);
            let schedule =
                schedules::set(&app, Some(owner), parse_object(schedule.as_bytes()).unwrap(), true).await;
            let workflow =
                workflow::submit(&app, Some(owner), parse_object(workflow.as_bytes()).unwrap()).await;
            for outcome in [action, schedule.map(drop), workflow.map(drop)] {
                let refused = outcome.err().map(|error| error.to_string());
                assert_eq!(refused.is_none(), is_right, "{owner}: {refused:?}");
                assert!(refused.is_none_or(|text| text.contains("may not use the share 'night'")));
            }
        }
        let lanes = app.store.lanes().await.unwrap();
        let shares: Vec<_> = lanes.iter().map(|lane| lane.needs.share.as_deref()).collect();
        assert_eq!(shares, [Some("share:night")]);
    }

    #[tokio::test]
    async fn repeated_submission_needs_no_room_in_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        plans::submit(&app, Submitter::NOBODY, PLAN).await.unwrap();
        let bound = parse(br#"{"backpressure":{"max_depth":3}}"#).unwrap();
        queues::configure(&app, "ready", bound).await.unwrap();
        let submit =
            async |json: &str| submit(&app, Submitter::NOBODY, parse(json.as_bytes()).unwrap()).await;
        let action_id = "a".parse().unwrap();
        let add = async |at| {
            let inputs = vec![RawValue::from_string("{}".into()).unwrap()];
            add_inputs(&app, Submitter::NOBODY, &action_id, inputs, at).await
        };
        let open = r#"{"action_id":"a","plan_id":"p","inputs":[{},{}],"open":true}"#;
        for _repeat in 0..2 {
            assert_eq!(submit(open).await.unwrap().1, 2);
            assert_eq!(add(Some(2)).await.unwrap(), 3);
        }
        let other = submit(r#"{"plan_id":"p","inputs":[{}]}"#).await.map(drop);
        for refused in [other, add(Some(3)).await.map(drop), add(None).await.map(drop)] {
            assert_eq!(refused.unwrap_err().to_string(), "Queue is full: ready has 3 jobs, at most 3");
        }
    }
}
