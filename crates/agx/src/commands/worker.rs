//! `agx worker list`

use agenix_protocol::documents::WorkerStatus;

use crate::{
    cli::ServerArgs,
    error::CliError,
    output::{Output, table},
};

pub(super) async fn list(server: &ServerArgs, output: Output) -> Result<(), CliError> {
    let workers = server.connect().await?.workers().await?;
    output.show("worker.list", &workers, |workers| text(workers))
}

fn text(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "no worker is there: start one with `agw`".into();
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
    table(
        &["WORKER", "STATE", "HOST", "JOBS", "TOOLS", "LAST SEEN"],
        &workers.iter().map(row).collect::<Vec<_>>(),
    )
}
