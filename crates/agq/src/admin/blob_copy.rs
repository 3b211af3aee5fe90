//! Blobs of a backup or an export: the directory `FILE.blobs` beside the file.
//!
//! The directory has the form of `--blob-dir`, and a manifest. The directory gets its name before
//! the file does, so an interrupted backup has no file, and a backup whose directory is missing or
//! incomplete is recognised by its records.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use agenix_cli::sync_directory;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    blob_blocks::BlockSums,
};
use agenix_rules::blob::StoredBlob;
use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    admin::say,
    blobs::{BlobFile, BlobStorage, directory::BlobDirectory, read_range},
    config::blobs_beside,
    synced_directory::parent,
};

const MANIFEST: &str = "manifest.json";
/// Version of the form of the directory.
const VERSION: u32 = 1;
/// Number of bytes that are copied at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// File that describes the blobs of the directory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    agq_blobs: u32,
    blobs: u64,
    bytes: u64,
    /// Blobs that agq no longer had, or had damaged.
    lost: BTreeSet<BlobHash>,
}

/// Number of copied blobs and of their bytes, and the faults of those that could not be copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) blobs: u64,
    pub(super) bytes: u64,
    pub(super) faults: Vec<(BlobHash, String)>,
}

/// Directory with a temporary name until it is complete. The directory is removed if it never
/// becomes complete.
pub(super) struct PartialDirectory {
    place: PathBuf,
    path: PathBuf,
}

impl PartialDirectory {
    /// Fails if the destination exists. Only the owner may read the directory, because it has
    /// results of jobs.
    pub(super) fn create(place: PathBuf) -> anyhow::Result<Self> {
        if place.symlink_metadata().is_ok() {
            bail!("{} already exists and is not overwritten: move it away first", place.display());
        }
        let path = place.with_added_extension("part");
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| {
            let shown = path.display();
            format!("cannot create {shown}: if an interrupted command has left it, remove it")
        })?;
        Ok(Self { place, path })
    }

    pub(super) fn storage(&self) -> anyhow::Result<Arc<dyn BlobStorage>> {
        Ok(Arc::new(BlobDirectory::open(&self.path)?))
    }

    /// Writes the manifest, and gives the directory its name.
    pub(super) fn put(self, copied: &Copied) -> anyhow::Result<()> {
        let lost = copied.faults.iter().map(|(hash, _)| *hash).collect();
        let manifest = Manifest { agq_blobs: VERSION, blobs: copied.blobs, bytes: copied.bytes, lost };
        let json = serde_json::to_vec(&manifest)?;
        let written = File::create(self.path.join(MANIFEST)).and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()?;
            sync_directory(&self.path)?;
            fs::rename(&self.path, &self.place)?;
            sync_directory(parent(&self.place))
        });
        written.with_context(|| format!("cannot write {}", self.place.display()))
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        // After the move there is no temporary directory.
        let _removed = fs::remove_dir_all(&self.path);
    }
}

/// Copies all blobs into `to`. `read` returns bytes of a blob from an offset, or the fault of a
/// blob that cannot be read. Such a blob is left out.
pub(super) async fn copy_blobs(
    blobs: &[(BlobHash, StoredBlob)],
    to: &Arc<dyn BlobStorage>,
    mut read: impl AsyncFnMut(BlobHash, &StoredBlob, u64) -> anyhow::Result<Result<Bytes, String>>,
) -> anyhow::Result<Copied> {
    let mut copied = Copied::default();
    for (hash, blob) in blobs {
        let name = BlobFile::of(*hash, blob).to_string();
        let fault = copy(*hash, blob, to, &mut read).await;
        match fault.with_context(|| format!("cannot copy the large output {name}"))? {
            None => {
                copied.blobs += 1;
                copied.bytes += blob.length;
            }
            Some(fault) => {
                to.discard(&name).await?;
                copied.faults.push((*hash, fault));
            }
        }
    }
    Ok(copied)
}

