//! Connection to a bucket, with the settings of the variables `AWS_…`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use futures_util::TryStreamExt;
use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStoreExt, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
};
use reqwest::Url;

use super::{
    BucketAddress, BucketStorage,
    availability::ProbeFailure,
    failure::{advice, failure, is_away},
};
use crate::{blobs::directory::BlobDirectory, clock::Clock};

/// Maximum number of retries of a request.
const MAX_RETRIES: usize = 3;
/// Time after which a request is not sent again. One request has 30 seconds, a limit of the crate,
/// and a client of agq waits 60 seconds for a reply.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum pause between two retries.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Maximum number of retries of a request of a large file, which time bounds.
const LARGE_MAX_RETRIES: usize = 100;
/// Time after which a request of a large file is not sent again. The crate demands less than five
/// minutes, because the credentials of the request may expire.
const LARGE_RETRY_TIMEOUT: Duration = Duration::from_secs(270);
const LARGE_MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Time limit of a request of a large file. In this time, 2.5 Mbit/s suffice for all parts that are
/// on their way at a time.
const LARGE_TIMEOUT: Duration = Duration::from_secs(240);

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
        let failed = || format!("cannot use {address} for large outputs: correct the variables AWS_… of agq");
        let build = |builder: AmazonS3Builder| {
            builder.build().map_err(|error| anyhow!(failure(&error))).with_context(failed)
        };
        let builder = AmazonS3Builder::from_env().with_bucket_name(&address.bucket);
        let endpoint = endpoint(&builder).with_context(failed)?;
        let large_files = build(for_large_files(builder.clone()))?;
        let store = build(builder.with_retry(retries))?;
        Ok(Self::new(Arc::new(store), Arc::new(large_files), address, (staging, &endpoint)))
    }

    /// Writes, reads, lists and deletes an object. A sweep removes the object if the deletion
    /// fails.
    pub(super) async fn probe(&self) -> Result<(), ProbeFailure> {
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
            if is_away(&error) {
                return ProbeFailure::Unreachable(reason);
            }
            let advice = advice(&error, &reason);
            ProbeFailure::Refused(format!(
                "cannot use {} for large outputs: {reason}: {advice}",
                self.address
            ))
        })?;
        if read == PROBE && is_listed {
            return Ok(());
        }
        Err(ProbeFailure::Refused(format!(
            "cannot use {} for large outputs: the server does not return or list an object that it has just stored: choose another with --blobs",
            self.address
        )))
    }
}

/// Sets the times of requests that publish large files. No client waits for such a request, and a
/// file of thousands of parts begins again if one of them fails.
pub(super) fn for_large_files(builder: AmazonS3Builder) -> AmazonS3Builder {
    let retries = RetryConfig {
        // The first retries follow soon, and the pauses grow also if the random ones are short.
        backoff: BackoffConfig { max_backoff: LARGE_MAX_BACKOFF, base: 3.0, ..BackoffConfig::default() },
        max_retries: LARGE_MAX_RETRIES,
        retry_timeout: LARGE_RETRY_TIMEOUT,
    };
    let timeout = format!("{}s", LARGE_TIMEOUT.as_secs());
    builder.with_retry(retries).with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), timeout)
}

/// Returns the address of the server, without credentials. Fails for an address that is no URL,
/// because the crate would panic.
fn endpoint(builder: &AmazonS3Builder) -> anyhow::Result<String> {
    let value = |key| builder.get_config_value(&key);
    match value(AmazonS3ConfigKey::S3Endpoint).or_else(|| value(AmazonS3ConfigKey::Endpoint)) {
        Some(given) => without_credentials(&given)
            .context("AWS_ENDPOINT_URL is no address: write https://HOST:PORT or http://HOST:PORT"),
        None => {
            let region = value(AmazonS3ConfigKey::Region);
            Ok(format!("AWS in {}", region.as_deref().unwrap_or("us-east-1")))
        }
    }
}

/// Returns the scheme, the host and the port of a URL.
fn without_credentials(url: &str) -> Option<String> {
    let url: Url = url.parse().ok()?;
    let scheme = Some(url.scheme()).filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{}{port}", url.host_str()?))
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    #[test]
    fn bucket_endpoint_is_a_url_and_shown_without_credentials() {
        for (url, shown) in [
            ("https://s3.example:9000", Some("https://s3.example:9000")),
            ("http://key:secret@s3.example/path?token=a", Some("http://s3.example")),
            ("http://[::1]:9000/", Some("http://[::1]:9000")),
            ("127.0.0.1:9000", None),
            ("s3.example", None),
            ("/path", None),
            ("ftp://s3.example", None),
            ("http://s3.example:port", None),
            ("http://", None),
            ("", None),
        ] {
            assert_eq!(without_credentials(url).as_deref(), shown, "{url}");
        }
    }
}
