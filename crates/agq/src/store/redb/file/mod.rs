//! The database file: opens it for the store, or read-only for a check or an export.

pub(crate) mod backup;
pub(crate) mod cow_backend;
pub(crate) mod export;
pub(crate) mod migrations;

use std::{
    fs::File,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use agenix_cli::sync_directory;
use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::StoredBlob;
use anyhow::{Context, anyhow, bail};
use redb::{
    Builder, Database, DatabaseError, StorageError,
    backends::{FileBackend, InMemoryBackend},
};

use tracing::info;

use crate::{
    store::redb::{
        check,
        engine::{PinnedSnapshot, replay_wal},
        file::cow_backend::CowBackend,
        schema::{ACTIONS, JOBS, PLANS},
    },
    synced_directory::parent,
};

#[derive(Debug)]
pub(crate) struct DatabaseReport {
    /// Format of the file before any migration.
    pub(crate) format: u64,
    pub(crate) bytes: u64,
    pub(crate) plans: u64,
    pub(crate) actions: u64,
    pub(crate) jobs: u64,
    pub(crate) blobs: Vec<(BlobHash, StoredBlob)>,
    /// Inconsistencies of the database, one a line.
    pub(crate) inconsistencies: Vec<String>,
}

impl DatabaseReport {
    /// Returns the number of inconsistencies in words.
    pub(crate) fn inconsistency_count(&self) -> String {
        match self.inconsistencies.len() {
            1 => "1 inconsistency".to_owned(),
            count => format!("{count} inconsistencies"),
        }
    }
}

/// Size of redb's page cache, in bytes. A larger cache is slower, because it reuses fewer pages.
const CACHE_BYTES: usize = 128 << 20;

/// Returns a builder that checks every page, and so refuses a file changed outside agq.
fn checking() -> Builder {
    let mut builder = Database::builder();
    builder.set_check_integrity_on_open(true);
    builder
}

/// Opens or creates the file. Above `max_checked_bytes`, comparing checksums takes too long.
pub(super) fn open(file: &Path, max_checked_bytes: u64) -> anyhow::Result<Database> {
    create_if_missing(file).with_context(|| format!("cannot create the database {}", file.display()))?;
    // redb would initialise an empty file as a new database.
    let bytes = file.metadata().map_or(1, |metadata| metadata.len());
    if bytes == 0 {
        return Err(damaged(file, "it is empty"));
    }
    let is_checked = max_checked_bytes == 0 || bytes <= max_checked_bytes;
    if !is_checked {
        info!(
            bytes,
            max_checked_bytes, "the database is not compared with its checksums: `agq check` does that"
        );
    }
    let mut builder = if is_checked { checking() } else { Database::builder() };
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.open(file).map_err(|error| unopened(error, file))?;
    if migrations::of(&database)?.is_none() {
        let shown = file.display();
        bail!("{shown} is a database, but none of agq: move it away, or choose another --data-dir");
    }
    Ok(database)
}

/// Opens the WAL of a database file, or creates an empty file for it.
pub(super) fn open_wal_file(file: &Path) -> anyhow::Result<FileBackend> {
    let wal = wal_path(file);
    let shown = || format!("cannot open the write-ahead log {}", wal.display());
    let is_new = !wal.exists();
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&wal);
    let opened = opened.with_context(shown)?;
    if is_new {
        sync_directory(parent(file))?;
    }
    FileBackend::new(opened).with_context(shown)
}

pub(crate) fn wal_path(file: &Path) -> PathBuf {
    file.with_extension("journal")
}

fn create_if_missing(file: &Path) -> anyhow::Result<()> {
    let _alone = lock_dir(parent(file))?;
    // A dangling link counts as existing, because its disk may only be unmounted.
    match file.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => create(file),
        found => Ok(found.map(drop)?),
    }
}

/// Locks a directory, so that no other process creates a database in it.
pub(crate) fn lock_dir(dir: &Path) -> std::io::Result<File> {
    let dir = File::open(dir)?;
    dir.lock()?;
    Ok(dir)
}

