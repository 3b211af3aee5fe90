//! Connection to a bucket, with the settings of the variables `AWS_…`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow, ensure};
use futures_util::TryStreamExt;
use object_store::{BackoffConfig, ObjectStoreExt, RetryConfig, aws::AmazonS3Builder};

use super::{
    BucketAddress, BucketStorage,
    failure::{advice, failure},
};
use crate::{blobs::directory::BlobDirectory, clock::Clock};

/// Maximum number of retries of a request.
const MAX_RETRIES: usize = 3;
/// Time after which a request is not sent again. One request has 30 seconds, a limit of the crate,
/// and a client of agq waits 60 seconds for a reply.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum pause between two retries.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Content of the object of the probe.
const PROBE: &[u8] = b"agq tests whether it can use this bucket";

impl BucketStorage {
    /// Prepares requests to a bucket, and sends none.
    pub(crate) fn connect(address: &BucketAddress, staging: BlobDirectory) -> anyhow::Result<Self> {
        // An error means that the cryptography of this process is chosen already.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let retries = RetryConfig {
            backoff: BackoffConfig { max_backoff: MAX_BACKOFF, ..BackoffConfig::default() },
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(&address.bucket)
            .with_retry(retries)
            .build()
            .map_err(|error| anyhow!(failure(&error)))
            .with_context(|| {
                format!("cannot use {address} for large outputs: correct the variables AWS_… of agq")
            })?;
        Ok(Self::new(Arc::new(store), address, staging))
    }

    /// Writes, reads, lists and deletes an object. A sweep removes it if the deletion fails.
    pub(crate) async fn probe(&self) -> anyhow::Result<()> {
        let part = self.prefix_of(0);
        let path = part.clone().join(format!("probe-{}", Clock::default().suffix()));
        let probing = async {
            // Some servers create a missing bucket for the first object.
            let _before: Vec<_> = self.store.list(Some(&part)).try_collect().await?;
            self.store.put(&path, PROBE.into()).await?;
            let read = self.store.get(&path).await?.bytes().await?;
            let listed: Vec<_> = self.store.list(Some(&part)).try_collect().await?;
            let is_listed = listed.iter().any(|object| object.location == path);
            self.store.delete(&path).await?;
            Ok::<_, object_store::Error>((read, is_listed))
        };
        let (read, is_listed) = probing.await.map_err(|error| {
            let reason = failure(&error);
            anyhow!("cannot use {} for large outputs: {reason}: {}", self.address, advice(&error, &reason))
        })?;
        ensure!(
            read == PROBE && is_listed,
            "cannot use {} for large outputs: the server does not return or list an object that it has just stored: choose another with --blobs",
            self.address
        );
        Ok(())
    }
}
