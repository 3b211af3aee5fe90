//! Connections of one registration for reports and uploads. Uploads have a connection of their own,
//! because a large piece would delay heartbeats and reports.

use std::sync::Arc;

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::ids::WorkerId;
use tokio::sync::Mutex;

#[derive(Clone)]
pub(crate) struct ReportLink {
    pub(crate) reports: Connection,
    uploads: Arc<UploadConnection>,
}

struct UploadConnection {
    server: Server,
    worker_id: WorkerId,
    /// Opened by the first upload.
    opened: Mutex<Option<Connection>>,
}

impl ReportLink {
    pub(crate) fn new(reports: Connection, server: Server, worker_id: WorkerId) -> Self {
        let opened = Mutex::default();
        Self { reports, uploads: Arc::new(UploadConnection { server, worker_id, opened }) }
    }

    /// Returns the connection for uploads, which is opened if necessary.
    pub(crate) async fn uploads(&self) -> Result<Connection, ClientError> {
        let UploadConnection { server, worker_id, opened } = &*self.uploads;
        let mut opened = opened.lock().await;
        if let Some(connection) = &*opened {
            return Ok(connection.clone());
        }
        let mut connection = Connection::open(server).await?;
        connection.act_for(worker_id).await?;
        Ok(opened.insert(connection).clone())
    }

    /// Closes the connection for uploads after an error, so that the next upload opens another.
    pub(crate) async fn reset_uploads(&self) {
        *self.uploads.opened.lock().await = None;
    }
}
