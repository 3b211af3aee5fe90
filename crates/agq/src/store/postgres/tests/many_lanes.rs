//! Claims among many lanes read few of them.

use agenix_protocol::{
    documents::Status,
    ids::{JobId, PlanId},
};
use agenix_rules::{
    capability::Needs,
    job::{self, Job, NewJob},
    limit::LimitTerms,
};
use e2e::{Database, eventually};
use futures_util::future::join;
use std::sync::Arc;
use tokio::{runtime::Handle, task::block_in_place};

use crate::store::{
    AckLevel, AddOutcome, JobRule, JobStore,
    postgres::{
        PostgresStore,
        tests::{
            making::{NOW, ack, claim, claimants, fresh_node, node, number, own, plain, submit},
            round_trips::in_one_batch,
            waiting_claims::{claim_in, listening_nodes, wait_for_a_job},
        },
    },
};

const LANES: usize = 300;
/// Number of jobs that other sessions find locked.
const LOCKED: &str = "SELECT (SELECT count(*) FROM agq.jobs WHERE is_ready) - count(*) FROM \
     (SELECT FROM agq.jobs WHERE is_ready FOR UPDATE SKIP LOCKED) AS free";
/// Number of limits that other sessions find locked.
const LOCKED_LIMITS: &str = "SELECT (SELECT count(*) FROM agq.notes WHERE kind = 'limit') - count(*) FROM \
     (SELECT FROM agq.notes WHERE kind = 'limit' FOR UPDATE SKIP LOCKED) AS free";

fn of_tool(n: usize) -> Needs {
    Needs { tools: vec![format!("tool-{n}")], ..Needs::default() }
}

/// Makes a job of a lane whose limit lets one job run.
fn limited(job_id: &str, key: &str) -> NewJob {
    let mut job = own(job_id, None, Some(key));
    let terms = LimitTerms { concurrency: Some(1), rate: None, period_ms: 1_000 };
    Arc::make_mut(job.own.as_mut().expect("it has settings of its own")).limit = Some(terms);
    job
}

/// Makes a job that has expired.
fn expired(job_id: &str) -> NewJob {
    let mut job = own(job_id, None, None);
    let own = Arc::make_mut(job.own.as_mut().expect("it has settings of its own"));
    own.terms.ojs.as_mut().expect("it has fields of the Open Job Spec").expires_at = Some(NOW);
    job
}

