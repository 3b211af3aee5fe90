//! The backup that is under way, if one is: a copy in a file without a name, that is gone when nobody reads it any more.
//! Who makes the copy is not its business.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agenix_protocol::{documents::BACKUP_PIECE_BYTES, time::Timestamp};

/// After how long without a read another backup may take its place, in milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// Why a backup is not to be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// One at a time.
    #[error(
        "A backup is under way: wait until it has ended, or until nobody has read it for {} seconds",
        PATIENCE_MS / 1000
    )]
    UnderWay,
    /// It ended, or another one took its place, or there never was one.
    #[error("Backup not found: {0}; begin again with BACKUP BEGIN")]
    NotFound(String),
    /// An agq without a data directory.
    #[error("This agq keeps nothing in files: there is no place for a backup")]
    Nowhere,
    /// A copy would fill the disk, and a full disk ends agq.
    #[error(
        "There is no room for a copy: it may take {needed} bytes beside the database, and its disk has {free} free; make room, or stop agq and copy the file"
    )]
    NoRoom { needed: u64, free: u64 },
    /// Its file cannot be read.
    #[error("The backup cannot be read: {0}; begin again with BACKUP BEGIN")]
    Unreadable(#[from] io::Error),
}

/// The backup that is under way.
#[derive(Default)]
pub(crate) struct Backups(Mutex<BackupState>);

/// What must stay free beside a copy, in bytes.
const RESERVE_BYTES: u64 = 64 << 20;
/// The copy's name as long as it is being made: one that nobody else gives a file.
const COPY: &str = "agq.copy";

#[derive(Default)]
struct BackupState {
    /// Where the copy is made.
    dir: Option<PathBuf>,
    stage: BackupPhase,
}

#[derive(Default)]
enum BackupPhase {
    #[default]
    None,
    /// The copy is being made.
    Making,
    Made(CompletedBackup),
}

struct CompletedBackup {
    backup_id: String,
    file: Arc<File>,
    read_at: Timestamp,
}

impl CompletedBackup {
    /// Whether somebody goes on reading it. A time to come is from before the clock was set back.
    fn is_read(&self, now: Timestamp) -> bool {
        self.read_at <= now && now.ms_since(self.read_at) < PATIENCE_MS
    }
}

/// The copy may be as long as the database, which goes on growing meanwhile; agq ends where its disk is full.
fn check_room(database: u64, free: u64) -> Result<(), BackupError> {
    let needed = database.saturating_add(database / 4).saturating_add(RESERVE_BYTES);
    if free < needed { Err(BackupError::NoRoom { needed, free }) } else { Ok(()) }
}

