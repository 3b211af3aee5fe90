//! Address of a bucket, as people write it.

use std::fmt;

use anyhow::{Context, bail};
use object_store::path::Path;

/// Bucket, and the prefix of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketAddress {
    pub(super) bucket: String,
    pub(super) prefix: Path,
}

impl BucketAddress {
    /// Parses the part of an address after `s3://`.
    pub(crate) fn parse(address: &str) -> anyhow::Result<Self> {
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if bucket.is_empty() || !bucket.chars().all(is_permitted) || prefix.contains(['?', '#']) {
            // The text may contain credentials, so it is not repeated.
            bail!(
                "blobs has no name of a bucket: write s3://BUCKET/PREFIX, and give credentials and the address of the server with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
            );
        }
        let prefix = Path::parse(prefix)
            .with_context(|| format!("blobs has the prefix {prefix:?}: write s3://{bucket}/PREFIX"))?;
        Ok(Self { bucket: bucket.to_owned(), prefix })
    }
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_root() { "" } else { "/" };
        write!(f, "s3://{}{slash}{}", self.bucket, self.prefix)
    }
}
