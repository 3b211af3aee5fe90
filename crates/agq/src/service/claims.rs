//! Claims over RESP: a connection takes jobs from queues, at once or when a job is ready.
//!
//! A [`Handoff`] returns its job to the queue when it is dropped. A caller takes the claim out of
//! the handoff when the reply is complete.

use agenix_protocol::{documents::JobDocument, ids::QueueName, request::BlockingWait};
use agenix_rules::{budget::JobBudget, job};
use serde_json::value::RawValue;

use super::{claim_gate, identity, worker_health::end_trial_claim};
use crate::{
    app::{AppState, Caller},
    error::Result,
    store::{Claim, StoreError},
    waiters::Handoff,
};

/// Claims at most `limit` ready jobs of `queues`. With `wait`, waits for one job if no job is
/// ready. A quarantined worker on trial claims one job only.
pub(crate) async fn claim(
    app: &AppState,
    caller: &Caller,
    queues: &[QueueName],
    wait: Option<BlockingWait>,
    limit: usize,
) -> Result<Vec<Handoff<Claim>>> {
    let names = queues.iter().map(|queue| queue.as_str().to_owned()).collect();
    // Evictions are read before the worker's record, because a worker that is evicted later must
    // not wait with the old record.
    let evictions = app.waiters.evictions();
    let (claimant, on_trial) = identity::claimant(app, caller, names, wait.is_some()).await?;
    let limit = if on_trial.is_some() { 1 } else { limit };
    let jobs = match wait {
        Some(wait) => app.waiters.jobs(claimant.clone(), evictions, wait, limit).await?,
        None => app.waiters.jobs_now(&claimant, limit).await?,
    };
    let jobs = claim_gate::admit_some(app, jobs, (&claimant, limit)).await?;
    jobs.iter().for_each(|job| app.job_times.claimed(job.get()));
    if let Some(worker_id) = on_trial {
        end_trial_claim(app, &worker_id, !jobs.is_empty()).await?;
    }
    Ok(jobs)
}

