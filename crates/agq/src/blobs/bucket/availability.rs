//! Availability of a bucket: probes at the start, after failures, and until the bucket is back.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::bail;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tracing::{error, info, warn};

use super::{BucketAddress, BucketStorage};
use crate::{blobs::directory::BlobDirectory, sync::lock};

/// Time for which the start waits for the probe.
const START_WAIT: Duration = Duration::from_secs(10);
/// Minimum pause between two probes.
const PAUSE: Duration = Duration::from_secs(2);

/// Reason for which a bucket cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeFailure {
    /// The endpoint cannot be reached, or cannot work at the moment.
    Unreachable(String),
    /// The endpoint refuses a request, which does not change by itself.
    Refused(String),
}

/// Result of the latest probe, shared by all clones of a storage.
#[derive(Debug, Clone)]
pub(super) struct Availability {
    /// Address of the server in log lines.
    endpoint: Arc<str>,
    failure: Arc<Mutex<Option<ProbeFailure>>>,
    suspicion: Arc<Notify>,
}

impl Availability {
    pub(super) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), failure: Arc::default(), suspicion: Arc::default() }
    }

    pub(super) fn is_available(&self) -> bool {
        lock(&self.failure).is_none()
    }

    /// Notes that a request has failed. A probe finds out whether others would.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Stores the result of a probe, and logs a change.
    fn store(&self, bucket: &impl fmt::Display, probed: Result<(), ProbeFailure>) {
        use ProbeFailure as F;
        let now = probed.err();
        let before = std::mem::replace(&mut *lock(&self.failure), now.clone());
        let endpoint = &*self.endpoint;
        match (before, now) {
            (Some(_), None) => {
                info!(%bucket, endpoint, "the bucket can be reached again: agq stores and reads large outputs");
            }
            (None | Some(F::Refused(_)), Some(F::Unreachable(reason))) => warn!(
                %bucket,
                endpoint,
                reason,
                "the bucket cannot be reached: until it can be, agq can neither store nor read large outputs, and workers repeat their uploads"
            ),
            (None | Some(F::Unreachable(_)), Some(F::Refused(reason))) => error!(
                endpoint,
                "{reason}; until then, agq can neither store nor read large outputs, and workers repeat their uploads"
            ),
            _ => {}
        }
    }
}

impl BucketStorage {
    /// Opens a bucket for a server. Fails if the bucket refuses a request. A bucket that cannot be
    /// reached is probed until it can be.
    pub(crate) async fn open(address: &BucketAddress, staging: BlobDirectory) -> anyhow::Result<Self> {
        let bucket = Self::connect(address, staging)?;
        let probed = timeout(START_WAIT, bucket.probe()).await;
        let probed = probed
            .unwrap_or_else(|_| Err(ProbeFailure::Unreachable("it does not answer in time".to_owned())));
        if let Err(ProbeFailure::Refused(reason)) = probed {
            bail!(reason);
        }
        bucket.availability.store(address, probed);
        tokio::spawn(bucket.clone().keep_watch());
        Ok(bucket)
    }

    /// Probes the bucket while it cannot be reached, and after each failure of a request.
    async fn keep_watch(self) {
        loop {
            if self.availability.is_available() {
                self.availability.suspicion.notified().await;
            }
            self.availability.store(&self.address, self.probe().await);
            sleep(PAUSE).await;
        }
    }
}
