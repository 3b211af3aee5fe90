//! Submission of jobs of the Open Job Spec: all jobs of a request are stored, or none.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use agenix_protocol::{
    documents::{OjsDocument, Plan, parse, to_json},
    ids::{ActionId, JobId, PlanId},
    reserved_keys::READY,
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action},
    blob,
    budget::{JobBudget, SubmissionCharge},
    capability::Needs,
    fair_share::share_of,
    job::{Job, JobOverrides, JobParams, NewJob, Ojs, QueuePosition},
    ojs::{self, DEFAULT_QUEUE, JobSubmission, OJS_PLAN, OJS_TAG},
    owner::Owner,
    plan,
    rejection::Rejection,
};
use tracing::warn;

use super::{approvals, budgets::SubmitterBudget, lookup, queues, staged_jobs};
use crate::{
    app::AppState,
    error::{CommandError, Result},
    store::{AddOutcome, NewAction, StoredJob, StoredPlan},
};

pub(crate) struct Enqueued {
    /// The new job, or the equal job that stands for it.
    pub(crate) job: StoredJob,
    pub(crate) is_new: bool,
}

/// New job without its position in a queue.
struct PreparedJob {
    new: NewJob,
    own: JobOverrides,
}

pub(crate) async fn enqueue(
    app: &AppState,
    owner: Option<&Owner>,
    document: OjsDocument,
) -> Result<Enqueued> {
    let now = app.clock.now();
    let submitted = ojs::read(document, now)?;
    let mut all = enqueue_checked(app, owner, vec![submitted], now).await?;
    Ok(all.pop().ok_or_else(|| Rejection::InvalidJob("the request has no job".into()))?)
}

pub(crate) async fn enqueue_all(
    app: &AppState,
    owner: Option<&Owner>,
    documents: Vec<OjsDocument>,
) -> Result<Vec<Enqueued>> {
    let now = app.clock.now();
    if agenix_protocol::limits::exceeds(documents.len(), app.settings.limits.max_inputs) {
        return Err(Rejection::TooManyInputs(app.settings.limits.max_inputs).into());
    }
    let mut all = Vec::with_capacity(documents.len());
    for (at, document) in documents.into_iter().enumerate() {
        all.push(ojs::read(document, now).map_err(|rejection| with_path(rejection, at))?);
    }
    enqueue_checked(app, owner, all, now).await
}

/// Returns the id of the equal job that stands for the new job, if there is one.
pub(crate) async fn submit_named(
    app: &AppState,
    owner: Option<&Owner>,
    submitted: JobSubmission,
) -> Result<Option<JobId>> {
    let now = app.clock.now();
    let mut enqueued = enqueue_checked(app, owner, vec![submitted], now).await?;
    Ok(enqueued.pop().filter(|one| !one.is_new).map(|one| one.job.job.job_id))
}

/// Adds the index of the job to a rejection.
fn with_path(rejection: Rejection, at: usize) -> Rejection {
    match rejection {
        Rejection::InvalidJob(text) => Rejection::InvalidJob(format!("jobs[{at}]: {text}")),
        Rejection::InvalidRetry(text) => Rejection::InvalidRetry(format!("jobs[{at}]: {text}")),
        other => other,
    }
}

