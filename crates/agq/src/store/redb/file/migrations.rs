//! Format of the file: migrates older formats step by step, and refuses unknown ones.

use std::collections::BTreeMap;

use agenix_rules::job::{Job, JobState};
use anyhow::bail;
use redb::{Database, ReadableDatabase, ReadableTable, TableError, WriteTransaction};
use tracing::info;

use crate::store::{
    QueueCounts,
    redb::{
        engine::ALL,
        schema::{FORMAT, JOBS, LANE_LENGTHS, LANES, LaneKey, META, QUEUE_COUNTS, Result, decode, encode},
    },
};

type Migration = fn(&WriteTransaction) -> Result<()>;

/// Steps with the format from which each one migrates. The last step leads to [`FORMAT`].
const STEPS: [(u64, Migration); 4] = [(2, to_3), (3, to_4), (4, to_5), (5, to_6)];

/// Returns the format of a database, or `None` if agq has never written to it.
pub(crate) fn of(database: &Database) -> Result<Option<u64>> {
    match database.begin_read()?.open_table(META.table) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        meta => Ok(meta?.get("format")?.map(|format| format.value())),
    }
}

/// Refuses a database of a format that cannot be migrated.
pub(crate) fn check(database: &Database) -> anyhow::Result<()> {
    of(database)?.map_or(Ok(()), check_known)
}

/// Migrates a database if needed, and logs the migration.
pub(crate) fn prepare(database: &Database) -> anyhow::Result<()> {
    let before = of(database)?.filter(|format| *format != FORMAT);
    convert(database)?;
    if let Some(before) = before {
        info!("the database had format {before} and has format {FORMAT} now: an older agq will refuse it");
    }
    Ok(())
}

/// Migrates a database, and creates every table, so that reads need not check whether a table
/// exists. The migration is one transaction, so a crash changes nothing.
pub(crate) fn convert(database: &Database) -> anyhow::Result<()> {
    let transaction = database.begin_write()?;
    let found = transaction.open_table(META.table)?.get("format")?.map_or(FORMAT, |format| format.value());
    upgrade(&transaction, found)?;
    transaction.open_table(META.table)?.insert("format", FORMAT)?;
    ALL.iter().try_for_each(|table| table.create(&transaction))?;
    transaction.commit()?;
    Ok(())
}

/// Returns an empty database in memory.
#[cfg(test)]
pub(crate) fn in_memory() -> crate::store::redb::engine::Versions {
    let backend = redb::backends::InMemoryBackend::new();
    let database = Database::builder().create_with_backend(backend).unwrap();
    prepare(&database).unwrap();
    crate::store::redb::engine::Versions::of(database).unwrap()
}

fn check_known(found: u64) -> anyhow::Result<()> {
    if found > FORMAT {
        bail!(
            "it has format {found}, this agq reads format {FORMAT}: use a newer agq, or another --data-dir"
        );
    }
    if found < STEPS.first().map_or(FORMAT, |(from, _)| *from) {
        bail!(
            "it has format {found}, this agq reads format {FORMAT}: use the agq version that wrote it, or another --data-dir"
        );
    }
    Ok(())
}

fn upgrade(transaction: &WriteTransaction, found: u64) -> anyhow::Result<()> {
    check_known(found)?;
    for (_, step) in STEPS.iter().filter(|(from, _)| *from >= found) {
        step(transaction)?;
    }
    Ok(())
}

/// Lanes are removed with their last job: adds the number of all jobs to each lane, and removes
/// lanes without jobs.
fn to_3(transaction: &WriteTransaction) -> Result<()> {
    let mut lengths: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for entry in transaction.open_table(JOBS.table)?.iter()? {
        let job: Job = decode(entry?.1.value())?;
        let (ready, all) = lengths.entry(job.lane).or_default();
        *ready += u64::from(job.state == JobState::Available);
        *all += 1;
    }
    transaction.open_table(LANES.table)?.retain(|number, _| lengths.contains_key(&number))?;
    // The values had another type.
    transaction.delete_table(LANE_LENGTHS.table)?;
    let mut table = transaction.open_table(LANE_LENGTHS.table)?;
    for (number, length) in lengths {
        table.insert(number, length)?;
    }
    Ok(())
}

/// A WAL precedes the database. An agq without WAL would miss the records of the WAL.
fn to_4(_: &WriteTransaction) -> Result<()> {
    Ok(())
}

/// Adds counts of jobs by queue and state.
fn to_5(transaction: &WriteTransaction) -> Result<()> {
    let mut counts = QueueCounts::new();
    let lanes = transaction.open_table(LANES.table)?;
    for entry in transaction.open_table(JOBS.table)?.iter()? {
        let job: Job = decode(entry?.1.value())?;
        let Some(key) = lanes.get(job.lane)? else { continue };
        let key: LaneKey = decode(key.value())?;
        counts.entry(key.queue).or_default()[job.state as usize] += 1;
    }
    let mut table = transaction.open_table(QUEUE_COUNTS.table)?;
    for (queue, counts) in counts {
        table.insert(queue.as_str(), encode(&counts)?.as_slice())?;
    }
    Ok(())
}

