//! Connections of one registration. Large outputs and inputs have connections of their own, because
//! a large piece would delay heartbeats, reports and the pieces of other jobs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::ids::WorkerId;

#[derive(Clone)]
pub(crate) struct ReportLink {
    pub(crate) reports: Connection,
    transfers: Arc<TransferPool>,
}

/// Connections for uploads and downloads.
struct TransferPool {
    server: Server,
    worker_id: WorkerId,
    idle: Mutex<Vec<Connection>>,
}

impl TransferPool {
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReportLink {
    pub(crate) fn new(reports: Connection, server: Server, worker_id: WorkerId) -> Self {
        let idle = Mutex::default();
        Self { reports, transfers: Arc::new(TransferPool { server, worker_id, idle }) }
    }

    /// Returns a connection for one upload or download, idle or new.
    pub(crate) async fn transfer(&self) -> Result<Connection, ClientError> {
        let idle = self.transfers.idle().pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let mut connection = Connection::open(&self.transfers.server).await?;
        connection.act_for(&self.transfers.worker_id).await?;
        Ok(connection)
    }

    /// Gives a connection back after its upload or download has succeeded.
    pub(crate) fn give_back(&self, connection: Connection) {
        self.transfers.idle().push(connection);
    }

    /// Closes the idle connections after an error of another one.
    pub(crate) fn close_idle(&self) {
        self.transfers.idle().clear();
    }
}
