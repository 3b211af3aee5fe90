//! Connections of one registration. Large outputs and inputs have connections of their own, because
//! a large chunk would delay heartbeats, reports and the chunks of other jobs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::ids::WorkerId;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Maximum number of uploads and downloads at the same time, because agq limits the connections of
/// one address.
const MAX_TRANSFERS: usize = 4;

#[derive(Clone)]
pub(crate) struct ReportLink {
    pub(crate) reports: Connection,
    transfers: Arc<TransferPool>,
}

/// Connections for uploads and downloads.
struct TransferPool {
    server: Server,
    worker_id: WorkerId,
    /// Runtime of the protocol, which drives the connections.
    runtime: Handle,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

/// Connection for one upload or download.
pub(crate) struct Transfer {
    pub(crate) connection: Connection,
    _permit: OwnedSemaphorePermit,
}

impl TransferPool {
    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReportLink {
    /// Returns connections that the runtime of the caller drives.
    pub(crate) fn new(reports: Connection, server: Server, worker_id: WorkerId) -> Self {
        let (permits, idle) = (Arc::new(Semaphore::new(MAX_TRANSFERS)), Mutex::default());
        let runtime = Handle::current();
        Self { reports, transfers: Arc::new(TransferPool { server, worker_id, runtime, permits, idle }) }
    }

    /// Waits while there are [`MAX_TRANSFERS`], and returns an idle or a new connection.
    pub(crate) async fn transfer(&self) -> Result<Transfer, ClientError> {
        let TransferPool { server, worker_id, runtime, permits, .. } = &*self.transfers;
        let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
        let idle = self.transfers.idle().pop();
        if let Some(connection) = idle {
            return Ok(Transfer { connection, _permit: permit });
        }
        let (server, worker_id) = (server.clone(), worker_id.clone());
        let address = server.address();
        // A lane has no thread that looks up names, and the system may refuse one.
        let opening = runtime.spawn(async move {
            let mut connection = Connection::open(&server).await?;
            connection.act_for(&worker_id).await?;
            Ok(connection)
        });
        let ended = |_| ClientError::Unreachable { address, reason: "the worker ends".into() };
        Ok(Transfer { connection: opening.await.map_err(ended)??, _permit: permit })
    }

    /// Gives a connection back after its upload or download has succeeded.
    pub(crate) fn give_back(&self, transfer: Transfer) {
        self.transfers.idle().push(transfer.connection);
    }

    /// Closes the idle connections after an error of another one.
    pub(crate) fn close_idle(&self) {
        self.transfers.idle().clear();
    }
}