/// The WAL has two halves. An agq that reads one half would miss the other.
fn to_6(_: &WriteTransaction) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, path::PathBuf};

    use agenix_protocol::{documents::Status, ids::WorkerId};
    use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
    use tempfile::TempDir;

    use super::{FORMAT, JOBS, LANES, META, of};
    use crate::store::{
        JobStore, OpenOptions, WorkerStore, look,
        redb::{RedbStore, file, schema::LaneKey},
    };

    /// Table of format 2.
    const OLD_LENGTHS: TableDefinition<'_, u32, u64> = TableDefinition::new("lane_lengths");

    /// Returns a database that agq wrote in format 2; see `fixtures/README.md`.
    fn fixture() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agq.redb");
        let (packed, mut database) = (include_bytes!("../fixtures/format-2.redb.gz"), Vec::new());
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut database).unwrap();
        std::fs::write(&file, database).unwrap();
        (dir, file)
    }

    #[tokio::test]
    async fn migration_keeps_everything_of_format_2() {
        let (_dir, path) = fixture();
        let before = file::examine(&path).unwrap();
        assert_eq!((before.format, before.plans, before.jobs), (2, 3, 10));
        assert_eq!(before.inconsistencies, [""; 0]);

        let store = RedbStore::open(&path, OpenOptions::default()).unwrap();
        let totals = store.totals().await.unwrap();
        let now = |status: Status| totals.now[status as usize];
        assert_eq!([Status::Pending, Status::Running, Status::Completed].map(now), [6, 1, 1]);
        assert_eq!([Status::Failed, Status::Dead, Status::Cancelled].map(now), [1, 0, 1]);
        let lanes = store.lanes().await.unwrap();
        let mut lanes: Vec<_> = lanes.iter().map(|lane| (lane.queue.as_str(), lane.length)).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, [("gpu", 2), ("ready", 3)]);
        assert_eq!(store.paused().await.unwrap(), ["night"]);
        let held = WorkerId::new("worker-held").unwrap();
        assert!(store.worker(&held).await.unwrap().is_some());
        let keys = look(&store, |keys| {
            let known = ["text", "empty", "brief", "list", "set"].map(|key| keys.entry(key.as_bytes()));
            known.into_iter().map(|entry| Ok(entry?.is_some())).collect::<Result<Vec<bool>, _>>()
        });
        assert_eq!(keys.await.unwrap(), [true; 5]);
        drop(store);

        let after = file::examine(&path).unwrap();
        assert_eq!((after.format, after.jobs, after.inconsistencies.len()), (FORMAT, 10, 0));
        let database = Database::create(&path).unwrap();
        let lanes = database.begin_read().unwrap().open_table(LANES.table).unwrap();
        let has_gone = |key: &[u8]| super::decode::<LaneKey>(key).unwrap().queue == "gone";
        assert!(
            !lanes.iter().unwrap().any(|entry| has_gone(entry.unwrap().1.value())),
            "its last job was pruned"
        );
    }

    #[test]
    fn migration_that_fails_leaves_the_old_format() {
        let (_dir, path) = fixture();
        let old = Database::create(&path).unwrap();
        let write = old.begin_write().unwrap();
        write.open_table(JOBS.table).unwrap().insert("job-x", &b"no record"[..]).unwrap();
        write.commit().unwrap();
        drop(old);
        let refused = format!("{:#}", RedbStore::open(&path, OpenOptions::default()).err().unwrap());
        assert!(refused.contains("a record cannot be read"), "{refused}");
        let old = Database::create(&path).unwrap();
        assert_eq!(of(&old).unwrap(), Some(2));
        assert!(old.begin_read().unwrap().open_table(OLD_LENGTHS).unwrap().get(0).unwrap().is_some());
    }

    #[test]
    fn migration_refuses_an_unknown_format_with_advice() {
        // Table of format 1, with the same name and other keys.
        let ready: TableDefinition<'_, (u32, u64), &str> = TableDefinition::new("ready");
        for (format, advice) in [
            (1, "it has format 1, this agq reads format 6: use the agq version that wrote it"),
            (7, "it has format 7, this agq reads format 6: use a newer agq, or another --data-dir"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("other.redb");
            let other = Database::create(&path).unwrap();
            let write = other.begin_write().unwrap();
            write.open_table(META.table).unwrap().insert("format", format).unwrap();
            write.open_table(ready).unwrap().insert((0, 1), "job-1").unwrap();
            write.commit().unwrap();
            drop(other);
            for refused in [
                RedbStore::open(&path, OpenOptions::default()).err().unwrap(),
                file::examine(&path).unwrap_err(),
            ] {
                let refused = format!("{refused:#}");
                assert!(refused.contains(advice), "{refused}");
            }
            let again = Database::create(&path).unwrap();
            let read = again.begin_read().unwrap();
            assert!(read.open_table(ready).unwrap().get((0, 1)).unwrap().is_some());
        }
    }
}
