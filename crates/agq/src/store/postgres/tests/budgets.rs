//! Budgets that three nodes use at the same time, while their sessions are ended.

use std::{sync::Arc, time::Duration};

use agenix_protocol::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    budget::{Budget, BudgetAmount, JobBudget, SubmissionCharge, Usage},
    job::{self, Job, NewJob, Reporter},
    rejection::Rejection,
};
use e2e::Database;
use futures_util::future::join_all;
use sqlx::{query_scalar, raw_sql};

use super::{
    between_nodes::{deadlocks, three_nodes},
    making::{NOW, claimants, own},
};
use crate::store::{
    AckLevel, AddOutcome, Claimant, DocumentKind, DocumentStore, JobRule, JobStore, NewAction,
    ReportedResults, RuleResult, StoreFuture, postgres::PostgresStore,
};

const JOBS: u64 = 60;
const RUNNING: u64 = 3;
/// Processor time that suffices for the figures of all jobs, but not for a reservation of each
/// claimant.
const CPU_SECS: u64 = 40;
const BUDGET: Budget = Budget {
    per_hours: 24,
    jobs: Some(JOBS),
    plans: None,
    running: Some(RUNNING),
    cpu_secs: Some(CPU_SECS),
    output_bytes: None,
};

/// Repeats a call whose session was ended: it may have been carried out, or not.
async fn persist<T>(mut call: impl FnMut() -> StoreFuture<T>) -> T {
    loop {
        if let Ok(answer) = call().await {
            return answer;
        }
    }
}

async fn count(node: &PostgresStore, sql: &'static str) -> i64 {
    loop {
        if let Ok(count) = query_scalar(sql).fetch_one(&node.pool).await {
            return count;
        }
    }
}

fn job_with_budget(job_id: &str, limit: Option<&str>) -> NewJob {
    let mut job = own(job_id, None, limit);
    let own = Arc::make_mut(job.own.as_mut().unwrap());
    own.needs.budget = Some("alice".into());
    own.terms.timeout_ms = 9_000;
    let bound = BUDGET.run_bound(None, own.terms.timeout_ms);
    let ojs = own.terms.ojs.as_mut().unwrap();
    ojs.budget = Some(Box::new(JobBudget { name: "alice".into(), bound, ..JobBudget::default() }));
    // An agw reports figures, and an OJS worker does not.
    ojs.visibility_ms = 0;
    job
}

fn submission(action_id: &str, count: usize) -> NewAction {
    // Every other action has a limit, too, so that transactions lock limits and budgets.
    let limit = count.is_multiple_of(2).then_some("l");
    let jobs = (0..count).map(|n| job_with_budget(&format!("{action_id}-{n}"), limit)).collect();
    let action = Action::new(ActionId::new(action_id).unwrap(), PlanId::new("p").unwrap(), NOW);
    let charge = Some(SubmissionCharge { name: "alice".into(), budget: BUDGET, later_jobs: 0, now: NOW });
    NewAction { charge, ..NewAction::new(action, jobs) }
}

async fn add(node: &PostgresStore, action_id: &str, count: usize) -> RuleResult<AddOutcome> {
    persist(|| node.add_action(submission(action_id, count))).await
}

