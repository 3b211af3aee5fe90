//! The storage engine: write-ahead log, memtable, snapshots and flush.

pub(crate) mod apply_rows;
pub(crate) mod commit;
pub(crate) mod flush;
pub(crate) mod memtable;
pub(crate) mod recovery;
pub(crate) mod snapshot;
pub(crate) mod sorted_runs;
pub(crate) mod table;
pub(crate) mod wal;