async fn enqueue_checked(
    app: &AppState,
    owner: Option<&Owner>,
    all: Vec<JobSubmission>,
    now: Timestamp,
) -> Result<Vec<Enqueued>> {
    let budget = SubmitterBudget::of(app, owner);
    let mut prepared = prepare_jobs(app, all, budget.as_ref()).await?;
    for job in &mut prepared {
        job.own.needs.share = share_of(None, owner);
    }
    check_room(app, &prepared).await?;
    let action_id = match prepared.as_slice() {
        [one] => ActionId::new(one.new.job_id.as_str()).unwrap_or_else(|_| app.clock.action_id()),
        _ => app.clock.action_id(),
    };
    let staged = stage(app, owner, &action_id, &mut prepared).await?;
    let action = Action { owner: owner.cloned(), ..action_of(&action_id, &prepared, now) };
    let charge = budget.map(|budget| budget.charge(0));
    let added = add(app, &action, &prepared, charge).await?;
    for plan_id in &staged {
        staged_jobs::recheck(app, plan_id, &action_id).await;
    }
    let stand_ins: HashMap<JobId, JobId> = match added {
        AddOutcome::New => HashMap::new(),
        AddOutcome::Stands(stands) => stands.into_iter().map(|stand| (stand.job_id, stand.by)).collect(),
        // The action of a single job has the id of the job.
        AddOutcome::Same | AddOutcome::Differs => {
            let taken = prepared.first().map(|prepared| Rejection::JobExists(prepared.new.job_id.clone()));
            return Err(taken.unwrap_or(Rejection::ActionExists(action_id)).into());
        }
    };
    let has_new = stand_ins.len() < prepared.len();
    let mut enqueued = Vec::with_capacity(prepared.len());
    for (index, prepared) in (0..).zip(prepared) {
        let stand_in = |job_id: &JobId| stand_ins.get(job_id).cloned();
        let Some(other) = stand_in(&prepared.new.job_id) else {
            enqueued.push(Enqueued { job: stored(prepared, &action, index, now), is_new: true });
            continue;
        };
        let job = match lookup::job(app, &other).await {
            // The other jobs are stored, and the client must not submit them again.
            Err(error) if has_new => {
                warn!(job_id = %other, %error, "a job that stands for a new job could not be read");
                let own = stored(prepared, &action, index, now);
                StoredJob { job: Job { job_id: other, ..own.job }, ..own }
            }
            found => found?,
        };
        enqueued.push(Enqueued { job, is_new: false });
    }
    Ok(enqueued)
}

/// Checks that the queues have room for the jobs. A job whose id is taken is refused for that
/// reason, so that the client of a repeated submission learns that its job is stored.
async fn check_room(app: &AppState, prepared: &[PreparedJob]) -> Result<()> {
    let checked = queues::check_capacity(app, &counts_by_queue(prepared)).await;
    if matches!(checked, Err(CommandError::Rejected(Rejection::QueueFull { .. }))) {
        for job_id in prepared.iter().filter(|job| job.own.is_named).map(|job| &job.new.job_id) {
            if app.store.job_record(job_id).await?.is_some() {
                return Err(Rejection::JobExists(job_id.clone()).into());
            }
        }
    }
    checked
}

/// Stages the jobs whose plans wait for approval, and returns these plans.
async fn stage(
    app: &AppState,
    owner: Option<&Owner>,
    action_id: &ActionId,
    prepared: &mut [PreparedJob],
) -> Result<BTreeSet<PlanId>> {
    let (mut staged, jobs) = (BTreeSet::new(), prepared.len() as u64);
    // An approval belongs to a stored plan.
    if app.plan_policy.about_jobs(jobs).is_some()
        && prepared.iter().any(|one| one.own.plan_id.as_str() == OJS_PLAN)
        && app.store.plan(&ojs_plan()).await?.is_none()
    {
        add_ojs_plan(app, app.clock.now()).await?;
    }
    for one in prepared {
        let plan_id = &one.own.plan_id;
        if staged.contains(plan_id) || approvals::is_staged(app, owner, (plan_id, action_id), jobs).await? {
            staged.insert(plan_id.clone());
            one.own.terms.is_staged = true;
        }
    }
    Ok(staged)
}

fn counts_by_queue(prepared: &[PreparedJob]) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for one in prepared {
        *counts.entry(one.own.queue.clone()).or_default() += 1;
    }
    counts
}

async fn prepare_jobs(
    app: &AppState,
    all: Vec<JobSubmission>,
    budget: Option<&SubmitterBudget<'_>>,
) -> Result<Vec<PreparedJob>> {
    let mut plans: HashMap<PlanId, Arc<Plan>> = HashMap::new();
    let mut prepared = Vec::with_capacity(all.len());
    for submitted in all {
        if let Some(plan_id) = &submitted.plan_id
            && !plans.contains_key(plan_id)
        {
            plans.insert(plan_id.clone(), lookup::plan(app, plan_id).await?);
        }
        let plan = submitted.plan_id.as_ref().and_then(|plan_id| plans.get(plan_id));
        let mut job = prepare_job(app, submitted, plan.map(Arc::as_ref))?;
        if let Some(budget) = budget {
            let of_job = budget.of_job(plan.map(Arc::as_ref), job.own.terms.timeout_ms)?;
            charge_to(&mut job.own, of_job);
        }
        prepared.push(job);
    }
    Ok(prepared)
}

