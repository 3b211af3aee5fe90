//! Quantities of workers that claim from three nodes at the same time.

use std::sync::Arc;

use agenix_protocol::{
    documents::{CPUS, Quantities, WorkerRegistration},
    ids::WorkerId,
};
use agenix_rules::{
    capability::{ClaimantCapabilities, Needs},
    job::NewJob,
    worker,
};
use e2e::Database;
use futures_util::future::join_all;

use super::{
    between_nodes::{deadlocks, three_nodes},
    making::{NOW, ack, number, own, submit},
};
use crate::store::{AckLevel, Claimant, JobStore, WorkerStore, postgres::PostgresStore};

/// Processors that each worker offers, in hundredths.
const OFFERED: u64 = 300;

fn cpus(hundredths: u64) -> Quantities {
    let mut quantities = Quantities::default();
    quantities.set(CPUS, hundredths);
    quantities
}

fn registration(worker_id: &str) -> WorkerRegistration {
    let worker_id = WorkerId::new(worker_id).unwrap();
    WorkerRegistration { resources: cpus(OFFERED), ..WorkerRegistration::of(worker_id) }
}

fn wanting(job_id: &str, hundredths: u64) -> NewJob {
    let mut job = own(job_id, None, None);
    if let Some(own) = &mut job.own {
        Arc::make_mut(own).needs.resources = Some(Box::new(cpus(hundredths)));
    }
    job
}

async fn register(node: &PostgresStore, worker_id: &str) {
    let registration = registration(worker_id);
    let id = registration.worker_id.clone();
    let rule = Box::new(move |known: Option<&worker::Worker>| {
        worker::registered(known, &registration, "c", NOW).map(Some)
    });
    node.decide_worker(&id, AckLevel::Durable, None, rule).await.unwrap().unwrap();
}

/// Claims and ends jobs until none waits. Returns the number of ended jobs.
async fn work(node: Arc<PostgresStore>) -> usize {
    let claimant = |worker_id: &str| Claimant {
        holder: worker_id.into(),
        capabilities: Arc::new(ClaimantCapabilities::of(&registration(worker_id))),
        queues: vec!["q".to_owned()].into(),
        share_terms: Arc::default(),
        visibility_ms: None,
    };
    let mut done = 0;
    while number(&node, "SELECT count(*) FROM agq.jobs WHERE status = 0").await > 0 {
        let claimants = ["w0", "w1", "w0", "w1"].map(claimant).into();
        let claims: Vec<_> = node.claim(claimants, NOW, 0).await.unwrap().into_iter().flatten().collect();
        for (holder, used) in node.used_resources(None).await.unwrap() {
            assert!(used.get(CPUS) <= OFFERED, "{holder} uses {used}");
        }
        done += join_all(claims.iter().map(|claim| ack(&node, &claim.job.job_id))).await.len();
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_give_a_worker_no_more_than_it_offers() {
    let database = Database::new();
    let nodes = three_nodes(&database).await;
    for worker_id in ["w0", "w1"] {
        register(&nodes[0], worker_id).await;
    }
    let jobs = (0..120).map(|n| wanting(&format!("a-{n}"), [50, 100, 300, 150][n % 4])).collect();
    submit(&nodes[0], "a", Needs::default(), jobs).await.unwrap();
    let all = nodes.iter().map(|node| tokio::spawn(work(Arc::clone(node))));
    let done: usize = join_all(all).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(done, 120);
    assert_eq!(nodes[0].used_resources(None).await.unwrap().len(), 0);
    assert_eq!(deadlocks(&database, nodes).await, 0);
}
