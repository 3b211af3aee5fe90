//! agq is killed twenty times during an action: nothing acknowledged is lost, every job ends once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{ActionSubmission, JobUpdate, Status, WorkerRegistration, parse},
    request::BlockingWait,
};
use e2e::{Agq, Lab, eventually};
use serde_json::Value;

use crate::support::{action, plan};

const KILLS: usize = 20;
/// Number of actions, one for each kill.
const ACTIONS: usize = KILLS;
const JOBS_EACH: usize = 100;

#[test]
fn nothing_acknowledged_is_lost_when_agq_is_killed_again_and_again() {
    let lab = Lab::new();
    let mut agq = lab.agq(&["--heartbeat-interval", "1"]);
    let script = format!("sleep 0.02; echo {{{{input.n}}}} >> {}", lab.path().join("ran").display());
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    let _workers = [lab.agw(&agq, "w1", &[]), lab.agw(&agq, "w2", &[])];
    let server = Server::new(&agq.address(), lab.key().into()).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let ledger = {
        let (server, is_over) = (server.clone(), Arc::clone(&is_over));
        thread::spawn(move || runtime().block_on(work_by_ledger(&server, &is_over)))
    };
    let (go, gone) = mpsc::channel();
    let submitter = thread::spawn(move || runtime().block_on(submit_all(&server, &gone)));

    let mut moments = moments();
    for number in 0..KILLS {
        // An action is submitted before each kill, so that agq always has work.
        go.send(number).unwrap();
        // The pause is the random time of the kill, and does not wait for a condition.
        e2e::within(moments.next().unwrap(), || None::<()>);
        agq.kill();
        agq.start_again(&lab);
    }
    drop(go);
    submitter.join().unwrap();
    let statuses = eventually_all_ended(&lab, &agq);
    is_over.store(true, Ordering::Relaxed);
    let acknowledged = ledger.join().unwrap();

    for status in &statuses {
        assert_eq!(
            (status["total_jobs"].as_u64(), status["completed"].as_u64()),
            (Some(100), Some(100)),
            "{status}"
        );
    }
    let mut inputs = BTreeSet::new();
    let mut by_ledger = BTreeSet::new();
    for number in 0..ACTIONS {
        let results = lab.agx(&agq, &["action", "results", &format!("a{number}"), "--json"]).expect(0);
        for line in results.out.lines() {
            let job: Value = serde_json::from_str::<Value>(line).unwrap()["data"].clone();
            assert_eq!(job["status"], "completed");
            inputs.insert(job["inputs"]["n"].as_u64().unwrap());
            if job["worker_id"] == "ledger" {
                by_ledger.insert(job["job_id"].as_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!(inputs.len(), ACTIONS * JOBS_EACH, "every job that was acknowledged is there");
    let lost: Vec<_> = acknowledged.difference(&by_ledger).collect();
    assert!(lost.is_empty(), "these completions were acknowledged and are gone: {lost:?}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns random pauses between kills, long enough for the workers to reconnect. The seed is
/// printed when the test fails.
fn moments() -> impl Iterator<Item = Duration> {
    let mut state = u64::from(std::process::id()) | 1;
    println!("seed of the moments: {state}");
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((state >> 33) % 1500)
    })
}

/// Repeats a call until agq has answered.
async fn with_retry<T>(
    server: &Server,
    mut call: impl AsyncFnMut(&mut Connection) -> Result<T, agenix_client::ClientError>,
) -> T {
    loop {
        if let Ok(mut connection) = Connection::open(server).await {
            match call(&mut connection).await {
                Ok(answer) => return answer,
                Err(error) if error.is_connection() => {}
                Err(error) => panic!("agq refused what it must accept: {error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Submits an action for each received number, and repeats the submission until agq acknowledges
/// it.
async fn submit_all(server: &Server, gone: &mpsc::Receiver<usize>) {
    while let Ok(number) = gone.recv() {
        let inputs: Vec<String> =
            (0..JOBS_EACH).map(|n| format!(r#"{{"n":{}}}"#, number * JOBS_EACH + n)).collect();
        let json = format!(r#"{{"action_id":"a{number}","plan_id":"p","inputs":[{}]}}"#, inputs.join(","));
        let submission: ActionSubmission = parse(json.as_bytes()).unwrap();
        let submitted =
            with_retry(server, async |connection| connection.submit_action(&submission).await).await;
        assert_eq!(submitted.jobs_created, JOBS_EACH as u64);
    }
}

/// Runs a third worker, and returns the jobs whose ends agq has acknowledged.
async fn work_by_ledger(server: &Server, is_over: &AtomicBool) -> BTreeSet<String> {
    let registration: WorkerRegistration =
        parse(br#"{"worker_id":"ledger","capabilities":["sh"],"instance":"one","active_job_ids":[]}"#)
            .unwrap();
    let done = JobUpdate { status: Some(Status::Completed), ..JobUpdate::default() };
    let ready = ["ready".parse().unwrap()];
    let mut acknowledged = BTreeSet::new();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open_without_timeout(server).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if connection.register(&registration).await.is_err() {
            continue;
        }
        while let Ok(claimed) = connection.claim(&ready, 1, BlockingWait::Ms(200)).await {
            if connection.heartbeat(&registration.worker_id, "{}".into()).await.is_err() {
                break;
            }
            if let Some(job) = claimed.first() {
                // The job takes long enough for a kill during its run.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let update = JobUpdate { attempt: Some(job.attempt), ..done.clone() };
                if connection.update_job(&job.job_id, &update).await.is_ok() {
                    acknowledged.insert(job.job_id.to_string());
                }
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    acknowledged
}

fn eventually_all_ended(lab: &Lab, agq: &Agq) -> Vec<Value> {
    let status = |number: usize| {
        eventually("the action ends", || {
            Some(action(lab, agq, &format!("a{number}")))
                .filter(|status| !status["completed_jobs_at"].is_null())
        })
    };
    (0..ACTIONS).map(status).collect()
}
