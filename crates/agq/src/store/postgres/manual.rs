//! Hooks for the simulation: an empty start, and the number of pending calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::{future::poll_fn, task::AtomicWaker};

use sqlx::{Connection, PgConnection};

use super::{PostgresSettings, PostgresStore};
use crate::store::StoreFuture;

#[derive(Default)]
pub(super) struct PendingCalls {
    count: AtomicUsize,
    waker: AtomicWaker,
}

/// Guard of a pending call. Counts the call until its answer is taken, or its future is dropped.
struct PendingCall(Arc<PendingCalls>);

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.waker.wake();
    }
}

impl PendingCalls {
    pub(super) fn count<T: Send + 'static>(self: &Arc<Self>, answer: StoreFuture<T>) -> StoreFuture<T> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let guard = PendingCall(Arc::clone(self));
        Box::pin(async move {
            let _guard = guard;
            answer.await
        })
    }
}

impl PostgresStore {
    /// Opens a database, and empties it, for a node that is alone and the leader.
    pub(crate) async fn open_empty(url: &str) -> anyhow::Result<Self> {
        let store = Self::open_beside(url).await?;
        let sql = "TRUNCATE agq.plans, agq.actions, agq.tallies, agq.totals, agq.lanes, agq.paused, agq.jobs, agq.ended, \
             agq.inputs, agq.results, agq.workers, agq.registrations, agq.keys, agq.list_items, agq.scores, agq.leader, agq.notes, agq.lane_counts, \
             agq.limit_ends RESTART IDENTITY; \
             ALTER SEQUENCE agq.turns RESTART; ALTER SEQUENCE agq.key_numbers RESTART";
        sqlx::raw_sql(sql).execute(&store.pool).await?;
        store.nodes.send_heartbeat().await?;
        Ok(store)
    }

    /// Opens the database for a further node, which does not listen to the others.
    pub(crate) async fn open_beside(url: &str) -> anyhow::Result<Self> {
        let settings = PostgresSettings {
            listens: false,
            term: Duration::from_secs(3600),
            ..PostgresSettings::default()
        };
        Self::open(url, settings).await
    }

    /// Deletes the nodes and the leader, as a crash of the database does.
    pub(crate) async fn forget_nodes(&self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("TRUNCATE agq.instances, agq.leader").execute(&self.pool).await.map(drop)
    }

    /// Counts the deadlocks in the database so far, and lets PostgreSQL check for deadlocks early
    /// from now on. By default, PostgreSQL checks after a second, when the lock timeout of a node
    /// has ended the wait.
    pub(crate) async fn deadlocks(url: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(url).await?;
        let sql = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 50', current_database()); END $$";
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        Ok(sqlx::query_scalar(sql).fetch_one(&mut connection).await?)
    }

    pub(crate) async fn lane_count(&self) -> Result<usize, sqlx::Error> {
        let lanes = sqlx::query("SELECT FROM agq.lanes").fetch_all(&self.pool).await?;
        Ok(lanes.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending_calls.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn until_idle(&self) -> impl Future<Output = ()> + use<> {
        let pending_calls = Arc::clone(&self.pending_calls);
        poll_fn(move |context| {
            pending_calls.waker.register(context.waker());
            if pending_calls.count.load(Ordering::SeqCst) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}
