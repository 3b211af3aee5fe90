//! `agx worker`

use agenix_protocol::{documents::WorkerStatus, ids::WorkerId};
use clap::Subcommand;

use crate::{
    documents::WorkerRef,
    error::Result,
    output::{Output, table},
    server_args::ServerArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers, their states and jobs
    List,
    /// Drain a worker: it finishes its jobs and takes no new ones
    Drain { worker_id: WorkerId },
    /// Resume a drained or quarantined worker
    Resume { worker_id: WorkerId },
}

pub(crate) async fn run(server: &ServerArgs, command: WorkerCommand, output: Output) -> Result<()> {
    match command {
        WorkerCommand::List => list(server, output).await,
        WorkerCommand::Drain { worker_id } => set_draining(server, &worker_id, true, output).await,
        WorkerCommand::Resume { worker_id } => set_draining(server, &worker_id, false, output).await,
    }
}

async fn list(server: &ServerArgs, output: Output) -> Result<()> {
    let workers = server.connect().await?.workers().await?;
    output.show("worker.list", &workers, |workers| text(workers))
}

fn text(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "there is no worker: start one with `agw`".into();
    }
    let row = |worker: &WorkerStatus| {
        vec![
            worker.worker_id.to_string(),
            worker.state.clone(),
            worker.hostname.clone(),
            format!("{}/{}", worker.active_jobs, worker.max_concurrent_jobs),
            worker.capabilities.commands().count().to_string(),
            worker.last_seen_at.to_string(),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    table(&["WORKER", "STATE", "HOST", "JOBS", "TOOLS", "LAST SEEN"], &rows)
}

async fn set_draining(server: &ServerArgs, id: &WorkerId, drains: bool, output: Output) -> Result<()> {
    server.connect().await?.drain_worker(id, drains).await?;
    let (kind, what) = if drains {
        ("worker.drain", "accepts no more jobs, and completes the ones that it has")
    } else {
        ("worker.resume", "takes jobs again")
    };
    output.show(kind, &WorkerRef { worker_id: id.clone() }, |_| format!("the worker {id} {what}"))
}
