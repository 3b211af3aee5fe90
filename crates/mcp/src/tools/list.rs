//! `agx_tools`: programs of the workers.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::WorkerStatus, printable::one_line};

use crate::{
    arguments::ToolsArguments,
    error::Result,
    queue::Queue,
    reports::{ProgramReport, ToolsReport},
};

/// Maximum number of programs in a report.
const MAX_PROGRAMS: usize = 1000;

/// State of a worker that takes jobs.
const ACTIVE: &str = "active";

pub(crate) async fn run(queue: &Queue, arguments: ToolsArguments) -> Result<ToolsReport> {
    let workers = queue.call(|mut agq| async move { agq.workers().await }).await?;
    Ok(of_workers(&workers, arguments.query.as_deref().unwrap_or_default(), arguments.limit))
}

fn of_workers(workers: &[WorkerStatus], query: &str, limit: usize) -> ToolsReport {
    let active: Vec<_> = workers.iter().filter(|worker| worker.state == ACTIVE).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in active.iter().flat_map(|worker| worker.capabilities.commands()) {
        if name.contains(query) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let profiles: BTreeSet<&String> = active
        .iter()
        .flat_map(|worker| worker.sandbox.iter().flat_map(|sandbox| &sandbox.profiles))
        .filter(|(_, unmet)| unmet.is_empty())
        .map(|(name, _)| name)
        .collect();
    let total = counts.len();
    let programs = counts.into_iter().take(limit.min(MAX_PROGRAMS));
    ToolsReport {
        workers: active.len(),
        programs: programs.map(|(name, workers)| ProgramReport { name: one_line(name), workers }).collect(),
        total,
        profiles: profiles.into_iter().map(|name| one_line(name)).collect(),
    }
}
