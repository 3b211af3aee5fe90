//! The backup in progress, at most one. The copy is a file without a name, which the system removes
//! when it is closed. Other modules make the copy.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use agenix_protocol::{documents::BACKUP_CHUNK_BYTES, time::Timestamp};

use tokio::sync::{RwLock, RwLockReadGuard};

use crate::sync::lock;

/// Time without a read after which another backup may replace this one, in milliseconds.
const MAX_IDLE_MS: u64 = 60_000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error(
        "A backup is under way: wait until it has ended, or until nobody has read it for {} seconds",
        MAX_IDLE_MS / 1000
    )]
    UnderWay,
    /// The backup has ended, was replaced, or never existed.
    #[error("Backup not found: {0}; begin again with BACKUP BEGIN")]
    NotFound(String),
    #[error("This agq keeps nothing in files: there is no place for a backup")]
    Nowhere,
    /// The copy would fill the disk, and a full disk ends agq.
    #[error(
        "There is no room for a copy: it may take {needed} bytes beside the database, and its disk has {free} free; make room, or stop agq and copy the file"
    )]
    NoRoom { needed: u64, free: u64 },
    #[error("The backup cannot be read: {0}; begin again with BACKUP BEGIN")]
    Unreadable(#[from] io::Error),
}

#[derive(Default)]
pub(crate) struct Backups {
    state: Mutex<BackupState>,
    /// Held for reading while a blob is removed.
    removals: RwLock<()>,
}

/// Number of bytes that must stay free beside a copy.
const RESERVE_BYTES: u64 = 64 << 20;
/// Name of the copy while it is written. No other file has this name.
const COPY: &str = "agq.copy";

#[derive(Default)]
struct BackupState {
    /// Directory in which copies are made.
    dir: Option<PathBuf>,
    stage: BackupPhase,
}

#[derive(Default)]
enum BackupPhase {
    #[default]
    None,
    Making,
    Made(CompletedBackup),
}

struct CompletedBackup {
    backup_id: String,
    file: Arc<File>,
    read_at: Timestamp,
}

impl CompletedBackup {
    /// A time in the future is from before the clock was set back, and does not count.
    fn is_read(&self, now: Timestamp) -> bool {
        self.read_at <= now && now.ms_since(self.read_at) < MAX_IDLE_MS
    }
}

/// The copy may become as long as the growing database, and agq ends when its disk is full.
fn check_room(database: u64, free: u64) -> Result<(), BackupError> {
    let needed = database.saturating_add(database / 4).saturating_add(RESERVE_BYTES);
    if free < needed { Err(BackupError::NoRoom { needed, free }) } else { Ok(()) }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Backups {
    /// Sets the directory, and removes a copy that was in progress when agq was killed.
    pub(crate) fn clean_up_leftovers(&self, dir: &Path) -> io::Result<()> {
        remove(&dir.join(COPY))?;
        lock(&self.state).dir = Some(dir.to_owned());
        Ok(())
    }

    /// Returns the path for the copy. No other backup begins until [`Self::made`] or
    /// [`Self::failed`].
    pub(crate) fn begin(&self, now: Timestamp) -> Result<PathBuf, BackupError> {
        let mut state = lock(&self.state);
        let Some(dir) = &state.dir else { return Err(BackupError::Nowhere) };
        let path = dir.join(COPY);
        match &state.stage {
            BackupPhase::Making => return Err(BackupError::UnderWay),
            BackupPhase::Made(made) if made.is_read(now) => return Err(BackupError::UnderWay),
            BackupPhase::Made(_) | BackupPhase::None => {}
        }
        remove(&path)?;
        let database = fs::metadata(dir.join("agq.redb")).map_or(0, |metadata| metadata.len());
        let disk = rustix::fs::statvfs(dir).map_err(io::Error::from)?;
        check_room(database, disk.f_bavail.saturating_mul(disk.f_frsize))?;
        state.stage = BackupPhase::Making;
        Ok(path)
    }

    pub(crate) fn made(&self, backup_id: &str, path: &Path, now: Timestamp) -> Result<(), BackupError> {
        let opened = File::open(path);
        // A file without a name is removed as soon as it is closed, even if agq is killed.
        let unnamed = fs::remove_file(path);
        let mut state = lock(&self.state);
        state.stage = BackupPhase::None;
        let file = Arc::new(opened?);
        unnamed?;
        state.stage =
            BackupPhase::Made(CompletedBackup { backup_id: backup_id.to_owned(), file, read_at: now });
        Ok(())
    }

    pub(crate) fn failed(&self, path: &Path) {
        // The file may not exist yet.
        let _removed = fs::remove_file(path);
        lock(&self.state).stage = BackupPhase::None;
    }

    /// Returns the file of a copy, and records the time of the read.
    pub(crate) fn file(&self, backup_id: &str, now: Timestamp) -> Result<Arc<File>, BackupError> {
        match &mut lock(&self.state).stage {
            BackupPhase::Made(made) if made.backup_id == backup_id => {
                made.read_at = now;
                Ok(Arc::clone(&made.file))
            }
            _ => Err(not_found(backup_id)),
        }
    }

    /// Drops a copy that nobody reads any more, which removes its file.
    pub(crate) fn expire(&self, now: Timestamp) {
        let mut state = lock(&self.state);
        if matches!(&state.stage, BackupPhase::Made(made) if !made.is_read(now)) {
            state.stage = BackupPhase::None;
        }
    }

    /// Permits the removal of a blob while the permit is held. Returns `None` during a backup,
    /// because its copy may name the blob.
    pub(crate) async fn permit_removal(&self, now: Timestamp) -> Option<RwLockReadGuard<'_, ()>> {
        let permit = self.removals.read().await;
        self.expire(now);
        matches!(lock(&self.state).stage, BackupPhase::None).then_some(permit)
    }

    /// Waits for the removals that were permitted before the backup began.
    pub(crate) async fn end_of_removals(&self) {
        drop(self.removals.write().await);
    }

    pub(crate) fn end(&self, backup_id: &str) -> Result<(), BackupError> {
        let mut state = lock(&self.state);
        match &state.stage {
            BackupPhase::Made(made) if made.backup_id == backup_id => {
                state.stage = BackupPhase::None;
                Ok(())
            }
            _ => Err(not_found(backup_id)),
        }
    }
}