/// Copies a blob, and compares it with its length and hash. Returns the fault of the blob, if the
/// blob has one.
async fn copy(
    hash: BlobHash,
    blob: &StoredBlob,
    to: &Arc<dyn BlobStorage>,
    read: &mut impl AsyncFnMut(BlobHash, &StoredBlob, u64) -> anyhow::Result<Result<Bytes, String>>,
) -> anyhow::Result<Option<String>> {
    let file = BlobFile::of(hash, blob);
    let (upload, length) = (file.to_string(), blob.length);
    let (mut digest, mut sums, mut done) = (BlobHasher::default(), BlockSums::default(), 0);
    while done < length {
        let chunk = match read(hash, blob, done).await? {
            Ok(chunk) => chunk,
            Err(fault) => return Ok(Some(fault)),
        };
        let end = done + chunk.len() as u64;
        if chunk.is_empty() || end > length {
            return Ok(Some(format!("the blob {file} has {end} bytes, not {length}")));
        }
        digest.update(&chunk);
        sums.add(&chunk);
        to.write(&upload, done, chunk).await?;
        done = end;
    }
    if digest.finish() != hash {
        return Ok(Some(format!("the bytes of the blob {file} do not have its BLAKE3 hash")));
    }
    to.write(&upload, length, sums.finish()).await?;
    to.publish(&upload, &file).await?;
    Ok(None)
}

/// Copies blobs from a directory.
pub(super) async fn copy_from(
    from: &Path,
    blobs: &[(BlobHash, StoredBlob)],
    to: &Arc<dyn BlobStorage>,
) -> anyhow::Result<Copied> {
    let source: Arc<dyn BlobStorage> = Arc::new(BlobDirectory::open(from)?);
    copy_blobs(blobs, to, async |hash, blob, offset| {
        let range = (offset, CHUNK_BYTES);
        let read = read_range(&source, &BlobFile::of(hash, blob), blob.length, range).await;
        Ok(read.map_err(|error| error.to_string()))
    })
    .await
}

/// Prints what was copied beside a file. Fails if a blob could not be copied.
pub(super) fn say_copied(file: &Path, copied: &Copied) -> anyhow::Result<()> {
    let (directory, Copied { blobs, bytes, faults }) = (blobs_beside(file), copied);
    say(&format!("wrote {}: {blobs} large outputs of {bytes} bytes", directory.display()))?;
    let Some((_, fault)) = faults.first() else { return Ok(()) };
    bail!(
        "{} is complete but for {} large outputs that agq cannot read, the first one because {fault}; `agq check` of that agq's data directory names them; keep your older copies",
        file.display(),
        faults.len()
    )
}

/// Copies the blobs of a backup from the directory beside it. A blob that was lost before the
/// backup is left out; any other fault is an error. Returns `None` for a backup without the
/// directory.
pub(super) async fn restore_blobs(
    backup: &Path,
    blobs: &[(BlobHash, StoredBlob)],
    to: &Path,
) -> anyhow::Result<Option<Copied>> {
    let from = blobs_beside(backup);
    let Some(manifest) = manifest(&from)? else { return Ok(None) };
    let target: Arc<dyn BlobStorage> = Arc::new(BlobDirectory::open(to)?);
    let copied = copy_from(&from, blobs, &target).await?;
    let mut unexpected = copied.faults.iter().filter(|(hash, _)| !manifest.lost.contains(hash));
    if let Some((_, fault)) = unexpected.next() {
        bail!("{} is not complete: {fault}; copy it again, or take another backup", from.display());
    }
    Ok(Some(copied))
}

