//! Concurrency keys on both stores: many keys, of which each bounds its running jobs.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use agenix_protocol::{
    documents::{ConcurrencyKey, JobUpdate, Plan, parse},
    ids::{JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    action_bounds,
    capability::ClaimantCapabilities,
    job::{self, Job, JobParams, NewJob},
    limit::Limit,
    rejection::Rejection,
};
use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::{Contract, Opener, postgres, redb};
use crate::store::{
    AckLevel, AddOutcome, Claim, Claimant, DocumentKind, JobRule, NewAction, Store, StoredPlan,
};

const KEYS: usize = 1_000;
const JOBS_OF_EACH: usize = 4;
const BOUND: usize = 2;
const CLAIMANTS: usize = 200;
const WORKER: &str = "w";
const PLAN: &str = r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;

#[test]
fn concurrency_keys_bound_running_jobs_on_redb() {
    check(redb);
}

#[test]
fn concurrency_keys_bound_running_jobs_on_postgres() {
    check(postgres);
}

fn check(open: Opener) {
    let mut contract = Contract::new(open);
    let store = contract.store.take().unwrap();
    contract.environment.runtime.block_on(async {
        submit(&*store).await;
        complete_all(&*store).await;
        for (key, json) in store.documents(DocumentKind::Limit).await.unwrap() {
            let limit: Limit = serde_json::from_str(&json).unwrap();
            assert_eq!((limit.active, limit.terms.concurrency), (0, Some(BOUND as u64)), "{key}");
        }
    });
}

/// Submits an action whose jobs of one key follow each other.
async fn submit(store: &dyn Store) {
    let plan: Plan = parse(PLAN.as_bytes()).unwrap();
    let plan_id: PlanId = "p".parse().unwrap();
    store
        .add_plan(StoredPlan::unsigned(plan_id.clone(), PLAN.into(), Timestamp(1)).into())
        .await
        .unwrap()
        .unwrap();
    let mut action = Action::new("a".parse().unwrap(), plan_id, Timestamp(1));
    action.wishes.scheduling.concurrency =
        Some(ConcurrencyKey { key: "user:{{input.user}}".into(), max_running: BOUND as u64 });
    let input = |job: usize| RawValue::from_string(format!(r#"{{"user":{}}}"#, job / JOBS_OF_EACH)).unwrap();
    let inputs: Vec<Box<RawValue>> = (0..KEYS * JOBS_OF_EACH).map(input).collect();
    let own = action_bounds::overrides(&action, &plan, &JobParams::default(), &inputs).unwrap();
    let job = |(index, (input, own)): (usize, (Box<RawValue>, _))| NewJob {
        job_id: format!("a-{index}").parse().unwrap(),
        input: input.into(),
        own,
    };
    let new = NewAction::new(action, inputs.into_iter().zip(own).enumerate().map(job).collect());
    assert_eq!(store.add_action(new).await.unwrap().unwrap(), AddOutcome::New);
}

/// Claims and completes all jobs. Before the first one ends, as many jobs run as there are
/// claimants, so claims pass over keys whose bounds are reached.
async fn complete_all(store: &dyn Store) {
    let mut running: VecDeque<Job> = VecDeque::new();
    let mut completed = 0;
    while completed < KEYS * JOBS_OF_EACH {
        let claimed = claim(store).await;
        assert!(completed > 0 || claimed.len() == CLAIMANTS, "{} of {CLAIMANTS} got a job", claimed.len());
        assert!(!claimed.is_empty() || !running.is_empty(), "{completed} jobs have completed, and none runs");
        running.extend(claimed.into_iter().map(|claim| claim.job));
        let mut of_keys: HashMap<&str, usize> = HashMap::new();
        for job in &running {
            let key = job.ojs.as_ref().unwrap().limit.as_deref().unwrap();
            *of_keys.entry(key).or_default() += 1;
        }
        assert_eq!(of_keys.iter().find(|(_, count)| **count > BOUND), None);
        let ended: Vec<Job> = running.drain(..running.len().div_ceil(2)).collect();
        completed += ended.len();
        join_all(ended.iter().map(|job| complete(store, &job.job_id))).await;
    }
}

async fn claim(store: &dyn Store) -> Vec<Claim> {
    let claimant = Claimant {
        holder: WORKER.into(),
        capabilities: Arc::new(ClaimantCapabilities::Anything),
        queues: Arc::new(["ready".to_owned()]),
        share_terms: Arc::default(),
        visibility_ms: None,
    };
    let claims = store.claim(vec![claimant; CLAIMANTS], Timestamp(2), 0).await.unwrap();
    claims.into_iter().flatten().collect()
}

async fn complete(store: &dyn Store, job_id: &JobId) {
    let update: JobUpdate = parse(br#"{"status":"completed"}"#).unwrap();
    let missing = Rejection::JobNotFound(job_id.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        job::updated(job.ok_or_else(|| missing.clone())?, &update, WORKER, None, Timestamp(3), 0.5)
    });
    store.decide(job_id, AckLevel::Durable, None, rule).await.unwrap().unwrap();
}
