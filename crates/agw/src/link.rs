//! The connection of the moment. Sessions come and go with agq; jobs outlive them and report over whichever is there.

use std::{sync::Arc, time::Duration};

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{JobUpdate, to_json},
    ids::JobId,
    limits::MAX_UPDATE_BYTES,
};
use tokio::sync::{Notify, watch};
use tracing::{debug, warn};

use crate::job;

/// A report that has to be smaller than this has to do without its results.
const LEAST_UPDATE_BYTES: usize = 4096;
/// How long to wait when agq's store fails: its disk may be full for a while.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Where jobs find the connection to report on.
pub(crate) struct Link {
    current: watch::Receiver<Option<Connection>>,
    lost: Arc<Notify>,
}

impl Link {
    /// `lost` is told when the connection turns out to be dead: with all slots taken by jobs that wait to report, nobody
    /// else would find out before the next heartbeat.
    pub(crate) fn new(current: watch::Receiver<Option<Connection>>, lost: Arc<Notify>) -> Self {
        Self { current, lost }
    }

    /// Reports the end of a job, until agq has accepted or refused it.
    pub(crate) async fn report(&mut self, job_id: &JobId, mut update: JobUpdate) {
        let (mut json, mut most) = (to_json(&update), MAX_UPDATE_BYTES);
        loop {
            // Only a newer connection than this one is worth another try.
            let connection = self.current.borrow_and_update().clone();
            if let Some(mut connection) = connection {
                match connection.update_job_json(job_id, json.clone()).await {
                    Ok(()) => return,
                    Err(error @ ClientError::Unreachable { .. }) => {
                        debug!(%job_id, %error, "the report has to wait");
                        self.lost.notify_waiters();
                    }
                    Err(error @ ClientError::StoreFailed(_)) => {
                        warn!(%job_id, %error, "the report is sent again in a moment");
                        tokio::time::sleep(STORE_PAUSE).await;
                        continue;
                    }
                    // Its limit is below ours. It closes the connection; the next one takes a smaller report.
                    Err(ClientError::Rejected(reason))
                        if reason.starts_with("Message too large") && most > 0 =>
                    {
                        most = if most > LEAST_UPDATE_BYTES { most / 4 } else { 0 };
                        warn!(%job_id, reason, most, "the report is cut and sent again");
                        update = job::shrunk(update, most);
                        json = to_json(&update);
                        self.lost.notify_waiters();
                    }
                    Err(error) => {
                        warn!(%job_id, %error, "agq did not accept the report; the job is not ours any more");
                        return;
                    }
                }
            }
            if self.current.changed().await.is_err() {
                return;
            }
        }
    }

    /// Tells agq how a job is getting on, if it can be told now.
    pub(crate) fn mention(&self, job_id: &JobId, update: JobUpdate) {
        let Some(mut connection) = self.current.borrow().clone() else { return };
        let job_id = job_id.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.update_job(&job_id, &update).await {
                debug!(%job_id, %error, "progress was not reported");
            }
        });
    }
}