/// Removes what is left of a copy, if anything is.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Backups {
    /// Lets copies be made in this directory, which nobody else uses, and removes what is left there of one that was being
    /// made when agq was killed.
    pub(crate) fn clean_up_leftovers(&self, dir: &Path) -> io::Result<()> {
        remove(&dir.join(COPY))?;
        self.lock().dir = Some(dir.to_owned());
        Ok(())
    }

    /// Where to make the copy: nobody else makes one until it is there, or was given up.
    pub(crate) fn begin(&self, now: Timestamp) -> Result<PathBuf, BackupError> {
        let mut state = self.lock();
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

    /// The copy is there, to be read from now on.
    pub(crate) fn made(&self, backup_id: &str, path: &Path, now: Timestamp) -> Result<(), BackupError> {
        let opened = File::open(path);
        // Without a name it is gone as soon as nobody has it open, however agq ends.
        let unnamed = fs::remove_file(path);
        let mut state = self.lock();
        state.stage = BackupPhase::None;
        let file = Arc::new(opened?);
        unnamed?;
        state.stage =
            BackupPhase::Made(CompletedBackup { backup_id: backup_id.to_owned(), file, read_at: now });
        Ok(())
    }

    /// The copy could not be made.
    pub(crate) fn failed(&self, path: &Path) {
        // It may not have come as far as a file.
        let _removed = fs::remove_file(path);
        self.lock().stage = BackupPhase::None;
    }

    /// The file of a copy.
    pub(crate) fn file(&self, backup_id: &str, now: Timestamp) -> Result<Arc<File>, BackupError> {
        match &mut self.lock().stage {
            BackupPhase::Made(made) if made.backup_id == backup_id => {
                made.read_at = now;
                Ok(Arc::clone(&made.file))
            }
            _ => Err(not_found(backup_id)),
        }
    }

    /// Forgets a copy that nobody goes on reading: its file is gone by that.
    pub(crate) fn expire(&self, now: Timestamp) {
        let mut state = self.lock();
        if matches!(&state.stage, BackupPhase::Made(made) if !made.is_read(now)) {
            state.stage = BackupPhase::None;
        }
    }

    /// Nobody will read it any more.
    pub(crate) fn end(&self, backup_id: &str) -> Result<(), BackupError> {
        let mut state = self.lock();
        match &state.stage {
            BackupPhase::Made(made) if made.backup_id == backup_id => {
                state.stage = BackupPhase::None;
                Ok(())
            }
            _ => Err(not_found(backup_id)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BackupState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The piece of a copy that begins at an offset; empty at the end.
pub(crate) fn piece(file: &File, offset: u64) -> Result<Vec<u8>, BackupError> {
    if offset >= file.metadata()?.len() {
        return Ok(Vec::new());
    }
    let mut piece = vec![0; BACKUP_PIECE_BYTES];
    let mut done = 0;
    loop {
        match file.read_at(&mut piece[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    piece.truncate(done);
    Ok(piece)
}

/// It is shown as it was sent, but no longer than an id is.
fn not_found(backup_id: &str) -> BackupError {
    BackupError::NotFound(backup_id.chars().take(64).collect::<String>().escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::BACKUP_PIECE_BYTES, time::Timestamp};

    use super::{BackupError, Backups, RESERVE_BYTES, check_room, piece};

    #[test]
    fn one_at_a_time_until_nobody_has_read_it_for_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let backups = Backups::default();
        assert!(matches!(backups.begin(Timestamp(0)), Err(BackupError::Nowhere)));
        let (left_over, somebodys) = (dir.path().join("agq.copy"), dir.path().join("backup-old.redb"));
        std::fs::write(&left_over, "half").unwrap();
        std::fs::write(&somebodys, "kept").unwrap();
        backups.clean_up_leftovers(dir.path()).unwrap();
        assert!(!left_over.exists() && somebodys.exists());

        let path = backups.begin(Timestamp(0)).unwrap();
        let later = Timestamp(1_000_000);
        assert!(matches!(backups.begin(later), Err(BackupError::UnderWay)), "it is being made");
        std::fs::write(&path, "copy").unwrap();
        backups.made("a", &path, later).unwrap();
        assert!(!path.exists(), "it has no name any more");
        let file = backups.file("a", Timestamp(1_030_000)).unwrap();
        assert!(matches!(backups.begin(Timestamp(1_089_999)), Err(BackupError::UnderWay)));
        let path = backups.begin(Timestamp(1_090_000)).unwrap();
        assert!(matches!(backups.file("a", later), Err(BackupError::NotFound(_))));
        assert_eq!(piece(&file, 1).unwrap(), b"opy", "who reads it can do so to its end");
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
        assert!(backups.file("e", later).is_err(), "whoever read it is gone");
    }

    #[test]
    fn a_copy_needs_its_own_room_and_some_more() {
        assert!(check_room(400, 500 + RESERVE_BYTES).is_ok());
        let refused = check_room(400, 499 + RESERVE_BYTES).unwrap_err().to_string();
        assert!(refused.contains("There is no room for a copy"), "{refused}");
    }

    #[test]
    fn a_copy_is_read_in_pieces() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), vec![b'x'; BACKUP_PIECE_BYTES + 2]).unwrap();
        let file = std::fs::File::open(path.path()).unwrap();
        let lengths =
            [0, 1, 3, BACKUP_PIECE_BYTES + 2].map(|offset| piece(&file, offset as u64).unwrap().len());
        assert_eq!(lengths, [BACKUP_PIECE_BYTES, BACKUP_PIECE_BYTES, BACKUP_PIECE_BYTES - 1, 0]);
        assert_eq!(piece(&file, u64::MAX).unwrap().len(), 0);
    }
}