/// Creates a database under a temporary name, and renames it, so that a file is complete.
fn create(file: &Path) -> anyhow::Result<()> {
    let begun = file.with_extension("new");
    match std::fs::remove_file(&begun) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let database = Database::builder().create(&begun)?;
    migrations::prepare(&database)?;
    drop(database);
    std::fs::rename(&begun, file)?;
    Ok(sync_directory(parent(file))?)
}

/// Opens a database in a simulated disk.
#[cfg(feature = "simulation")]
pub(super) fn open_on(backend: impl redb::StorageBackend) -> anyhow::Result<Database> {
    checking().create_with_backend(backend).map_err(|error| unopened(error, Path::new("agq.redb")))
}

/// Examines a database file: its checksums, and the consistency of its tables. A repair or
/// migration happens in memory only. An error means that the file cannot be read at all.
pub(crate) fn examine(file: &Path) -> anyhow::Result<DatabaseReport> {
    let looked = open_readonly(file)?;
    let snapshot = looked.kept.snapshot();
    Ok(DatabaseReport {
        format: looked.format,
        bytes: looked.bytes,
        plans: snapshot.table(&PLANS).len()?,
        actions: snapshot.table(&ACTIONS).len()?,
        jobs: snapshot.table(&JOBS).len()?,
        blobs: check::blobs::records(&snapshot)?,
        inconsistencies: check::inconsistencies(&snapshot)?,
    })
}

pub(super) struct ReadOnlyDatabase {
    pub(super) kept: PinnedSnapshot,
    format: u64,
    bytes: u64,
    /// Dropped after the snapshot, because the database closes when no read transaction is left.
    _database: Database,
}

/// Opens a database file read-only, and replays its WAL in memory.
pub(super) fn open_readonly(file: &Path) -> anyhow::Result<ReadOnlyDatabase> {
    let shown = file.display();
    let opened = File::open(file).with_context(|| format!("cannot open {shown}"))?;
    let bytes = opened.metadata()?.len();
    if bytes == 0 {
        bail!("{shown} is empty: it is not a database of agq");
    }
    let overlay = CowBackend::new(opened).map_err(|error| unopened(error, file))?;
    let mut builder = checking();
    builder.set_cache_size(backup::CACHE_BYTES);
    let database = builder.create_with_backend(overlay).map_err(|error| unopened(error, file))?;
    let Some(format) = migrations::of(&database)? else {
        bail!("{shown} is a database, but none of agq");
    };
    let unusable = || format!("cannot use the database {shown}");
    migrations::check(&database).with_context(unusable)?;
    replay_wal_file(&database, file).with_context(unusable)?;
    migrations::convert(&database).with_context(unusable)?;
    Ok(ReadOnlyDatabase { kept: PinnedSnapshot::of(&database)?, format, bytes, _database: database })
}

/// Replays the WAL. A missing file counts as empty: an error if the database needs a WAL.
fn replay_wal_file(database: &Database, file: &Path) -> anyhow::Result<()> {
    match File::open(wal_path(file)) {
        Ok(wal) => replay_wal(database, &FileBackend::new(wal)?),
        Err(error) if error.kind() == ErrorKind::NotFound => replay_wal(database, &InMemoryBackend::new()),
        Err(error) => Err(error).context("cannot open its write-ahead log"),
    }
}

fn unopened(error: DatabaseError, file: &Path) -> anyhow::Error {
    let shown = file.display();
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            anyhow!("another agq has {shown} open: stop it, or give this one another --data-dir")
        }
        DatabaseError::Storage(StorageError::Corrupted(reason)) => damaged(file, &reason),
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            damaged(file, &error.to_string())
        }
        // agq has never used a version of redb with another file format.
        DatabaseError::UpgradeRequired(version) => damaged(file, &format!("redb's file format {version}")),
        error => anyhow::Error::new(error).context(format!("cannot open the database {shown}")),
    }
}

