//! Location of blobs: the options `--blobs` and `--blob-dir`.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};

use super::{
    BlobStorage,
    bucket::{BucketAddress, BucketStorage},
    directory::BlobDirectory,
};
use crate::store::Durability;

/// Value of the options that stands for no storage.
const OFF: &str = "off";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlobLocation {
    /// agq keeps the first bytes of outputs only.
    Off,
    Directory(PathBuf),
    Bucket(BucketAddress),
}

impl BlobLocation {
    /// Returns the location that the options select, or `None` if neither is given. Fails if both
    /// are given.
    pub(crate) fn selected(blobs: Option<&str>, blob_dir: Option<&Path>) -> anyhow::Result<Option<Self>> {
        match (blobs, blob_dir) {
            (Some(blobs), Some(directory)) => bail!(
                "blobs is {blobs}, and blob-dir is {}: give one of them, because agq stores large outputs in one place",
                directory.display()
            ),
            (Some(blobs), None) => Self::parse(blobs).map(Some),
            (None, Some(directory)) if directory.as_os_str() == OFF => Ok(Some(Self::Off)),
            (None, Some(directory)) => Ok(Some(Self::Directory(directory.to_owned()))),
            (None, None) => Ok(None),
        }
    }

    fn parse(blobs: &str) -> anyhow::Result<Self> {
        if blobs == OFF {
            return Ok(Self::Off);
        }
        if let Some(path) = blobs.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Directory(path.into()));
        }
        match blobs.strip_prefix("s3://") {
            Some(address) => BucketAddress::parse(address).map(Self::Bucket),
            // The text may contain credentials, so it is not repeated.
            None => bail!("blobs is no location: write s3://BUCKET/PREFIX, file:///DIR or off"),
        }
    }

    /// Opens the storage for a server. Uploads to a bucket wait in the directory `staging`. Files
    /// in a directory are synced, unless `durability` is an interval, and then may fill the disk.
    /// Fails if the storage cannot be used, but not if a bucket cannot be reached.
    pub(crate) async fn open(
        &self,
        staging: &Path,
        durability: Durability,
    ) -> anyhow::Result<Option<Arc<dyn BlobStorage>>> {
        match self {
            Self::Off => Ok(None),
            Self::Directory(directory) => {
                let directory = BlobDirectory::open(directory)?;
                Ok(Some(Arc::new(match durability {
                    Durability::Interval => directory.without_syncs().with_small_reserve(),
                    Durability::Always | Durability::Promised => directory,
                })))
            }
            Self::Bucket(address) => {
                std::fs::create_dir_all(staging).with_context(|| {
                    let shown = staging.display();
                    format!("cannot create the directory for uploads {shown}: choose another with --data-dir")
                })?;
                // An upload that the power failure of this machine loses is begun again.
                let staging = BlobDirectory::open(staging)?.without_syncs();
                Ok(Some(Arc::new(BucketStorage::open(address, staging).await?)))
            }
        }
    }

    /// Opens the storage for reads only. Creates and changes nothing.
    pub(crate) fn open_for_reads(&self) -> anyhow::Result<Option<Arc<dyn BlobStorage>>> {
        Ok(match self {
            Self::Off => None,
            Self::Directory(directory) => Some(Arc::new(BlobDirectory::at(directory))),
            Self::Bucket(address) => {
                // Reads use no uploads.
                Some(Arc::new(BucketStorage::connect(address, BlobDirectory::at(Path::new("")))?))
            }
        })
    }
}

impl fmt::Display for BlobLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str(OFF),
            Self::Directory(directory) => directory.display().fmt(f),
            Self::Bucket(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::BlobLocation;

    fn shown(blobs: &str) -> String {
        BlobLocation::selected(Some(blobs), None).unwrap().unwrap().to_string()
    }

    fn refusal(blobs: &str) -> String {
        BlobLocation::selected(Some(blobs), None).unwrap_err().to_string()
    }

    #[test]
    fn location_of_blobs_is_a_bucket_a_directory_or_off() {
        assert_eq!(BlobLocation::selected(None, None).unwrap(), None);
        for (blobs, expected) in [
            ("off", "off"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://my.bucket-1/a/b c/", "s3://my.bucket-1/a/b c"),
            ("file:///var/blobs", "/var/blobs"),
        ] {
            assert_eq!(shown(blobs), expected);
        }
        let directory = |path| BlobLocation::selected(None, Some(Path::new(path))).unwrap().unwrap();
        assert_eq!(directory("off"), BlobLocation::Off);
        assert_eq!(directory("d"), BlobLocation::Directory("d".into()));
        assert_eq!(BlobLocation::selected(Some("file:///d"), None).unwrap(), Some(directory("/d")));
    }

    #[test]
    fn location_of_blobs_is_refused_with_what_to_write_instead() {
        for blobs in ["", "file://host/d", "file://d", "/var/blobs", "gs://bucket"] {
            assert!(refusal(blobs).contains("write s3://BUCKET/PREFIX, file:///DIR or off"), "{blobs}");
        }
        for blobs in ["s3://", "s3:///a", "s3://key:secret@bucket/a", "s3://bucket/a?secret=b"] {
            let refusal = refusal(blobs);
            assert!(refusal.contains("AWS_ACCESS_KEY_ID") && !refusal.contains("secret"), "{refusal}");
        }
        assert!(refusal("s3://bucket/a//b").contains("blobs has the prefix \"a//b\""));
        let both = BlobLocation::selected(Some("off"), Some(Path::new("d"))).unwrap_err().to_string();
        assert!(both.contains("blobs is off, and blob-dir is d: give one of them"), "{both}");
    }
}
