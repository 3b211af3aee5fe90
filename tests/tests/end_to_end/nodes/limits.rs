//! Jobs under limits at several nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
    thread,
};

use e2e::{Agq, Lab};

use super::ONLY_TOLD;
use crate::{
    http::client::Http,
    support::{RawConnection, plan},
};

/// Number of clients, which are divided among the nodes.
const CLIENTS: usize = 24;
/// Number of jobs that each client submits, and that it runs.
const CYCLES: usize = 30;
/// Number of limits that the jobs have in turn.
const LIMITS: usize = 60;
/// Greatest number of jobs that run under a limit at once.
const CONCURRENCY: usize = 2;

/// Jobs that clients have got.
#[derive(Default)]
struct FetchedJobs {
    fetched: BTreeSet<String>,
    /// Number of jobs that run, by limit.
    running: BTreeMap<usize, usize>,
}

#[test]
fn each_unique_job_under_a_limit_goes_to_one_client_of_three_nodes() {
    let lab = Lab::of_nodes();
    let nodes: Vec<Agq> = (0..3).map(|_| lab.agq(&[])).collect();
    let ledger = Mutex::new(FetchedJobs::default());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (http, ledger) = (Http::of(&lab, &nodes[client % nodes.len()]), &ledger);
            scope
                .spawn(move || (0..CYCLES).for_each(|cycle| run_one(&http, client * CYCLES + cycle, ledger)));
        }
    });
    assert_eq!(locked(&ledger).fetched.len(), CLIENTS * CYCLES);
    let http = Http::of(&lab, &nodes[0]);
    for limit in 0..LIMITS {
        assert_eq!(http.get(&format!("/rate-limits/k{limit}"))["concurrency"]["active"], 0);
    }
    assert!(http.fetch("late", "default").is_none());
}

#[test]
fn waiter_under_a_rate_limit_is_woken_at_a_node_that_does_not_lead() {
    let lab = Lab::of_nodes();
    // The node that starts first is the leader.
    let (_leader, other) = (lab.agq(&ONLY_TOLD), lab.agq(&ONLY_TOLD));
    lab.submit_plan(&other, &plan("p", "true", &[]));
    let inputs = lab.file("inputs", "[{},{},{}]").display().to_string();
    lab.agx(&other, &["action", "submit", "p", "--id", "a", "--inputs", &inputs, "--rate", "1/s"]).expect(0);
    let mut waits = RawConnection::open(&lab, &other);
    let mut jobs = BTreeSet::new();
    for _ in 0..3 {
        waits.send("BRPOP queue:ready 0\n");
        jobs.insert(waits.bulk());
    }
    assert_eq!(jobs.len(), 3);
}

/// Submits the job `number`, and then runs a job, which may be that of another client.
fn run_one(http: &Http, number: usize, ledger: &Mutex<FetchedJobs>) {
    let limit = format!(r#""rate_limit":{{"key":"k{}","concurrency":{CONCURRENCY}}}"#, number % LIMITS);
    let unique = r#""unique":{"keys":["type","args"]}"#;
    http.enqueue(&format!(r#"{{"type":"t","args":[{number}],"options":{{{unique},{limit}}}}}"#));
    let job = std::iter::repeat_with(|| http.fetch("w", "default")).flatten().next().unwrap();
    let id = job["id"].as_str().unwrap();
    let limit = usize::try_from(job["args"][0].as_u64().unwrap()).unwrap() % LIMITS;
    {
        let mut ledger = locked(ledger);
        assert!(ledger.fetched.insert(id.to_owned()), "{id} was fetched twice");
        let running = ledger.running.entry(limit).or_default();
        *running += 1;
        assert!(*running <= CONCURRENCY, "{running} jobs run under limit {limit}");
    }
    // From here on, the job may have ended for agq before this client knows.
    *locked(ledger).running.entry(limit).or_default() -= 1;
    http.post("/workers/ack", &format!(r#"{{"job_id":"{id}","worker_id":"w"}}"#));
}

fn locked(ledger: &Mutex<FetchedJobs>) -> MutexGuard<'_, FetchedJobs> {
    ledger.lock().unwrap()
}