/// Reads the manifest of a directory. Returns `None` if there is no directory.
fn manifest(directory: &Path) -> anyhow::Result<Option<Manifest>> {
    let shown = directory.display();
    let json = match fs::read(directory.join(MANIFEST)) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => return Ok(None),
        Err(error) => {
            let text = format!("cannot read {shown}/{MANIFEST}, so {shown} is not complete: copy it again");
            return Err(anyhow::Error::new(error).context(text));
        }
    };
    let manifest: Manifest = serde_json::from_slice(&json)
        .with_context(|| format!("{shown}/{MANIFEST} is damaged: copy it again"))?;
    if manifest.agq_blobs != VERSION {
        bail!("{shown} has version {}, and this agq reads {VERSION}: use a newer agq", manifest.agq_blobs);
    }
    Ok(Some(manifest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{blob::BlobHash, time::Timestamp};
    use agenix_rules::blob::StoredBlob;
    use bytes::Bytes;

    use super::{CHUNK_BYTES, MANIFEST, PartialDirectory, blobs_beside, copy_blobs, restore_blobs};
    use crate::blobs::{BlobStorage, check::check_files, directory::BlobDirectory};

    fn blob(content: &[u8]) -> (BlobHash, StoredBlob) {
        let hash = BlobHash::of(content);
        (hash, StoredBlob::new(content.len() as u64, "s", Timestamp(0)))
    }

    #[tokio::test]
    async fn blobs_come_back_from_a_backup_that_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let (backup, to) = (dir.path().join("copy.redb"), dir.path().join("restored"));
        let contents: Vec<Vec<u8>> = vec![vec![b'a'; CHUNK_BYTES + 1], b"b".to_vec(), b"lost".to_vec()];
        let blobs: Vec<_> = contents.iter().map(|content| blob(content)).collect();
        assert!(restore_blobs(&backup, &blobs, &to).await.unwrap().is_none(), "an older backup");

        let place = blobs_beside(&backup);
        let part = PartialDirectory::create(place.clone()).unwrap();
        assert!(PartialDirectory::create(place.clone()).is_err(), "another backup is under way");
        let storage = part.storage().unwrap();
        let copied = copy_blobs(&blobs, &storage, async |hash, _, offset| {
            let content = &contents[blobs.iter().position(|(other, _)| *other == hash).unwrap()];
            let start = usize::try_from(offset).unwrap();
            let chunk = &content[start..content.len().min(start + CHUNK_BYTES)];
            Ok(if content == b"lost" { Err("it is lost".into()) } else { Ok(Bytes::copy_from_slice(chunk)) })
        });
        let copied = copied.await.unwrap();
        assert_eq!((copied.blobs, copied.bytes), (2, CHUNK_BYTES as u64 + 2));
        assert_eq!(copied.faults, [(blobs[2].0, "it is lost".to_owned())]);
        assert!(!place.exists());
        part.put(&copied).unwrap();
        assert!(PartialDirectory::create(place.clone()).is_err(), "it is not overwritten");
        let restored = restore_blobs(&backup, &blobs, &to).await.unwrap().unwrap();
        assert_eq!((restored.blobs, restored.faults.len()), (2, 1));
        let storage: Arc<dyn BlobStorage> = Arc::new(BlobDirectory::at(&to));
        assert!(check_files(&storage, &blobs[..2]).await.unwrap().is_empty());

        // A file that is missing or damaged, and a manifest that is missing or unknown.
        let file = place.join(format!("{:02x}/{}-s", blobs[1].0.0[0], blobs[1].0));
        let sound = std::fs::read(&file).unwrap();
        let refusal = async || restore_blobs(&backup, &blobs, &to).await.unwrap_err().to_string();
        std::fs::write(&file, "Bcccc").unwrap();
        assert!(refusal().await.contains("is damaged"), "{}", refusal().await);
        std::fs::remove_file(&file).unwrap();
        assert!(refusal().await.contains("is not complete"), "{}", refusal().await);
        std::fs::write(&file, sound).unwrap();
        let manifest = place.join(MANIFEST);
        let known = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, known.replace("\"agq_blobs\":1", "\"agq_blobs\":2")).unwrap();
        assert!(refusal().await.contains("has version 2, and this agq reads 1"), "{}", refusal().await);
        std::fs::remove_file(&manifest).unwrap();
        assert!(refusal().await.contains("is not complete"), "{}", refusal().await);
    }

    #[tokio::test]
    async fn blobs_with_other_bytes_are_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let part = PartialDirectory::create(dir.path().join("b")).unwrap();
        let (storage, blobs) = (part.storage().unwrap(), [blob(b"content")]);
        for (sent, fault) in [
            ("other..", "do not have its BLAKE3 hash"),
            ("", "has 0 bytes, not 7"),
            ("content!", "has 8 bytes, not 7"),
        ] {
            let copied =
                copy_blobs(&blobs, &storage, async |_, _, _| Ok(Ok(Bytes::from(sent)))).await.unwrap();
            assert!(copied.faults[0].1.contains(fault), "{:?}", copied.faults);
        }
        assert!(
            storage.list_uploads().await.unwrap().is_empty()
                && storage.list(blobs[0].0.0[0]).await.unwrap().is_empty()
        );
        drop(part);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