/// Returns the ids of the jobs that `count` claims of a transaction take, the number of its round
/// trips, and the results of `queries` before its commit.
async fn claim_and_count<const N: usize>(
    store: &Arc<PostgresStore>,
    count: usize,
    queries: [&'static str; N],
) -> (Vec<String>, u64, [i64; N]) {
    let (handle, other) = (Handle::current(), Arc::clone(store));
    let claimed = store.write(AckLevel::Applied, move |batch| {
        let before = batch.session.round_trips();
        let ids = claim_in(batch, count)?;
        let round_trips = batch.session.round_trips() - before;
        Ok((ids, round_trips, queries.map(|sql| handle.block_on(number(&other, sql)))))
    });
    claimed.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_lock_few_jobs_of_few_lanes_in_their_order() {
    let (_database, store) = fresh_node().await;
    let store = Arc::new(store);
    for n in 0..LANES {
        let id = format!("a{n:03}");
        submit(&store, &id, of_tool(n), vec![plain(&format!("{id}-0"))]).await.unwrap();
    }
    let (ids, _, [locked]) = claim_and_count(&store, 3, [LOCKED]).await;
    assert_eq!(ids, ["a000-0", "a001-0", "a002-0"]);
    assert!(locked <= 6, "{locked}");
    // As many claimants as lanes: the reads become larger, so that few are needed.
    let (ids, round_trips, []) = claim_and_count(&store, LANES, []).await;
    let expected: Vec<String> = (3..LANES).map(|n| format!("a{n:03}-0")).collect();
    assert_eq!(ids, expected);
    assert!(round_trips < 20, "{round_trips}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saturated_limits_cost_later_claims_nothing() {
    let (_database, store) = fresh_node().await;
    let store = Arc::new(store);
    let pair = |n: usize| {
        [limited(&format!("l{n:03}-0"), &n.to_string()), limited(&format!("l{n:03}-1"), &n.to_string())]
    };
    submit(&store, "l", Needs::default(), (0..LANES).flat_map(pair).collect()).await.unwrap();
    let running = claim(&store, LANES).await;
    assert_eq!(running.len(), LANES);
    assert!(claim(&store, 1).await.is_empty());
    submit(&store, "a", Needs::default(), (0..4).map(|n| plain(&format!("a-{n}"))).collect()).await.unwrap();
    assert_eq!(claim(&store, 1).await[0].job.job_id.as_str(), "a-0");
    let (ids, _, [limits]) = claim_and_count(&store, 1, [LOCKED_LIMITS]).await;
    assert_eq!((ids, limits), (vec!["a-1".to_owned()], 0));
    // The end of a job lets the next one of its limit begin.
    ack(&store, &running[7].job.job_id).await;
    let next = claim(&store, 1).await;
    assert_eq!(next[0].job.ojs.as_ref().unwrap().limit, running[7].job.ojs.as_ref().unwrap().limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_a_limit_that_another_node_frees_is_claimed() {
    let database = Database::new();
    let nodes = listening_nodes(&database, 2).await;
    submit(&nodes[0], "a", Needs::default(), vec![limited("a-0", "k"), limited("a-1", "k")]).await.unwrap();
    assert_eq!(claim(&nodes[0], 2).await.len(), 1);
    // The second node finds the limit saturated.
    assert!(claim(&nodes[1], 1).await.is_empty());
    let waiting = wait_for_a_job(&nodes[1], 1);
    ack(&nodes[0], &JobId::new("a-0").unwrap()).await;
    block_in_place(|| eventually("the next job of the limit", || waiting.is_finished().then_some(())));
    assert_eq!(waiting.await.unwrap(), ["a-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_gets_the_job_behind_many_that_have_expired() {
    let (_database, store) = fresh_node().await;
    let jobs = (0..2_500).map(|n| expired(&format!("a-{n:04}"))).collect();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    submit(&store, "b", Needs::default(), vec![own("b-0", None, None)]).await.unwrap();
    // A claim ends at most `MAX_WITHDRAWN` jobs, and the next claim continues behind these jobs.
    for ended in [1_000, 2_000] {
        assert!(claim(&store, 1).await.is_empty());
        assert_eq!(number(&store, "SELECT count(*) FROM agq.ended").await, ended);
    }
    assert_eq!(claim(&store, 1).await[0].job.job_id.as_str(), "b-0");
    assert_eq!(number(&store, "SELECT count(*) FROM agq.ended").await, 2_500);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_job_that_has_expired_can_be_retried_and_forgotten() {
    let (_database, store) = fresh_node().await;
    let added = submit(&store, "a", Needs::default(), vec![expired("a-0")]);
    let claims = async { store.claim(claimants(1), NOW, 0).await };
    // The claim ends the job in the transaction that adds it.
    let (added, claims) = in_one_batch(&store, join(added, claims)).await;
    assert_eq!(added, Ok(AddOutcome::New));
    assert!(claims.unwrap().iter().all(Option::is_none));
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 0);
    assert_eq!(number(&store, "SELECT count(*) FROM agq.ended JOIN agq.inputs USING (job_id)").await, 1);
    let job_id = JobId::new("a-0").unwrap();
    let retry: JobRule = Box::new(|job: Option<&Job>| job::retried(job.expect("it is there"), false, NOW));
    store.decide(&job_id, AckLevel::Durable, None, retry).await.unwrap().unwrap();
    assert_eq!(claim(&store, 1).await.len(), 1);
    ack(&store, &job_id).await;
    assert!(store.forget_job(&job_id, Status::Completed).await.unwrap());
    assert!(store.delete_plan(&PlanId::new("p").unwrap(), None).await.unwrap().unwrap());
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_finds_nothing_hides_no_job_behind_a_claimed_one() {
    let (_database, store) = fresh_node().await;
    let jobs = ["a-0", "a-1", "a-2"].map(plain).to_vec();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let mut both = claimants(2);
    // The second claimant finds nothing, so the claims scan all lanes again.
    both[1].queues = vec!["empty".to_owned()].into();
    for expected in ["a-0", "a-1", "a-2"] {
        let claims = store.claim(both.clone(), NOW, 0).await.unwrap();
        let ids: Vec<&str> = claims.iter().flatten().map(|claim| claim.job.job_id.as_str()).collect();
        assert_eq!(ids, [expected]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_look_again_take_no_job_of_their_batch_twice() {
    let database = Database::new();
    let (first, second) = (node(&database).await, node(&database).await);
    assert!(claim(&first, 1).await.is_empty());
    // The first node learns of this lane by its scan of all lanes.
    submit(&second, "b", of_tool(1), vec![plain("b-0")]).await.unwrap();
    let added = submit(&first, "a", Needs::default(), vec![own("a-0", Some("kind"), None)]);
    let claims = async { first.claim(claimants(3), NOW, 0).await };
    let (added, claims) = in_one_batch(&first, join(added, claims)).await;
    added.unwrap();
    let claims = claims.unwrap();
    let mut ids: Vec<&str> = claims.iter().flatten().map(|claim| claim.job.job_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a-0", "b-0"]);
    assert!(claims.iter().flatten().all(|claim| claim.input == "{}" && claim.job.attempt == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_job_of_a_batch_keeps_its_place_in_the_lane() {
    let (_database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![plain("a-0"), plain("a-1")]).await.unwrap();
    let claims = claim(&store, 1).await;
    let holder = claims[0].job.holder.clone().unwrap();
    let rule: JobRule =
        Box::new(move |job: Option<&Job>| Ok(job::given_back(job.expect("it is there"), &holder, None, NOW)));
    let returned = store.decide(&claims[0].job.job_id, AckLevel::Applied, None, rule);
    let claimed = store.claim(claimants(2), NOW, 0);
    let (returned, claimed) = tokio::join!(returned, claimed);
    returned.unwrap().unwrap();
    let mut ids: Vec<String> =
        claimed.unwrap().into_iter().flatten().map(|claim| claim.job.job_id.to_string()).collect();
    ids.extend(claim(&store, 2).await.iter().map(|claim| claim.job.job_id.to_string()));
    ids.sort();
    assert_eq!(ids, ["a-0", "a-1"]);
}
