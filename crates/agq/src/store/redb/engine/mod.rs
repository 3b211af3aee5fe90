//! The storage engine: write-ahead log (WAL), memtable, snapshots and flush, on top of a redb file.
//!
//! redb alone would write and sync several pages for each commit. The engine therefore puts a WAL
//! and a memtable in front of the database:
//!
//! ```text
//!               changes of one batch
//!                        |
//!                    Committer ------- larger than 256 KiB or half of the WAL ------+
//!                        | 1. append, sync if needed                               |
//!                        v                                                         |
//!   agq.journal +--------+--------+  half is full: switch, and flush               |
//!     (WAL)     | half 0 | half 1 |-----------------+                              |
//!               +--------+--------+                 v                              v
//!                        | 2. absorb         pinned snapshot ---> transaction: rows, WAL position
//!                        v                                                |
//!   memory       memtable (layers) <---- 3. remove flushed layers --------+
//!                        |                                                v
//!   readers              +---------> Snapshot <---- read transaction --- redb file
//! ```
//!
//! - **Commit** ([`Committer`]): the changes of a batch are appended to the WAL as one record,
//!   which is synced if a write of the batch asks for it. Then the changes become visible in the
//!   memtable. A larger batch is written into the database directly, together with the whole
//!   memtable.
//! - **Reads** ([`Versions`], [`Snapshot`]): a snapshot has the layers of the memtable and a read
//!   transaction of redb. A [`Table`] merges the layers, newest layer first. A [`PinnedSnapshot`]
//!   outlives later commits, because layers that it shares are immutable.
//! - **Flush** ([`Flusher`]): when one half of the WAL is full, records go into the other half, and
//!   a thread writes the pinned memtable into the database. The same transaction stores the WAL
//!   position: the number of the first record that the database does not contain. Afterwards, the
//!   flushed layers and the old read transaction are replaced together. If the other half fills up
//!   before the flush ends, the writer waits for the flush.
//! - **Recovery** ([`replay_wal`]): records from the stored position on are replayed into a
//!   memtable, which is written into the database. Replay ends at the first missing or torn record.
//!   A later record that was written after a sync proves damage, and is an error.
//! - **Clean stop**: dropping the committer flushes everything, and removes the WAL position. The
//!   database file is then complete without the WAL.
//!
//! | Moment | Survives a killed process | Survives a power failure |
//! |---|---|---|
//! | appended, not written (acknowledged as visible only) | no | no |
//! | record written | yes | no |
//! | record synced | yes | yes |
//! | flushed into the database | yes | yes |
//!
//! An error of the WAL or of the database is final: the committer refuses further writes, because
//! the two files may differ until the next start.

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
    recovery::{WAL_ID, WAL_NEXT, begin_wal, replay_wal},
    snapshot::{PinnedSnapshot, Snapshot, Table, Versions},
};
