//! Check of the files of blobs: names missing, damaged and orphaned files.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    blob_blocks::{BlockSums, file_bytes},
};
use agenix_rules::blob::StoredBlob;

use super::{BlobError, BlobFile, BlobStorage, read_range};

/// Number of bytes that are read at once.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum length of a blob that [`is_intact`] reads whole, because a worker waits for the answer.
const MAX_REREAD_BYTES: u64 = 64 * 1024 * 1024;

/// Returns a line for each fault of the files of `blobs`. Fails if files cannot be listed.
pub(crate) async fn check_files(
    storage: &Arc<dyn BlobStorage>,
    blobs: &[(BlobHash, StoredBlob)],
) -> Result<Vec<String>, BlobError> {
    let mut of_parts: BTreeMap<u8, Vec<&(BlobHash, StoredBlob)>> = BTreeMap::new();
    for blob in blobs {
        of_parts.entry(blob.0.0[0]).or_default().push(blob);
    }
    let mut lines = Vec::new();
    for part in 0..=u8::MAX {
        let listed = storage.list(part).await?.into_iter().map(|file| (file.name, file.bytes));
        let mut listed: HashMap<String, u64> = listed.collect();
        for (hash, blob) in of_parts.remove(&part).unwrap_or_default() {
            let file = BlobFile::of(*hash, blob);
            match listed.remove(&file.to_string()) {
                Some(bytes) => lines.extend(fault(storage, &file, bytes, blob.length).await),
                None => {
                    lines.push(format!("blobs: the file {file} is missing, and {} jobs name it", blob.jobs));
                }
            }
        }
        let mut orphans: Vec<String> = listed.into_keys().collect();
        orphans.sort();
        lines.extend(
            orphans
                .iter()
                .map(|name| format!("blobs: the file {name} has no record; agq removes it when it is old")),
        );
    }
    Ok(lines)
}

/// Returns the fault of a file of `bytes` bytes, if it has one.
async fn fault(storage: &Arc<dyn BlobStorage>, file: &BlobFile, bytes: u64, length: u64) -> Option<String> {
    let expected = file_bytes(length);
    if bytes != expected {
        return Some(format!("blobs: the file {file} has {bytes} bytes, but should have {expected}"));
    }
    match is_sound(storage, file, length).await {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("blobs: the file {file} is damaged: its bytes do not have their checksums"))
        }
        Err(error) => Some(format!("blobs: the file {file} cannot be read: {error}")),
    }
}

/// Returns false if the file of a blob of `length` bytes is missing or damaged. Examines only the
/// last block of a blob beyond [`MAX_REREAD_BYTES`].
pub(crate) async fn is_intact(
    storage: &Arc<dyn BlobStorage>,
    file: &BlobFile,
    length: u64,
) -> Result<bool, BlobError> {
    let examined = if length <= MAX_REREAD_BYTES {
        is_sound(storage, file, length).await
    } else {
        read_range(storage, file, length, (length - 1, 1)).await.map(|_last| true)
    };
    match examined {
        Err(BlobError::Lost(_)) => Ok(false),
        other => other,
    }
}

/// Compares the content of a file with its checksums and with its hash.
async fn is_sound(storage: &Arc<dyn BlobStorage>, file: &BlobFile, length: u64) -> Result<bool, BlobError> {
    let (mut digest, mut sums, mut offset) = (BlobHasher::default(), BlockSums::default(), 0);
    while offset < length {
        let bytes = usize::try_from(CHUNK_BYTES.min(length - offset)).unwrap_or_default();
        for chunk in storage.read(file, vec![(offset, bytes)]).await? {
            digest.update(&chunk);
            sums.add(&chunk);
        }
        offset += bytes as u64;
    }
    if digest.finish() != file.hash {
        return Ok(false);
    }
    let sums = sums.finish();
    if sums.is_empty() {
        return Ok(true);
    }
    Ok(storage.read(file, vec![(length, sums.len())]).await?.first() == Some(&sums))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{blob::BlobHash, time::Timestamp};
    use agenix_rules::blob::StoredBlob;

    use super::{BlockSums, check_files};
    use crate::blobs::{BlobStorage, directory::BlobDirectory};

    #[tokio::test]
    async fn check_names_damaged_missing_and_orphaned_files() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"content";
        let hash = BlobHash::of(content);
        let blob = StoredBlob::new(content.len() as u64, "s", Timestamp(0));
        let part = dir.path().join(format!("{:02x}", hash.0[0]));
        std::fs::create_dir(&part).unwrap();
        let path = part.join(format!("{hash}-s"));
        let mut sums = BlockSums::default();
        sums.add(content);
        let sound = [content, &*sums.finish()].concat();
        let storage: Arc<dyn BlobStorage> = Arc::new(BlobDirectory::at(dir.path()));
        let known = [(hash, blob)];
        let lines = async || check_files(&storage, &known).await.unwrap();
        std::fs::write(&path, &sound).unwrap();
        assert!(lines().await.is_empty());
        for at in [0, sound.len() - 1] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(lines().await.len(), 1);
            assert!(lines().await[0].contains("is damaged"), "{:?}", lines().await);
        }
        std::fs::write(&path, &sound[1..]).unwrap();
        assert!(lines().await[0].ends_with("has 10 bytes, but should have 11"), "{:?}", lines().await);
        std::fs::rename(&path, part.join("other")).unwrap();
        let both = lines().await;
        assert!(both[0].contains("is missing, and 0 jobs name it"), "{both:?}");
        assert!(both[1].contains("other has no record"), "{both:?}");
    }
}