/// Returns at most [`BACKUP_CHUNK_BYTES`], and nothing at the end of the file.
pub(crate) fn chunk(file: &File, offset: u64) -> Result<Vec<u8>, BackupError> {
    if offset >= file.metadata()?.len() {
        return Ok(Vec::new());
    }
    let mut chunk = vec![0; BACKUP_CHUNK_BYTES];
    let mut done = 0;
    loop {
        match file.read_at(&mut chunk[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    chunk.truncate(done);
    Ok(chunk)
}

/// The id is escaped, and cut to the length of an id.
fn not_found(backup_id: &str) -> BackupError {
    BackupError::NotFound(backup_id.chars().take(64).collect::<String>().escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::BACKUP_CHUNK_BYTES, time::Timestamp};

    use super::{BackupError, Backups, RESERVE_BYTES, check_room, chunk};

    #[test]
    fn backup_blocks_others_until_unread_for_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let backups = Backups::default();
        assert!(matches!(backups.begin(Timestamp(0)), Err(BackupError::Nowhere)));
        let (left_over, foreign) = (dir.path().join("agq.copy"), dir.path().join("backup-old.redb"));
        std::fs::write(&left_over, "half").unwrap();
        std::fs::write(&foreign, "kept").unwrap();
        backups.clean_up_leftovers(dir.path()).unwrap();
        assert!(!left_over.exists() && foreign.exists());

        let path = backups.begin(Timestamp(0)).unwrap();
        let later = Timestamp(1_000_000);
        assert!(matches!(backups.begin(later), Err(BackupError::UnderWay)), "the copy is in progress");
        std::fs::write(&path, "copy").unwrap();
        backups.made("a", &path, later).unwrap();
        assert!(!path.exists(), "the copy has no name");
        let file = backups.file("a", Timestamp(1_030_000)).unwrap();
        assert!(matches!(backups.begin(Timestamp(1_089_999)), Err(BackupError::UnderWay)));
        let path = backups.begin(Timestamp(1_090_000)).unwrap();
        assert!(matches!(backups.file("a", later), Err(BackupError::NotFound(_))));
        assert_eq!(chunk(&file, 1).unwrap(), b"opy", "an open copy can be read to its end");
        backups.failed(&path);
        let path = backups.begin(later).unwrap();
        assert!(matches!(backups.made("c", &path, later), Err(BackupError::Unreadable(_))));
        std::fs::write(backups.begin(later).unwrap(), "copy").unwrap();
        backups.made("d", &dir.path().join("agq.copy"), later).unwrap();
        backups.expire(later);
        assert!(backups.end("c").is_err() && backups.end("d").is_ok() && backups.end("d").is_err());

        std::fs::write(backups.begin(later).unwrap(), "copy").unwrap();
        backups.made("e", &dir.path().join("agq.copy"), later).unwrap();
        backups.expire(Timestamp(1_059_999));
        assert!(backups.file("e", later).is_ok());
        backups.expire(Timestamp(1_060_000));
        assert!(backups.file("e", later).is_err(), "the copy has expired");
    }

    #[tokio::test]
    async fn backup_waits_for_removals_of_blobs_and_permits_none() {
        let dir = tempfile::tempdir().unwrap();
        let (backups, now) = (Backups::default(), Timestamp(0));
        backups.clean_up_leftovers(dir.path()).unwrap();
        let permit = backups.permit_removal(now).await.unwrap();
        let path = backups.begin(now).unwrap();
        assert!(backups.permit_removal(now).await.is_none(), "the copy is in progress");
        let mut waits = Box::pin(backups.end_of_removals());
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(permit);
        waits.await;
        std::fs::write(&path, "copy").unwrap();
        backups.made("a", &path, now).unwrap();
        assert!(backups.permit_removal(Timestamp(59_999)).await.is_none());
        assert!(backups.permit_removal(Timestamp(60_000)).await.is_some(), "nobody reads the copy");
        assert!(backups.file("a", Timestamp(60_000)).is_err());
    }

    #[test]
    fn backup_needs_room_for_the_copy_and_a_reserve() {
        assert!(check_room(400, 500 + RESERVE_BYTES).is_ok());
        let refused = check_room(400, 499 + RESERVE_BYTES).unwrap_err().to_string();
        assert!(refused.contains("There is no room for a copy"), "{refused}");
    }

    #[test]
    fn backup_is_read_in_chunks() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), vec![b'x'; BACKUP_CHUNK_BYTES + 2]).unwrap();
        let file = std::fs::File::open(path.path()).unwrap();
        let lengths =
            [0, 1, 3, BACKUP_CHUNK_BYTES + 2].map(|offset| chunk(&file, offset as u64).unwrap().len());
        assert_eq!(lengths, [BACKUP_CHUNK_BYTES, BACKUP_CHUNK_BYTES, BACKUP_CHUNK_BYTES - 1, 0]);
        assert_eq!(chunk(&file, u64::MAX).unwrap().len(), 0);
    }
}
