//! Trait of a store for its operation: durability, backup, health, and the nodes that share it.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;

use super::{ChangeNotifier, JobStore, OldestSnapshot, StoreFuture};

/// Operation of a store as a whole.
pub(crate) trait StoreAdmin: JobStore {
    /// Completes when every earlier write is visible, except for jobs that are added in bulk.
    fn wait_until_applied(&self) -> StoreFuture<()>;
    /// Completes when every earlier write of a record is answered, or waits for a lock of another
    /// session of the database. Returns `None` for a store without other sessions.
    fn wait_until_tried(&self) -> Option<StoreFuture<()>> {
        None
    }
    /// Completes when every visible write is on disk.
    fn sync(&self) -> StoreFuture<()>;
    /// Writes a consistent copy of the store into the new file `to`, from which a store can be
    /// opened, and returns its size in bytes. The copy includes every answered write.
    fn backup(&self, to: PathBuf) -> StoreFuture<u64>;
    /// Completes with the reason when the store has failed for good, so that only a restart can
    /// help.
    fn failure(&self) -> BoxFuture<'static, String>;
    /// Fails soon if the store cannot work.
    fn is_healthy(&self) -> StoreFuture<()> {
        let totals = self.totals();
        Box::pin(async move { totals.await.map(drop) })
    }
    /// Returns the database session with the oldest snapshot; `None` if there is none, or if the
    /// store has no sessions.
    fn oldest_snapshot(&self) -> StoreFuture<Option<OldestSnapshot>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Returns the name of this node, if several nodes can share the store.
    fn node(&self) -> Option<&str>;
    /// Returns true if writes of users' keys have an order of their own, which is independent of
    /// the order of other writes.
    fn writes_keys_apart(&self) -> bool {
        false
    }
    /// Returns true if this node is the leader, which fires timers and expires records.
    fn leads(&self) -> bool;
    /// Returns the names of the live nodes that share the store; `None` if they are unknown, or if
    /// no other node can share the store.
    fn nodes(&self) -> StoreFuture<Option<HashSet<String>>>;
    /// Returns the notifier that announces the changes of the store.
    fn notifier(&self) -> Arc<ChangeNotifier>;
}