/// Reports the end of a run with `cpu_ms` milliseconds of processor time.
async fn end(node: &PostgresStore, job: &Job, cpu_ms: u64) {
    let (holder, attempt) = (job.holder.clone().unwrap(), job.attempt);
    let call = || {
        let holder = holder.clone();
        let rule: JobRule = Box::new(move |job: Option<&Job>| {
            let reporter = Reporter { worker: Some(&holder), attempt: Some(attempt) };
            job::acked(job.expect("it is there"), reporter, NOW)
        });
        let json = format!(r#"[{{"user_ms":{cpu_ms},"system_ms":0}}]"#);
        let results = ReportedResults::without_blobs(json);
        node.decide(&job.job_id, AckLevel::Durable, Some(results), rule)
    };
    persist(call).await.unwrap();
}

/// Gives back the jobs of claims whose answers were lost.
async fn give_back(node: &PostgresStore, holder: &str) {
    for job_id in persist(|| node.held_by(holder)).await {
        let call = || {
            let holder = holder.to_owned();
            let rule: JobRule = Box::new(move |job: Option<&Job>| {
                Ok(job::given_back(job.expect("it is there"), &holder, None, NOW))
            });
            node.decide(&job_id, AckLevel::Durable, None, rule)
        };
        persist(call).await.unwrap();
    }
}

/// Claims jobs in the name of `holder`, and ends them. Returns the reported processor time.
async fn work(node: &PostgresStore, holder: &str) -> u64 {
    let mine = |claimant: Claimant| Claimant { holder: holder.into(), ..claimant };
    let claimants: Vec<Claimant> = claimants(2).into_iter().map(mine).collect();
    let Ok(claims) = node.claim(claimants, NOW, 0).await else {
        give_back(node, holder).await;
        return 0;
    };
    let running = count(node, "SELECT count(*) FROM agq.jobs WHERE status = 1").await;
    assert!(running <= i64::try_from(RUNNING).unwrap(), "{running} jobs are running");
    let mut reported = 0;
    for claim in claims.into_iter().flatten() {
        let cpu_ms = 100 + claim.job.index;
        end(node, &claim.job, cpu_ms).await;
        reported += cpu_ms;
    }
    reported
}

/// Submits and works. Returns the numbers of accepted jobs, and the reported processor time.
async fn use_budget(at: usize, node: Arc<PostgresStore>) -> (u64, u64) {
    let (mut accepted, mut reported) = (0, 0);
    for round in 0..20 {
        let (action_id, count) = (format!("a{at}-{round}"), 1 + (round + at) % 3);
        match add(&node, &action_id, count).await {
            Ok(_) => accepted += count as u64,
            Err(Rejection::Budget(exhausted)) => assert_eq!(exhausted.amount, BudgetAmount::Jobs),
            Err(other) => panic!("{other}"),
        }
        reported += work(&node, &format!("w{at}")).await;
    }
    (accepted, reported)
}

async fn usage(node: &PostgresStore) -> Usage {
    let json = persist(|| node.document(DocumentKind::Budget, "alice")).await;
    serde_json::from_str(&json.unwrap()).unwrap()
}

/// Ends sessions of the writers every now and then.
async fn end_sessions(node: Arc<PostgresStore>) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
         AND pid <> pg_backend_pid() AND query !~ 'pg_terminate_backend' ORDER BY random() LIMIT 1";
    loop {
        let _ended = raw_sql(sql).execute(&node.pool).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_stay_within_a_budget() {
    let database = Database::new();
    let nodes = three_nodes(&database).await;
    let all = nodes.iter().enumerate().map(|(at, node)| tokio::spawn(use_budget(at, Arc::clone(node))));
    let done: Vec<(u64, u64)> = join_all(all).await.into_iter().map(Result::unwrap).collect();
    check(&nodes, &done).await;
    assert_eq!(deadlocks(&database, nodes).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_stay_within_a_budget_while_sessions_end() {
    let database = Database::new();
    let nodes = three_nodes(&database).await;
    let ending = tokio::spawn(end_sessions(Arc::new(super::store_on(&database).await)));
    let all = nodes.iter().enumerate().map(|(at, node)| tokio::spawn(use_budget(at, Arc::clone(node))));
    let done: Vec<(u64, u64)> = join_all(all).await.into_iter().map(Result::unwrap).collect();
    ending.abort();
    check(&nodes, &done).await;
}

async fn check(nodes: &[Arc<PostgresStore>], done: &[(u64, u64)]) {
    let accepted: u64 = done.iter().map(|(accepted, _)| accepted).sum();
    let mut reported: u64 = done.iter().map(|(_, reported)| reported).sum();
    assert_eq!(accepted, JOBS, "the budget is used up, and not passed");
    for at in 0..nodes.len() {
        give_back(&nodes[0], &format!("w{at}")).await;
    }
    // The remaining jobs fit into the budget one after the other.
    loop {
        match work(&nodes[0], "w0").await {
            0 if count(&nodes[0], "SELECT count(*) FROM agq.jobs").await == 0 => break,
            more => reported += more,
        }
    }
    let usage = usage(&nodes[0]).await;
    let used = |amount| usage.used(amount, Timestamp(NOW.0));
    assert_eq!((used(BudgetAmount::Jobs), used(BudgetAmount::Running)), (JOBS, 0));
    assert_eq!(used(BudgetAmount::CpuMs), reported, "the charges equal the reported figures");
}