fn prepare_job(app: &AppState, submitted: JobSubmission, plan: Option<&Plan>) -> Result<PreparedJob> {
    let is_named = submitted.job_id.is_some();
    let job_id = match submitted.job_id {
        Some(job_id) => job_id,
        None => JobId::new(app.clock.uuid()).expect("a UUID is letters, digits and '-'"),
    };
    if let Some(plan) = plan {
        let input = serde_json::value::RawValue::from_string(submitted.input.clone());
        let input = input.map_err(|error| Rejection::InvalidJob(error.to_string()))?;
        action::check_inputs(&[input], plan, &app.settings.limits)?;
        blob::check_reads_none(plan)?;
    }
    let default = if plan.is_some() { READY } else { DEFAULT_QUEUE };
    let queue = submitted.queue.unwrap_or_else(|| default.to_owned());
    let given = submitted.ojs.limit.clone().zip(submitted.limit);
    let (key, limit) = plan::limit_of_job(given, submitted.plan_id.as_ref().zip(plan))?.unzip();
    let needs = Needs { limit: key.clone(), ..plan.map_or_else(ojs_needs, plan::needs) };
    let own_retries = submitted.ojs.retry.as_ref().map(|retry| retry.max_attempts.saturating_sub(1));
    let plan_timeout = plan.map(|plan| {
        plan.timeout_secs.map_or(app.settings.job_timeout_ms, |seconds| seconds.saturating_mul(1000))
    });
    let terms = JobParams {
        max_retries: own_retries.or(plan.map(|plan| plan.max_retries)).unwrap_or_default(),
        timeout_ms: submitted.timeout_ms.or(plan_timeout).unwrap_or_default(),
        priority: submitted.priority,
        run_at: submitted.run_at,
        is_staged: submitted.is_staged,
        ojs: Some(Box::new(Ojs { queue: queue.clone(), limit: key, ..submitted.ojs })),
    };
    let own = JobOverrides {
        plan_id: submitted.plan_id.unwrap_or_else(ojs_plan),
        queue,
        needs,
        terms,
        is_named,
        unique: submitted.unique,
        limit,
    };
    Ok(PreparedJob { new: NewJob { job_id, input: submitted.input.into(), own: None }, own })
}

fn charge_to(own: &mut JobOverrides, budget: JobBudget) {
    own.needs.budget = Some(budget.name.clone());
    if let Some(ojs) = &mut own.terms.ojs {
        ojs.budget = Some(Box::new(budget));
    }
}

fn ojs_needs() -> Needs {
    Needs { tags: vec![OJS_TAG.to_owned()], ..Needs::default() }
}

fn ojs_plan() -> PlanId {
    PlanId::new(OJS_PLAN).expect("it is letters")
}

/// Returns the action of the jobs, with plan, queue and priority of the first job, because each job
/// has its own.
fn action_of(action_id: &ActionId, prepared: &[PreparedJob], now: Timestamp) -> Action {
    let first = prepared.first().map(|prepared| &prepared.own);
    let plan_id = first.map_or_else(ojs_plan, |own| own.plan_id.clone());
    let action = Action::new(action_id.clone(), plan_id, now);
    match first {
        None => action,
        Some(own) => Action {
            queue: own.queue.clone(),
            priority: own.terms.priority,
            run_at: own.terms.run_at,
            ..action
        },
    }
}

