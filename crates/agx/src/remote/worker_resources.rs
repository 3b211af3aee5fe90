//! Text of the resources of a worker.

use agenix_protocol::documents::{WorkerStatus, amount_text};

/// Returns each resource of the worker with the amount that its jobs use and the amount that it
/// offers, as `cpus 1.5/4, memory 2G/16G`.
pub(crate) fn worker_resources_text(worker: &WorkerStatus) -> String {
    let used = |name: &str| amount_text(name, worker.used_resources.get(name));
    let offered = worker.resources.iter();
    let texts = offered.map(|(name, amount)| format!("{name} {}/{}", used(name), amount_text(name, amount)));
    texts.collect::<Vec<_>>().join(", ")
}
