//! Claims that wait at one node for jobs that another node locks, leaves, or makes ready. The nodes
//! poll so rarely that only a notification helps.

use std::{sync::Arc, time::Duration};

use agenix_protocol::ids::JobId;
use agenix_rules::{
    capability::Needs,
    job::{self, Job, NewJob},
    limit::LimitTerms,
};
use e2e::{Database, eventually};
use futures_util::future::join_all;
use sqlx::Error;
use tokio::{
    runtime::Handle,
    task::{JoinHandle, block_in_place},
};

use crate::store::{
    AckLevel, JobRule, JobStore,
    postgres::{
        PostgresSettings, PostgresStore,
        tests::making::{NOW, ack, claim, claimants, node, number, own, plain, submit},
        txn::{PgTxn, candidates::ClaimRequest},
    },
};

/// Opens nodes that learn of each other's jobs only by notifications.
pub(super) async fn listening_nodes(database: &Database, count: usize) -> Vec<Arc<PostgresStore>> {
    // Adds the plan.
    drop(node(database).await);
    let mut nodes = Vec::new();
    let settings = PostgresSettings { poll: Duration::from_secs(3_600), ..PostgresSettings::default() };
    for _ in 0..count {
        let store = PostgresStore::open(&database.url(), settings).await.unwrap();
        store.join("", |_, _| {});
        store.notifier.set_job_interest(true);
        nodes.push(Arc::new(store));
    }
    let hears =
        |node: &Arc<PostgresStore>| node.nodes.has_peers() && node.notify_bus.ready_notices.is_listening();
    block_in_place(|| eventually("the other nodes", || nodes.iter().all(hears).then_some(())));
    nodes
}

/// Returns the needs of a lane.
fn of(tool: &str) -> Needs {
    Needs { tools: vec![tool.into()], ..Needs::default() }
}

/// Claims in the transaction of a write, and returns the ids of the jobs.
pub(super) fn claim_in(batch: &mut PgTxn<'_>, count: usize) -> Result<Vec<String>, Error> {
    let claimants = claimants(count);
    let request = |claimant| ClaimRequest { claimant, now: NOW, start_timeout_ms: 0 };
    let claims = batch.claim(&claimants.iter().map(request).collect::<Vec<_>>())?;
    batch.write()?;
    Ok(claims.into_iter().flatten().map(|claim| claim.job.job_id.to_string()).collect())
}

/// Returns the ids of the jobs that `count` claimants get.
async fn got(store: &PostgresStore, count: usize) -> Vec<String> {
    claim(store, count).await.iter().map(|claim| claim.job.job_id.to_string()).collect()
}

