//! The storage engine: write-ahead log, memtable, snapshots and flush.

mod any_table;
mod apply_rows;
mod commit;
mod flush;
mod memtable;
mod raw_key;
mod recovery;
mod snapshot;
mod sorted_runs;
mod wal;

pub(crate) use self::{
    any_table::ALL,
    commit::{Committer, smoothed},
    flush::Flusher,
    memtable::Memtable,
    recovery::{JOURNAL_ID, JOURNAL_NEXT, begin_wal, replay_wal},
    snapshot::{PinnedSnapshot, Snapshot, Table, Versions},
};
