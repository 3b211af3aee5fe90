//! SHA-256 of the files of programs.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

/// Maximum number of files whose SHA-256 is kept.
const MAX_FILES: usize = 256;

/// SHA-256 of files that have been read.
#[derive(Debug, Default)]
pub(crate) struct ProgramFiles(Mutex<HashMap<FileVersion, String>>);

/// Version of a file, which a write to the file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl ProgramFiles {
    /// Checks that the program that the worker offers is the file `path` of the policy, with the
    /// content `sha256`, if that is given. The error is the reason of a refusal.
    pub(crate) fn check(
        &self,
        offered: Option<&Path>,
        path: &str,
        sha256: Option<&str>,
    ) -> Result<(), String> {
        let unread = |error: io::Error| format!("the program {path} of the policy cannot be read: {error}");
        let listed = std::fs::metadata(path).map_err(unread)?;
        let version = FileVersion::of(&listed);
        if let Some(offered) = offered {
            let found = std::fs::metadata(offered).map_err(unread)?;
            if (found.dev(), found.ino()) != (listed.dev(), listed.ino()) {
                let offered = offered.display();
                return Err(format!(
                    "the policy names the program {path}, and PATH of this worker has {offered}"
                ));
            }
        }
        let Some(sha256) = sha256 else { return Ok(()) };
        let found = self.sha256(Path::new(path), version).map_err(unread)?;
        if found == sha256 {
            return Ok(());
        }
        Err(format!("the program {path} has the SHA-256 {found}, and the policy names {sha256}"))
    }

    /// Returns the SHA-256 of a file, in hexadecimal digits.
    pub(crate) fn digest_of(&self, path: &Path) -> io::Result<String> {
        let version = FileVersion::of(&std::fs::metadata(path)?);
        self.sha256(path, version)
    }

    fn sha256(&self, path: &Path, version: FileVersion) -> io::Result<String> {
        if let Some(known) = self.known().get(&version) {
            return Ok(known.clone());
        }
        let digest = digest(path)?;
        let mut known = self.known();
        if known.len() >= MAX_FILES {
            known.clear();
        }
        known.insert(version, digest.clone());
        Ok(digest)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<FileVersion, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
