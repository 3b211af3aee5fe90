//! From the database as it was last made durable, and its journal, to everything that was acknowledged.

use anyhow::{anyhow, bail};
use redb::{Database, Durability, Error, ReadableDatabase, StorageBackend, TableError, WriteTransaction};

use crate::store::redb::{
    engine::{
        memtable::Memtable,
        wal::{self, Wal, WalError},
    },
    schema::tables::META,
};

/// Which journal holds what the database does not, in [`META`]; 0 or missing where nothing is.
pub(crate) const JOURNAL_ID: &str = "journal_id";
/// The number of the first record that may hold more, in [`META`].
pub(crate) const JOURNAL_NEXT: &str = "journal_next";

/// What the database says of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalPosition {
    id: u64,
    next: u64,
}

fn wal_position(database: &Database) -> Result<Option<WalPosition>, Error> {
    let meta = match database.begin_read()?.open_table(META.table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        meta => meta?,
    };
    let number = |name| Ok::<_, Error>(meta.get(name)?.map_or(0, |number| number.value()));
    let mark = WalPosition { id: number(JOURNAL_ID)?, next: number(JOURNAL_NEXT)? };
    Ok(Some(mark).filter(|mark| mark.id != 0))
}

/// Brings a database to what its journal says, where there is more in it.
pub(crate) fn replay_wal(database: &Database, file: &dyn StorageBackend) -> anyhow::Result<()> {
    let Some(mark) = wal_position(database)? else { return Ok(()) };
    let found = wal::read(file, mark.id, mark.next).map_err(|why| match why {
        WalError::Io(error) => anyhow!("the journal cannot be read: {error}"),
        damaged => anyhow!(
            "the journal is damaged ({damaged}): its disk failed, or something other than agq changed it; bring back the last backup with `agq restore`"
        ),
    })?;
    if found.records.is_empty() {
        return Ok(());
    }
    let mut recent = Memtable::default();
    for record in &found.records {
        if !recent.replay(record) {
            bail!("the journal has a record that this agq cannot read: use the agq version that wrote it");
        }
    }
    let transaction = database.begin_write()?;
    recent.write(&transaction)?;
    make_durable(transaction, mark.id, found.next)?;
    Ok(())
}

/// Begins a journal for a database that holds everything that was acknowledged. A new one gets this id and size.
pub(crate) fn begin_wal(
    database: &Database,
    file: Box<dyn StorageBackend>,
    new_id: u64,
    len: u64,
) -> anyhow::Result<Wal> {
    if let Some(mark) = wal_position(database)? {
        // A record that was torn when the power failed may have others behind it. They never get a number that comes again.
        let next = mark.next + file.len()?;
        make_durable(database.begin_write()?, mark.id, next)?;
        return Ok(Wal::reuse(file, mark.id, next)?);
    }
    let journal = Wal::create(file, new_id, len)?;
    make_durable(database.begin_write()?, journal.id(), journal.next())?;
    Ok(journal)
}

/// Makes the database durable with everything that was written: it needs no journal.
pub(crate) fn remove_wal_position(transaction: WriteTransaction) -> Result<(), Error> {
    make_durable(transaction, 0, 0)
}

/// Notes in the database which record of its journal is the first that may hold more.
pub(crate) fn put_wal_position(transaction: &WriteTransaction, id: u64, next: u64) -> Result<(), Error> {
    let mut meta = transaction.open_table(META.table)?;
    meta.insert(JOURNAL_ID, id)?;
    meta.insert(JOURNAL_NEXT, next)?;
    Ok(())
}

/// Makes the database durable with everything that was written so far; the journal's records from `next` on are beyond it.
pub(crate) fn make_durable(mut transaction: WriteTransaction, id: u64, next: u64) -> Result<(), Error> {
    put_wal_position(&transaction, id, next)?;
    transaction.set_durability(Durability::Immediate)?;
    // Opened after a crash, it is there at once, however large it is.
    transaction.set_quick_repair(true);
    transaction.commit()?;
    Ok(())
}
