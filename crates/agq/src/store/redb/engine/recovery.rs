//! Recovery: brings the database, as it was last made durable, up to date with the records of its
//! WAL.

use anyhow::{anyhow, bail};
use redb::{Database, Durability, Error, ReadableDatabase, StorageBackend, TableError, WriteTransaction};

use crate::store::redb::{
    engine::{
        memtable::Memtable,
        wal::{self, Wal, WalError},
    },
    schema::{META, Result},
};

/// Key in [`META`] for the id of the WAL with changes that the database lacks, or 0.
pub(crate) const WAL_ID: &str = "journal_id";
/// Key in [`META`] for the number of the first WAL record that the database may not contain.
pub(crate) const WAL_NEXT: &str = "journal_next";

/// Position in the WAL from which records have to be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalPosition {
    id: u64,
    next: u64,
}

fn wal_position(database: &Database) -> Result<Option<WalPosition>> {
    let meta = match database.begin_read()?.open_table(META.table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        meta => meta?,
    };
    let number = |name| Ok::<_, Error>(meta.get(name)?.map_or(0, |number| number.value()));
    let mark = WalPosition { id: number(WAL_ID)?, next: number(WAL_NEXT)? };
    Ok(Some(mark).filter(|mark| mark.id != 0))
}

/// Replays the records that the database does not contain, and makes the database durable.
pub(crate) fn replay_wal(database: &Database, file: &dyn StorageBackend) -> anyhow::Result<()> {
    let Some(mark) = wal_position(database)? else { return Ok(()) };
    let found = wal::read(file, mark.id, mark.next).map_err(|why| match why {
        WalError::Io(error) => anyhow!("the write-ahead log cannot be read: {error}"),
        damaged => anyhow!(
            "the write-ahead log is damaged ({damaged}): its disk failed, or something other than agq changed it; bring back the last backup with `agq restore`"
        ),
    })?;
    if found.records.is_empty() {
        return Ok(());
    }
    let mut recent = Memtable::default();
    for record in &found.records {
        if !recent.replay(record) {
            bail!(
                "the write-ahead log has a record that this agq cannot read: start the agq that wrote it, stop it, and then start this one"
            );
        }
    }
    let transaction = database.begin_write()?;
    recent.write(&transaction)?;
    make_durable(transaction, mark.id, found.next)?;
    Ok(())
}

/// Opens the WAL of a complete database. A new WAL gets `new_id` and `len` bytes.
pub(crate) fn begin_wal(
    database: &Database,
    file: Box<dyn StorageBackend>,
    new_id: u64,
    len: u64,
) -> anyhow::Result<Wal> {
    if let Some(mark) = wal_position(database)? {
        // Records behind a torn record may be intact. Skipping this many numbers ensures that none
        // of their numbers is used again.
        let next = mark.next + file.len()?;
        make_durable(database.begin_write()?, mark.id, next)?;
        return Ok(Wal::reuse(file, mark.id, next)?);
    }
    let wal = Wal::create(file, new_id, len)?;
    make_durable(database.begin_write()?, wal.id(), wal.next())?;
    Ok(wal)
}

/// Commits durably, and records that the database needs no WAL.
pub(crate) fn remove_wal_position(transaction: WriteTransaction) -> Result<()> {
    make_durable(transaction, 0, 0)
}

/// Commits durably. The database then contains every WAL record before `next`.
pub(crate) fn make_durable(mut transaction: WriteTransaction, id: u64, next: u64) -> Result<()> {
    {
        let mut meta = transaction.open_table(META.table)?;
        meta.insert(WAL_ID, id)?;
        meta.insert(WAL_NEXT, next)?;
    }
    transaction.set_durability(Durability::Immediate)?;
    // Quick repair makes opening the database after a crash fast, whatever its size.
    transaction.set_quick_repair(true);
    transaction.commit()?;
    Ok(())
}