async fn add(
    app: &AppState,
    action: &Action,
    prepared: &[PreparedJob],
    charge: Option<SubmissionCharge>,
) -> Result<AddOutcome> {
    match app.store.add_action(new_action(action, prepared, charge.clone())).await? {
        // The plan is created with the first job, and again after it was deleted.
        Err(Rejection::PlanNotFound(plan_id)) if plan_id.as_str() == OJS_PLAN => {
            add_ojs_plan(app, action.created_at).await?;
            Ok(app.store.add_action(new_action(action, prepared, charge)).await??)
        }
        added => Ok(added?),
    }
}

fn new_action(action: &Action, prepared: &[PreparedJob], charge: Option<SubmissionCharge>) -> NewAction {
    let with_own =
        |prepared: &PreparedJob| NewJob { own: Some(Arc::new(prepared.own.clone())), ..prepared.new.clone() };
    let jobs = prepared.iter().map(with_own).collect();
    NewAction { charge, ..NewAction::new(action.clone(), jobs) }
}

/// Jobs without a plan require the tag of OJS workers.
async fn add_ojs_plan(app: &AppState, now: Timestamp) -> Result<()> {
    let text = format!(
        r#"{{"plan_id":"{OJS_PLAN}","plan_description":"Jobs of the Open Job Spec: workers fetch them over HTTP, and know what to do by their types.","tasks":[],"requires":{{"tags":["{OJS_TAG}"]}}}}"#
    );
    let plan: Plan = parse(text.as_bytes()).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    let plan = StoredPlan::unsigned(ojs_plan(), to_json(&plan), now);
    // Another request may have added the plan.
    let _is_new = app.store.add_plan(plan.into()).await??;
    Ok(())
}

fn stored(prepared: PreparedJob, action: &Action, index: u64, now: Timestamp) -> StoredJob {
    let PreparedJob { new, own } = prepared;
    let (queue, needs) = (own.queue.clone(), own.needs.clone());
    let new = NewJob { own: Some(Arc::new(own)), ..new };
    let place = QueuePosition { lane: 0, seq: 0 };
    let job: Job = new.job(action, index, place, &JobParams::default(), now);
    StoredJob { job, queue, needs, input: new.input.into(), results: None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use agenix_protocol::documents::{OjsDocument, Status, parse};

    use super::{DEFAULT_QUEUE, enqueue, enqueue_all};
    use crate::{
        service::{jobs, queues},
        startup::services::without_tasks,
    };

    fn document(json: &str) -> OjsDocument {
        parse(json.as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn repeated_job_exists_also_if_its_queue_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let bound = parse(br#"{"backpressure":{"max_depth":1}}"#).unwrap();
        queues::configure(&app, DEFAULT_QUEUE, bound).await.unwrap();
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let named = format!(r#"{{"id":"{id}","type":"one","args":[]}}"#);
        enqueue(&app, None, document(&named)).await.unwrap();
        let refusal = async |json: &str| {
            let refused = enqueue(&app, None, document(json)).await;
            refused.err().unwrap().to_string()
        };
        assert_eq!(refusal(&named).await, format!("Job already exists: {id}"));
        let other = refusal(r#"{"type":"two","args":[]}"#).await;
        assert_eq!(other, "Queue is full: default has 1 jobs, at most 1");
    }

    #[tokio::test]
    async fn batch_is_answered_although_a_job_that_stands_for_another_one_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let unique = r#"{"type":"one","args":[],"options":
            {"unique":{"keys":["type"],"on_conflict":"ignore","states":["cancelled"]}}}"#;
        let first = enqueue_all(&app, None, vec![document(unique)]).await.unwrap().remove(0).job.job.job_id;
        jobs::cancel(&app, &first).await.unwrap();
        // Without a read of the bounds of queues, the write of the batch is the first of the two.
        app.queue_limits.set(Some((app.clock.now(), HashMap::new())));
        let two = document(r#"{"type":"two","args":[]}"#);
        let batch = enqueue_all(&app, None, vec![two, document(unique)]);
        let removed = async { app.store.forget_job(&first, Status::Cancelled).await };
        let (batch, removed) = futures_util::join!(batch, removed);
        assert!(removed.unwrap());
        let batch = batch.unwrap();
        assert_eq!((batch[0].is_new, batch[1].is_new), (true, false));
        assert_eq!(batch[1].job.job.job_id, first);
    }
}
