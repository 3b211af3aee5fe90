//! Check of a directory of blobs: names missing, damaged and orphaned files.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::StoredBlob;
use sha2::{Digest, Sha256};

use super::{
    BlobFile,
    checksums::{BlockSums, file_bytes},
};

/// Number of bytes that are read at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Returns a line for each fault of the files of the blobs in `root`.
pub(crate) fn check_directory(root: &Path, blobs: &[(BlobHash, StoredBlob)]) -> io::Result<Vec<String>> {
    let (mut lines, mut known) = (Vec::new(), HashSet::new());
    for (hash, blob) in blobs {
        let file = BlobFile::of(*hash, blob);
        let path = root.join(format!("{:02x}", hash.0[0])).join(file.to_string());
        match fault(&path, *hash, blob) {
            Ok(None) => {}
            Ok(Some(fault)) => lines.push(format!("blobs: the file {file} {fault}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                lines.push(format!("blobs: the file {file} is missing, and {} jobs name it", blob.jobs));
            }
            Err(error) => lines.push(format!("blobs: the file {file} cannot be read: {error}")),
        }
        known.insert(file.to_string());
    }
    for part in 0..=u8::MAX {
        let entries = match fs::read_dir(root.join(format!("{part:02x}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !known.contains(&name) {
                lines.push(format!("blobs: the file {name} has no record; agq removes it when it is old"));
            }
        }
    }
    Ok(lines)
}

/// Returns the fault of a file, if it has one.
fn fault(path: &Path, hash: BlobHash, blob: &StoredBlob) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let (bytes, expected) = (file.metadata()?.len(), file_bytes(blob.length));
    if bytes != expected {
        return Ok(Some(format!("has {bytes} bytes, but should have {expected}")));
    }
    let (mut digest, mut sums, mut left) = (Sha256::new(), BlockSums::default(), blob.length);
    let mut piece = vec![0; PIECE_BYTES];
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        file.read_exact(&mut piece[..length])?;
        digest.update(&piece[..length]);
        sums.add(&piece[..length]);
        left -= length as u64;
    }
    let mut checksums = Vec::new();
    file.read_to_end(&mut checksums)?;
    let is_sound = BlobHash(digest.finalize().into()) == hash && sums.finish() == checksums;
    Ok((!is_sound).then(|| "is damaged: its bytes do not have their checksums".to_owned()))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{blob::BlobHash, time::Timestamp};
    use agenix_rules::blob::StoredBlob;
    use sha2::{Digest, Sha256};

    use super::{BlockSums, check_directory};

    #[test]
    fn check_names_damaged_missing_and_orphaned_files() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"content";
        let hash = BlobHash(Sha256::digest(content).into());
        let blob = StoredBlob::new(content.len() as u64, "s", Timestamp(0));
        let part = dir.path().join(format!("{:02x}", hash.0[0]));
        std::fs::create_dir(&part).unwrap();
        let path = part.join(format!("{hash}-s"));
        let mut sums = BlockSums::default();
        sums.add(content);
        let sound = [content, &*sums.finish()].concat();
        let lines = || check_directory(dir.path(), &[(hash, blob.clone())]).unwrap();
        std::fs::write(&path, &sound).unwrap();
        assert!(lines().is_empty());
        for at in [0, sound.len() - 1] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(lines().len(), 1);
            assert!(lines()[0].contains("is damaged"), "{:?}", lines());
        }
        std::fs::write(&path, &sound[1..]).unwrap();
        assert!(lines()[0].ends_with("has 10 bytes, but should have 11"), "{:?}", lines());
        std::fs::rename(&path, part.join("other")).unwrap();
        let both = lines();
        assert!(both[0].contains("is missing, and 0 jobs name it"), "{both:?}");
        assert!(both[1].contains("other has no record"), "{both:?}");
    }
}
