//! Jobs whose holders are gone: dead or unregistered workers, and connections of nodes that are not
//! live.

use std::collections::HashSet;

use agenix_protocol::ids::WorkerId;
use agenix_rules::worker::Liveness;
use tracing::info;

use crate::{
    app::{AppState, is_connection, node_of},
    error::Result,
    service::{job_changes::release_all, jobs::requeue_lost, workers::detach},
};

/// Gives the jobs of dead or unregistered workers, and of connections to dead nodes, to other
/// workers. Checks all holders, because a crash may have interrupted an earlier round.
pub(super) async fn requeue_orphaned_jobs(app: &AppState) -> Result<()> {
    // The nodes are read last, so that a node that comes meanwhile is among the live nodes.
    let workers = if app.store.node().is_some() { app.store.worker_records().await? } else { Vec::new() };
    let holders = app.store.holders().await?;
    let nodes = app.store.nodes().await?;
    for worker in workers {
        let connection = worker.connection.filter(|connection| is_at_a_gone_node(connection, nodes.as_ref()));
        if let Some(connection) = connection {
            detach(app, &worker.worker_id, &connection).await?;
        }
    }
    for holder in holders {
        if is_connection(&holder) {
            if is_at_a_gone_node(&holder, nodes.as_ref()) {
                release_all(app, &holder).await?;
                info!(holder, "the jobs of a connection to a dead node were requeued");
            }
            continue;
        }
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        match app.store.worker(&worker_id).await? {
            Some(worker) if worker.liveness == Liveness::Active => continue,
            Some(_dead) => requeue_lost(app, &holder).await?,
            None => release_all(app, &holder).await?,
        }
        app.waiters.evict(&holder);
        info!(holder, "the jobs of a dead or unregistered worker were requeued");
    }
    Ok(())
}

/// Returns true for a connection of a node that is not live. Without a name of a node, the
/// connection is one of the agq on a file whose records were imported.
fn is_at_a_gone_node(connection: &str, nodes: Option<&HashSet<String>>) -> bool {
    let Some(nodes) = nodes.filter(|_| is_connection(connection)) else { return false };
    node_of(connection).is_none_or(|node| !nodes.contains(node))
}

#[cfg(test)]
mod tests {
    use super::is_at_a_gone_node;

    #[test]
    fn connections_of_nodes_that_are_not_live_are_gone() {
        let nodes = Some(["here".to_owned()].into());
        let is_gone = |connection: &str| is_at_a_gone_node(connection, nodes.as_ref());
        assert!(!is_gone("connection:here:1") && is_gone("connection:there:1"));
        assert!(is_gone("connection:5"), "it was imported from a file");
        assert!(!is_gone("http") && !is_gone("worker"), "they are no connections");
        assert!(!is_at_a_gone_node("connection:5", None), "there are no nodes");
    }
}