/// Starts to wait for a job, as a waiting claimant does.
pub(super) fn wait_for_a_job(node: &Arc<PostgresStore>, claimants: usize) -> JoinHandle<Vec<String>> {
    let node = Arc::clone(node);
    tokio::spawn(async move {
        loop {
            node.notifier.jobs().await;
            let jobs = got(&node, claimants).await;
            if !jobs.is_empty() {
                return jobs;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_locks_only_the_jobs_that_it_takes() {
    let database = Database::new();
    let (first, second) = (node(&database).await, Arc::new(node(&database).await));
    first.nodes.find_peers().await.unwrap();
    submit(&first, "a", of("jq"), vec![plain("a-0"), plain("a-1")]).await.unwrap();
    submit(&first, "b", of("yq"), vec![plain("b-0")]).await.unwrap();
    submit(&first, "c", of("jq"), vec![plain("c-0")]).await.unwrap();
    let (handle, other) = (Handle::current(), Arc::clone(&second));
    let taken = first.write(AckLevel::Applied, move |batch| {
        let own = claim_in(batch, 2)?;
        // The other node claims before this transaction is committed.
        Ok((own, handle.block_on(got(&other, 4))))
    });
    let (own, mut others) = taken.await.unwrap();
    // Claims of one batch may divide the jobs among themselves in any order.
    others.sort_unstable();
    assert_eq!((own, others), (vec!["a-0".into(), "a-1".into()], vec!["b-0".to_owned(), "c-0".into()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_leaves_limits_that_it_does_not_need_to_other_nodes() {
    let database = Database::new();
    let (first, second) = (node(&database).await, Arc::new(node(&database).await));
    first.nodes.find_peers().await.unwrap();
    second.nodes.find_peers().await.unwrap();
    for id in ["a", "b", "c", "d", "e", "f"] {
        let job = own(&format!("{id}-0"), None, Some(id));
        submit(&first, id, Needs::default(), vec![job]).await.unwrap();
    }
    let (handle, other) = (Handle::current(), Arc::clone(&second));
    let taken = first.write(AckLevel::Applied, move |batch| {
        let own = claim_in(batch, 1)?;
        Ok((own, handle.block_on(got(&other, 4))))
    });
    let (own, others) = taken.await.unwrap();
    assert_eq!(
        (own, others),
        (vec!["a-0".to_owned()], ["c-0", "d-0", "e-0", "f-0"].map(str::to_owned).to_vec())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_looks_at_further_lanes_if_the_jobs_of_the_first_are_locked() {
    let database = Database::new();
    let (first, second) = (node(&database).await, Arc::new(node(&database).await));
    first.nodes.find_peers().await.unwrap();
    second.nodes.find_peers().await.unwrap();
    for (id, tool) in [("a", "jq"), ("b", "yq"), ("c", "xq")] {
        submit(&first, id, of(tool), vec![plain(&format!("{id}-0"))]).await.unwrap();
    }
    let (handle, other) = (Handle::current(), Arc::clone(&second));
    let taken = first.write(AckLevel::Applied, move |batch| {
        let own = claim_in(batch, 2)?;
        Ok((own, handle.block_on(got(&other, 1))))
    });
    assert_eq!(taken.await.unwrap(), (vec!["a-0".to_owned(), "b-0".into()], vec!["c-0".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_was_locked_and_left_is_claimed_at_another_node() {
    let database = Database::new();
    let nodes = listening_nodes(&database, 2).await;
    let jobs = vec![own("a-0", None, Some("k1")), own("a-1", None, Some("k2"))];
    submit(&nodes[0], "a", Needs::default(), jobs).await.unwrap();
    let (handle, other) = (Handle::current(), Arc::clone(&nodes[1]));
    let taken = nodes[0].write(AckLevel::Applied, move |batch| {
        // The claim locks the limits and jobs of two lanes, and takes one job.
        let own = claim_in(batch, 1)?;
        Ok((own, handle.block_on(got(&other, 2))))
    });
    assert_eq!(taken.await.unwrap(), (vec!["a-0".to_owned()], Vec::<String>::new()));
    let waiting = wait_for_a_job(&nodes[1], 2);
    block_in_place(|| eventually("the job that was left", || waiting.is_finished().then_some(())));
    assert_eq!(waiting.await.unwrap(), ["a-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_returns_to_its_place_is_claimed_at_another_node() {
    let database = Database::new();
    let nodes = listening_nodes(&database, 2).await;
    submit(&nodes[0], "a", Needs::default(), vec![plain("a-0"), plain("a-1")]).await.unwrap();
    // The second node has found no further job in the lane.
    assert_eq!(got(&nodes[1], 3).await, ["a-0", "a-1"]);
    let waiting = wait_for_a_job(&nodes[1], 1);
    let rule: JobRule = Box::new(|job: Option<&Job>| {
        let job = job.expect("it is there");
        Ok(job::given_back(job, job.holder.as_deref().expect("it is claimed"), None, NOW))
    });
    let job_id = JobId::new("a-0").unwrap();
    assert!(nodes[0].decide(&job_id, AckLevel::Durable, None, rule).await.unwrap().unwrap().is_some());
    block_in_place(|| eventually("the returned job", || waiting.is_finished().then_some(())));
    assert_eq!(waiting.await.unwrap(), ["a-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claimants_of_three_nodes_get_the_jobs_of_two_lanes() {
    let database = Database::new();
    let nodes = listening_nodes(&database, 3).await;
    let wait = |(node, count): (&Arc<PostgresStore>, usize)| {
        let node = Arc::clone(node);
        tokio::spawn(async move {
            let mut missing = count;
            while missing > 0 {
                node.notifier.jobs().await;
                missing -= got(&node, missing).await.len();
            }
        })
    };
    let waiting: Vec<_> = nodes.iter().zip([7, 7, 6]).map(wait).collect();
    let lane = |id: &'static str| (0..10).map(|n| plain(&format!("{id}-{n}"))).collect();
    let (first, second) = (lane("a"), lane("b"));
    let submitted = [submit(&nodes[0], "a", of("jq"), first), submit(&nodes[1], "b", of("yq"), second)];
    join_all(submitted).await.into_iter().for_each(|added| drop(added.unwrap()));
    let all_have = || waiting.iter().all(JoinHandle::is_finished).then_some(());
    block_in_place(|| eventually("a job for each claimant", all_have));
}

/// Returns a job of a lane of its own, under a limit of one running job.
fn alone_under(limit: &str, job_id: &str, tool: &str) -> NewJob {
    let mut job = own(job_id, None, Some(limit));
    let own = Arc::make_mut(job.own.as_mut().unwrap());
    own.needs.tools = vec![tool.into()];
    own.limit = Some(LimitTerms { concurrency: Some(1), rate: None, period_ms: 1_000 });
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_job_in_an_unknown_lane_opens_its_limit_at_another_node() {
    let database = Database::new();
    let nodes = listening_nodes(&database, 2).await;
    submit(&nodes[0], "a", Needs::default(), vec![alone_under("k1", "a-0", "jq")]).await.unwrap();
    let claimed = claim(&nodes[0], 1).await;
    submit(&nodes[0], "b", Needs::default(), vec![alone_under("k1", "b-0", "yq")]).await.unwrap();
    let lane = number(&nodes[0], "SELECT max(lane)::bigint FROM agq.lanes").await;
    let lane = i32::try_from(lane).unwrap();
    let hears = || nodes[1].notify_bus.ready_notices.take().first.contains_key(&lane).then_some(());
    block_in_place(|| eventually("the notification of the second job", hears));
    // The second node has never seen the lane of the first job, which is not ready any more.
    assert_eq!(got(&nodes[1], 1).await, Vec::<String>::new());
    let waiting = wait_for_a_job(&nodes[1], 1);
    ack(&nodes[0], &claimed[0].job.job_id).await;
    block_in_place(|| eventually("the job under the limit", || waiting.is_finished().then_some(())));
    assert_eq!(waiting.await.unwrap(), ["b-0"]);
}