fn damaged(file: &Path, reason: &str) -> anyhow::Error {
    let shown = file.display();
    anyhow!(
        "the database {shown} is damaged ({reason}): its disk failed, or something other than agq changed it; move it away and bring back the last backup with `agq restore`"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agenix_protocol::time::Timestamp;

    use super::examine;
    use crate::store::{JobStore, OpenOptions, StoredPlan, redb::RedbStore};

    async fn with_plans(file: &Path, count: usize) -> RedbStore {
        let store = RedbStore::open(file, OpenOptions::default()).unwrap();
        for n in 0..count {
            let (plan_id, json) = (format!("plan-{n}").parse().unwrap(), "x".repeat(100));
            let plan = StoredPlan::unsigned(plan_id, json, Timestamp(1));
            assert!(store.add_plan(plan.into()).await.unwrap().unwrap());
        }
        store
    }

    /// Changes one byte in every copy of every plan, because some copies are in unused pages.
    fn damaged(before: &[u8]) -> Vec<u8> {
        let mut damaged = before.to_vec();
        for at in 1..before.len() - 2 {
            if before[at - 1] != b'x' && before[at..].starts_with(b"xxx") {
                damaged[at] = b'y';
            }
        }
        assert_ne!(damaged, before);
        damaged
    }

    #[tokio::test]
    async fn open_compares_checksums_up_to_the_size_bound() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.redb");
        drop(with_plans(&file, 300).await);
        let damaged = damaged(&std::fs::read(&file).unwrap());
        std::fs::write(&file, &damaged).unwrap();
        let bytes = damaged.len() as u64;
        let opened = |max_checked_bytes| {
            RedbStore::open(&file, OpenOptions { max_checked_bytes, ..OpenOptions::default() })
        };
        for bound in [bytes, 0] {
            let refused = format!("{:#}", opened(bound).err().unwrap());
            assert!(refused.contains("is damaged"), "{refused}");
        }
        let plan = opened(bytes - 1).unwrap().plan(&"plan-7".parse().unwrap()).await.unwrap().unwrap();
        assert!(plan.json.starts_with('y'), "nobody compared it: {}", plan.json);
    }

    #[tokio::test]
    async fn examine_changes_nothing_and_refuses_a_damaged_file_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.redb");
        let store = with_plans(&file, 300).await;
        let busy = examine(&file).unwrap_err().to_string();
        assert!(busy.contains("another agq has"), "{busy}");
        drop(store);
        let before = std::fs::read(&file).unwrap();
        let found = examine(&file).unwrap();
        assert_eq!((found.plans, found.jobs, found.inconsistencies.len()), (300, 0, 0));
        assert_eq!(std::fs::read(&file).unwrap(), before);

        std::fs::write(&file, damaged(&before)).unwrap();
        let refusals =
            [examine(&file).unwrap_err(), RedbStore::open(&file, OpenOptions::default()).err().unwrap()];
        for refusal in refusals.map(|error| format!("{error:#}")) {
            assert!(refusal.contains("is damaged") && refusal.contains("`agq restore`"), "{refusal}");
        }
    }

    #[test]
    fn open_never_replaces_an_existing_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, elsewhere) = (dir.path().join("agq.redb"), dir.path().join("unmounted/agq.redb"));
        let refusal = || format!("{:#}", RedbStore::open(&file, OpenOptions::default()).err().unwrap());
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert!(refusal().contains("No such file"), "{}", refusal());
        assert_eq!(std::fs::read_link(&file).unwrap(), elsewhere);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(refusal().contains("it is empty"), "{}", refusal());
        std::fs::remove_file(&file).unwrap();
        drop(redb::Database::create(&file).unwrap());
        assert!(refusal().contains("none of agq"), "{}", refusal());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(dir.path().join("agq.new"), "left by a crash").unwrap();
        drop(RedbStore::open(&file, OpenOptions::default()).unwrap());
        assert!(file.exists() && !dir.path().join("agq.new").exists());
    }

    #[test]
    fn open_refuses_a_file_that_is_not_a_database_of_agq() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let refusal = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            format!("{:#}", examine(&file).unwrap_err())
        };
        assert!(refusal(b"").contains("is empty"));
        assert!(refusal(&[b'x'; 10_000]).contains("is damaged"));
        std::fs::remove_file(&file).unwrap();
        drop(redb::Database::create(&file).unwrap());
        let foreign = examine(&file).unwrap_err().to_string();
        assert!(foreign.contains("none of agq"), "{foreign}");
        let missing = examine(Path::new("/none")).unwrap_err().to_string();
        assert!(missing.contains("cannot open /none"), "{missing}");
    }
}