pub(crate) fn document(claim: &Claim) -> Result<JobDocument, StoreError> {
    let raw =
        |text: &str| RawValue::from_string(text.to_owned()).map_err(|error| StoreError(error.to_string()));
    Ok(JobDocument {
        job_id: claim.job.job_id.clone(),
        action_id: claim.job.action_id.clone(),
        plan_id: claim.job.plan_id.clone(),
        plan: raw(&claim.plan)?,
        inputs: raw(&claim.input)?,
        attempt: claim.job.attempt,
        traceparent: claim.job.ojs.as_ref().and_then(|ojs| ojs.traceparent()),
        max_output_bytes: job::budget_of(&claim.job).and_then(JobBudget::max_output_bytes),
        max_cpu_ms: job::budget_of(&claim.job).and_then(JobBudget::max_cpu_ms),
        order: claim.order.as_deref().map(raw).transpose()?,
        resources: claim.resources.as_deref().cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use agenix_protocol::{
        documents::{Demand, OjsFetch, OjsRegistration, WaitsFor, parse},
        time::Timestamp,
    };
    use agenix_rules::{
        job::{Job, JobState, RuleOutcome},
        ojs::VISIBILITY_MS,
    };
    use serde_json::{Value, json};

    use super::claim;
    use crate::{
        app::{AppState, Caller, Submitter},
        service::{
            action_submission, explain, fetch, job_changes::if_exists, ojs_submission, ojs_workers, plans,
            queue_stats, workers,
        },
        startup::services::without_tasks,
        store::AckLevel,
        waiters::Handoff,
    };

    const REASON: &str = "files_read is not enforced: no Landlock; use Linux 6.2 or later";

    /// Plan for any worker that runs programs by path, whatever its programs are.
    fn plan(plan_id: &str, sandbox: &Value) -> String {
        let task = json!({"task_number": 1, "command": "./a.sh"});
        let requires = json!({"tags": ["program-paths"]});
        json!({"plan_id": plan_id, "tasks": [task], "requires": requires, "sandbox": sandbox}).to_string()
    }

    async fn submit(app: &AppState, plan_id: &str, action_id: &str, jobs: usize) {
        let inputs = vec![json!({}); jobs];
        let action = json!({"action_id": action_id, "plan_id": plan_id, "inputs": inputs}).to_string();
        action_submission::submit(app, Submitter::NOBODY, parse(action.as_bytes()).unwrap()).await.unwrap();
    }

    fn open(dir: &Path) -> Arc<AppState> {
        without_tasks(dir, |_| {})
    }

    fn connection(number: u64, worker_id: Option<&str>) -> Caller {
        let registered = worker_id.map(|worker_id| worker_id.parse().unwrap());
        Caller { registered, ..Caller::new(format!("connection:{number}").into(), number, "test", None) }
    }

    /// Registers a worker over RESP.
    async fn register(app: &AppState, number: u64, worker_id: &str, sandbox: Value) -> Caller {
        let tags = json!({"program-paths": true});
        let registration =
            json!({"worker_id": worker_id, "capabilities": [], "tags": tags, "sandbox": sandbox});
        let registration = parse(registration.to_string().as_bytes()).unwrap();
        workers::register(app, &connection(number, None), registration).await.unwrap();
        connection(number, Some(worker_id))
    }

    /// Claims one job over RESP. Returns the action of the job.
    async fn claim_one(app: &AppState, caller: &Caller) -> Vec<String> {
        let claimed = claim(app, caller, &["ready".parse().unwrap()], None, 1).await.unwrap();
        claimed.into_iter().map(|job| job.take().job.action_id.to_string()).collect()
    }

    /// Fetches one job over HTTP. Returns the action of the job.
    async fn fetch_one(app: &AppState, worker_id: Option<&str>) -> Vec<String> {
        let request = OjsFetch {
            queues: vec!["ready".into()],
            worker_id: worker_id.map(str::to_owned),
            ..OjsFetch::default()
        };
        let fetched = fetch::fetch(app, None, request).await.unwrap();
        fetched.into_iter().map(|job| job.take().job.action_id.to_string()).collect()
    }

    #[tokio::test]
    async fn only_a_worker_with_the_profile_gets_a_job_that_needs_a_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let app = open(dir.path());
        let stranger = connection(1, None);
        let none = register(&app, 2, "none", Value::Null).await;
        let unmet = register(&app, 3, "unmet", json!({"profiles": {"reader": [REASON]}})).await;
        let other = register(&app, 4, "other", json!({"profiles": {"network": []}})).await;
        let labels = json!(["program-paths", "sandbox:reader", "sandbox"]);
        let ojs = json!({"worker_id": "ojs", "labels": labels}).to_string();
        let ojs: OjsRegistration = parse(ojs.as_bytes()).unwrap();
        ojs_workers::register(&app, None, ojs).await.unwrap();

        plans::submit(&app, Submitter::NOBODY, plan("free", &Value::Null).as_bytes()).await.unwrap();
        plans::submit(&app, Submitter::NOBODY, plan("bound", &json!({"profile": "reader"})).as_bytes())
            .await
            .unwrap();
        submit(&app, "bound", "bound", 1).await;
        submit(&app, "free", "free", 5).await;
        for caller in [&stranger, &none, &unmet, &other] {
            assert_eq!(claim_one(&app, caller).await, ["free"], "the older job needs a sandbox");
        }
        assert_eq!(fetch_one(&app, Some("ojs")).await, ["free"]);
        for caller in [&stranger, &none, &unmet, &other] {
            assert_eq!(claim_one(&app, caller).await, [""; 0]);
        }
        assert_eq!(fetch_one(&app, Some("ojs")).await, [""; 0]);
        assert_eq!(fetch_one(&app, None).await, [""; 0], "nobody has a sandbox");

        let with = register(&app, 5, "with", json!({"profiles": {"reader": []}})).await;
        assert_eq!(claim_one(&app, &with).await, ["bound"]);
    }

    #[tokio::test]
    async fn profile_lasts_over_a_restart_and_ends_with_a_registration_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let app = open(dir.path());
        plans::submit(&app, Submitter::NOBODY, plan("bound", &json!({"profile": "reader"})).as_bytes())
            .await
            .unwrap();
        submit(&app, "bound", "bound", 3).await;
        let with = register(&app, 1, "w", json!({"profiles": {"reader": []}})).await;
        assert_eq!(claim_one(&app, &with).await, ["bound"]);
        workers::heartbeat(&app, &with, &"w".parse().unwrap(), None).await.unwrap();
        assert_eq!(claim_one(&app, &with).await, ["bound"]);
        drop(app);
        let app = open(dir.path());
        assert_eq!(claim_one(&app, &with).await, ["bound"]);
        submit(&app, "bound", "again", 1).await;
        let without = register(&app, 1, "w", Value::Null).await;
        assert_eq!(claim_one(&app, &without).await, [""; 0]);
    }

    #[tokio::test]
    async fn explanation_and_statistics_name_the_profile() {
        let dir = tempfile::tempdir().unwrap();
        let app = open(dir.path());
        plans::submit(&app, Submitter::NOBODY, plan("bound", &json!({"profile": "reader"})).as_bytes())
            .await
            .unwrap();
        submit(&app, "bound", "bound", 1).await;
        register(&app, 1, "a", json!({"profiles": {"reader": [REASON]}})).await;
        register(&app, 2, "b", json!({"profiles": {}})).await;
        register(&app, 3, "c", Value::Null).await;
        let job_id = app.store.peek("ready", 1).await.unwrap().pop().unwrap();
        let explained = explain::explain(&app, &job_id).await.unwrap();
        let missing: Vec<&str> =
            explained.workers.iter().flat_map(|near| &near.missing).map(String::as_str).collect();
        assert_eq!(
            missing,
            [
                &*format!("sandbox profile reader: {REASON}"),
                "sandbox profile reader: its owner defines no such profile",
                "sandbox profile reader: the worker runs no job in a sandbox; start agw with --config or --sandbox",
            ]
        );
        assert_eq!(
            explained.reason,
            format!(
                "No worker has all that it needs; a comes closest and lacks sandbox profile reader: {REASON}."
            )
        );
        let WaitsFor { tags, sandbox, .. } = explained.waits_for.unwrap();
        assert_eq!((tags, sandbox.as_deref()), (vec!["program-paths".to_owned()], Some("reader")));

        let stats = queue_stats::all(&app).await.unwrap();
        let demand: &Demand = &stats.ready.needs[0];
        assert_eq!(
            (demand.wants(), demand.workers),
            (vec!["the tag program-paths".to_owned(), "the sandbox profile reader".to_owned()], 0)
        );
        let listed = workers::status(&app, &"a".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(listed.sandbox.unwrap().profiles["reader"], [REASON]);
    }
    #[tokio::test]
    async fn worker_that_only_fetches_may_be_silent_for_its_longest_lease() {
        const HOURS: u64 = 7_200_000;
        let dir = tempfile::tempdir().unwrap();
        let app = open(dir.path());
        let enqueue = |options: Value| {
            let job = json!({"type": "a", "args": [], "options": options}).to_string();
            let app = Arc::clone(&app);
            async move { ojs_submission::enqueue(&app, None, parse(job.as_bytes()).unwrap()).await.map(drop) }
        };
        let fetch = |visibility_timeout_ms| {
            let queues = vec!["default".into()];
            let request = OjsFetch {
                queues,
                visibility_timeout_ms,
                worker_id: Some("w".into()),
                ..OjsFetch::default()
            };
            let app = Arc::clone(&app);
            async move { fetch::fetch(&app, None, request).await.unwrap().into_iter().map(Handoff::take).count() }
        };
        let silence_ms = async || app.store.worker(&"w".parse().unwrap()).await.unwrap().unwrap().silence_ms;
        assert_eq!(fetch(None).await, 0);
        assert_eq!(silence_ms().await, Some(VISIBILITY_MS));
        enqueue(json!({"visibility_timeout_ms": HOURS})).await.unwrap();
        assert_eq!(fetch(None).await, 1);
        assert_eq!(silence_ms().await, Some(HOURS), "the lease is that of the job");
        enqueue(json!({})).await.unwrap();
        assert_eq!(fetch(Some(2 * HOURS)).await, 1);
        assert_eq!(silence_ms().await, Some(2 * HOURS), "the lease is that of the fetch");
    }

    #[tokio::test]
    async fn fetch_leaves_attempts_whose_time_is_over_to_the_reaper() {
        let dir = tempfile::tempdir().unwrap();
        let app = open(dir.path());
        let job = parse(br#"{"type":"a","args":[]}"#).unwrap();
        ojs_submission::enqueue(&app, None, job).await.map(drop).unwrap();
        let fetch = async || {
            let request = OjsFetch { queues: vec!["default".into()], ..OjsFetch::default() };
            fetch::fetch(&app, None, request).await.unwrap().pop().map(|claim| claim.take().job)
        };
        let held = fetch().await.expect("a job is ready");
        // As if the machine had slept.
        let slept = if_exists(|job| {
            RuleOutcome::Changed(Box::new(Job { due_at: Some(Timestamp(1)), ..job.clone() }))
        });
        app.store.decide(&held.job_id, AckLevel::Durable, None, slept).await.unwrap().unwrap();
        assert_eq!(fetch().await, None);
        let after = app.store.job(&held.job_id).await.unwrap().unwrap().job;
        assert_eq!((after.state, after.attempt), (JobState::Active, 1));
    }
}
