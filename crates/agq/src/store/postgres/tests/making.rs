//! Helpers that make stores, jobs and claims.

use std::sync::Arc;

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    capability::{ClaimantCapabilities, Needs},
    job::{self, Job, JobOverrides, JobParams, NewJob, Ojs, OnConflict, Reporter, Unique},
    limit::LimitTerms,
};
use e2e::Database;

use super::super::{PostgresSettings, PostgresStore};
use crate::store::{
    AckLevel, AddOutcome, Claim, Claimant, JobChange, JobRule, JobStore, NewAction, RuleResult, StoreFuture,
    StoredPlan,
};

pub(super) const NOW: Timestamp = Timestamp(1_000);

pub(super) async fn node(database: &Database) -> PostgresStore {
    let settings = PostgresSettings { listens: false, ..PostgresSettings::default() };
    let store = PostgresStore::open(&database.url(), settings).await.unwrap();
    let plan = StoredPlan::unsigned(plan(), r#"{"plan_id":"p"}"#.into(), NOW);
    store.add_plan(plan.into()).await.unwrap().unwrap();
    store
}

/// Opens a node of agq on a database of its own.
pub(super) async fn fresh_node() -> (Database, PostgresStore) {
    let database = Database::new();
    let store = node(&database).await;
    (database, store)
}

fn plan() -> PlanId {
    PlanId::new("p").unwrap()
}

/// Makes a job with settings of its own.
pub(super) fn own(job_id: &str, unique: Option<&str>, limit: Option<&str>) -> NewJob {
    let limit = limit.map(str::to_owned);
    let ojs = Ojs {
        queue: "q".into(),
        visibility_ms: 3_000,
        limit: limit.clone(),
        unique: unique.map(str::to_owned),
        ..Ojs::of("t")
    };
    let unique = unique.map(|key| Unique {
        key: key.into(),
        on_conflict: OnConflict::Ignore,
        states: vec!["available".into(), "active".into()],
        period_ms: None,
    });
    let own = JobOverrides {
        plan_id: plan(),
        queue: "q".into(),
        needs: Needs { limit: limit.clone(), ..Needs::default() },
        terms: JobParams { ojs: Some(Box::new(ojs)), ..JobParams::default() },
        is_named: false,
        unique,
        limit: limit.map(|_| LimitTerms { concurrency: Some(5), rate: None, period_ms: 1_000 }),
    };
    NewJob { job_id: JobId::new(job_id).unwrap(), input: "{}".into(), own: Some(Arc::new(own)) }
}

/// Makes a job with the settings of its action.
pub(super) fn plain(job_id: &str) -> NewJob {
    NewJob { job_id: JobId::new(job_id).unwrap(), input: "{}".into(), own: None }
}

pub(super) async fn submit(
    store: &PostgresStore,
    id: &str,
    needs: Needs,
    jobs: Vec<NewJob>,
) -> RuleResult<AddOutcome> {
    let action = Action { queue: "q".into(), ..Action::new(ActionId::new(id).unwrap(), plan(), NOW) };
    store.add_action(NewAction { needs, ..NewAction::new(action, jobs) }).await.unwrap()
}

pub(super) fn claimants(count: usize) -> Vec<Claimant> {
    let claimant = |n: usize| Claimant {
        holder: format!("w{n}").into(),
        capabilities: Arc::new(ClaimantCapabilities::Anything),
        queues: vec!["q".to_owned()].into(),
        share_terms: Arc::default(),
        visibility_ms: None,
    };
    (0..count).map(claimant).collect()
}

pub(super) async fn claim(store: &PostgresStore, count: usize) -> Vec<Claim> {
    store.claim(claimants(count), NOW, 0).await.unwrap().into_iter().flatten().collect()
}

pub(super) async fn ack(store: &PostgresStore, job_id: &JobId) {
    let rule: JobRule =
        Box::new(|job: Option<&Job>| job::acked(job.expect("it is there"), Reporter::default(), NOW));
    store.decide(job_id, AckLevel::Durable, None, rule).await.unwrap().unwrap();
}

pub(super) fn cancel(store: &PostgresStore, id: &str) -> StoreFuture<RuleResult<Option<JobChange>>> {
    let rule: JobRule = Box::new(|job: Option<&Job>| job::cancelled(job.expect("it is there"), NOW));
    store.decide(&JobId::new(id).unwrap(), AckLevel::Durable, None, rule)
}

pub(super) async fn number(store: &PostgresStore, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&store.pool).await.unwrap()
}
