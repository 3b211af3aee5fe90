//! The store on PostgreSQL, which many nodes share (ADR 10).
//!
//! Writes come in by the `inbox`; the `writer` does all that wait in one transaction: `claims`, `actions`, `workers`, `pruning` and
//! `keyspace` are what can be done in a `batch`, `rows` is what it writes together. `reads` are statements of their own, over a pool.
//! `settings` are those of a node, `access` opens connections, a `line` is a dedicated one, and
//! `faults` finds the broken ones. `prefix` reads records of later versions, `subject` is what a
//! write is about. `snapshots` finds transactions that slow claims down, `pool` is of connections
//! that read.
//! `locks` sets the lock order, `late` keeps writes that wait for locks, `together` and `failure`
//! belong to the writer, and `growth` refreshes query plans. `forgetting` and `pruning` remove
//! unused rows. `schema` makes the tables, `known` caches lanes, `seen` workers and plans. `nodes`
//! knows the live nodes, `relay` hears what happens there, and `relay` tells
//! others the `events`, too. `portable` makes of it what any store can read.

pub(crate) mod cluster;
mod codec;
pub(crate) mod connection;
mod export;
mod keyspace;
mod lane_cache;
#[cfg(feature = "simulation")]
mod manual;
mod old_snapshots;
mod queries;
mod read_cache;
mod records;
mod schema;
mod settings;
mod sql_types;
#[cfg(test)]
mod tests;
mod txn;
mod writer;

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use agenix_protocol::ids::{PlanId, WorkerId};
use agenix_rules::worker::Worker;
use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::ready;
use sqlx::{Error, PgConnection, postgres::PgConnectOptions};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
};

use super::{AckLevel, ChangeNotifier, StoreError, StoreFuture, StoredPlan};
use crate::store::postgres::{
    cluster::{
        nodes::Nodes,
        notify_bus::{BusMessage, NotifyBus},
    },
    connection::{
        dedicated::DedicatedConnection, errors::to_store_error, health_check::HealthCheck,
        open::ConnectOptions, pool::Pool, session::within,
    },
    lane_cache::LaneCache,
    read_cache::TtlCache,
    txn::PgTxn,
    writer::{
        PgWriter,
        late_writes::Late,
        queue::{PgQueue, PgWriteHandle},
        subject::Subjects,
        table_growth::Growth,
    },
};

pub(crate) use self::settings::PostgresSettings;
pub(crate) use crate::store::postgres::export::{export, import};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of connections that write: one for jobs, one for users' keys.
const WRITERS: u32 = 2;
/// Most nodes that write counts of their own: beyond that, some share.
const SHARDS: i16 = 1024;

/// Most notices that wait to be told; more are not told, and whoever waits looks by itself.
const MOST_NOTICES: usize = 20_000;

/// A database, with a writer of this node.
pub(crate) struct PostgresStore {
    /// `None` once the store is closing.
    inboxes: Option<WriteQueues>,
    writers: Vec<JoinHandle<()>>,
    pool: Pool,
    /// Permits for long reads, which leave the other connections for short reads.
    long_reads: Arc<Semaphore>,
    runtime: Handle,
    patience: Duration,
    notifier: Arc<ChangeNotifier>,
    nodes: Arc<Nodes>,
    pulse: Arc<HealthCheck>,
    workers_seen: Arc<TtlCache<WorkerId, Worker>>,
    plans_seen: Arc<TtlCache<PlanId, StoredPlan>>,
    notices: mpsc::Sender<BusMessage>,
    relay: Arc<NotifyBus>,
    /// What goes on besides, as long as the store is there.
    aside: Mutex<JoinSet<()>>,
    #[cfg(feature = "simulation")]
    under_way: Arc<manual::PendingCalls>,
}

/// Inboxes of the writers.
struct WriteQueues {
    jobs: PgWriteHandle,
    /// Inbox for users' keys, which have their own writer, connection and transactions, because
    /// claims must not wait for a large command on keys, or for another node's lock during one.
    keys: PgWriteHandle,
}

/// How to connect, and where to, for people.
fn options(url: &str) -> anyhow::Result<(PgConnectOptions, String)> {
    let options: PgConnectOptions = url.parse().context("cannot read the address of the database")?;
    let place =
        format!("{}:{}/{}", options.get_host(), options.get_port(), options.get_database().unwrap_or(""));
    Ok((options.application_name("agq"), place))
}

/// Makes the tables, or brings them to those of this program, and does nothing else. Where they are, for people.
pub(crate) async fn migrate(url: &str) -> anyhow::Result<String> {
    let (options, place) = options(url)?;
    bring_up_to_date(options, &place).await?;
    Ok(place)
}

async fn bring_up_to_date(options: PgConnectOptions, place: &str) -> anyhow::Result<()> {
    let access = ConnectOptions::new(options, None);
    let failed = || format!("cannot bring the database {place} up to date");
    if access.is_pooled_by_transaction().await.map_err(|error| to_store_error(&error)).with_context(failed)? {
        bail!(
            "cannot use the database {place}: a pooler hands out its connections by transaction, and agq needs each of its \
             own for longer. Set pool_mode = session for this database in pgbouncer.ini, or give the address of PostgreSQL itself"
        );
    }
    let mut connection =
        access.connect().await.map_err(|error| to_store_error(&error)).with_context(failed)?;
    check_encoding(&mut connection, place).await?;
    match schema::migrate(&mut connection).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("cannot bring the database {place} up to date: {}", schema::said(&error)),
    }
}

/// Refuses a database whose encoding does not have all characters.
async fn check_encoding(connection: &mut PgConnection, place: &str) -> anyhow::Result<()> {
    let encoding = schema::encoding(connection).await.map_err(|error| to_store_error(&error));
    let encoding = encoding.with_context(|| format!("cannot use the database {place}"))?;
    if encoding != "UTF8" {
        bail!(
            "cannot use the database {place}: it keeps text as {encoding}, which does not have all characters. \
             Make another one: createdb --encoding=UTF8 --template=template0 NAME"
        );
    }
    Ok(())
}

impl PostgresStore {
    /// Connects, and makes the tables where they are missing. `url` is `postgres://USER@HOST/DATABASE`, as libpq knows it.
    pub(crate) async fn open(url: &str, settings: PostgresSettings) -> anyhow::Result<Self> {
        let (options, place) = options(url)?;
        bring_up_to_date(options.clone(), &place).await?;
        let access = ConnectOptions::new(options, Some(settings.timeout));
        let notifier = Arc::new(ChangeNotifier::default());
        let nodes = Arc::new(Nodes::new(settings.term, access.clone(), Arc::clone(&notifier)));
        let shown = nodes.show().await.map_err(|error| to_store_error(&error));
        shown.with_context(|| format!("cannot use the database {place}"))?;
        Self::start(&access, nodes, notifier, settings).context("cannot start the writers")
    }

    fn start(
        access: &ConnectOptions,
        nodes: Arc<Nodes>,
        notifier: Arc<ChangeNotifier>,
        settings: PostgresSettings,
    ) -> anyhow::Result<Self> {
        let runtime = Handle::current();
        let pool = access.pool(settings.connections - WRITERS);
        let (notices, told) = mpsc::channel(MOST_NOTICES);
        let mut writers = Vec::new();
        let mut start_writer = |name: &str| {
            let queue = Arc::new(PgQueue::default());
            let writer = PgWriter {
                access: access.clone(),
                nodes: Arc::clone(&nodes),
                notices: notices.clone(),
                pool: pool.clone(),
                runtime: runtime.clone(),
                queue: Arc::clone(&queue),
                notifier: Arc::clone(&notifier),
                shard: fastrand::i16(0..SHARDS),
                known: LaneCache::default(),
                session: None,
                patience: settings.lock_timeout(),
                late: Late::default(),
                growth: Growth::default(),
            };
            writers.push(std::thread::Builder::new().name(name.into()).spawn(move || writer.work())?);
            std::io::Result::Ok(PgWriteHandle(queue))
        };
        let inboxes = WriteQueues { jobs: start_writer("writer")?, keys: start_writer("key writer")? };
        let relay = NotifyBus {
            access: access.clone(),
            line: DedicatedConnection::new(access.clone()),
            nodes: Arc::clone(&nodes),
            notifier: Arc::clone(&notifier),
            settings,
        };
        let (relay, mut aside) = (Arc::new(relay), JoinSet::new());
        aside.spawn(Arc::clone(&relay).publish(told));
        aside.spawn({
            let nodes = Arc::clone(&nodes);
            async move { nodes.heartbeat().await }
        });
        let long_reads = usize::try_from((settings.connections - WRITERS) / 2)?;
        Ok(Self {
            inboxes: Some(inboxes),
            writers,
            pool,
            long_reads: Arc::new(Semaphore::new(long_reads)),
            runtime,
            patience: settings.lock_timeout(),
            notifier,
            nodes,
            pulse: Arc::new(HealthCheck::new(access.clone())),
            workers_seen: Arc::default(),
            plans_seen: Arc::default(),
            notices,
            relay,
            aside: Mutex::new(aside),
            #[cfg(feature = "simulation")]
            under_way: Arc::default(),
        })
    }

    /// Passes what happens at other nodes to `tell`, shows `settings` (names and values) to these
    /// nodes for comparison, and sends them what comes from `outgoing`. Messages on channels are
    /// for the hub.
    pub(crate) fn join(
        &self,
        settings: &str,
        mut outgoing: mpsc::Receiver<(Bytes, Bytes)>,
        tell: impl Fn(Bytes, Bytes) + Send + Sync + 'static,
    ) {
        let lease = self.relay.settings.term.as_secs_f64();
        self.nodes.warn_of_different_settings(format!("{settings} store-lease={lease}"));
        let (relay, nodes, notices) =
            (Arc::clone(&self.relay), Arc::clone(&self.nodes), self.notices.clone());
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.spawn(async move { relay.receive(tell).await });
        aside.spawn(async move {
            while let Some((channel, payload)) = outgoing.recv().await {
                if nodes.has_peers() {
                    let _full = notices.try_send(BusMessage::Message(channel, payload));
                }
            }
        });
    }

    /// Hands in a write that is about no subject.
    fn write<T: Send + 'static>(
        &self,
        promise: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T, Error> + Send + 'static,
    ) -> StoreFuture<T> {
        self.write_on(Subjects::default(), promise, work)
    }

    /// Hands in a write, which keeps its order with the other writes on `subjects`.
    fn write_on<T: Send + 'static>(
        &self,
        subjects: impl Into<Subjects>,
        promise: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T, Error> + Send + 'static,
    ) -> StoreFuture<T> {
        self.hand_in(|inbox| inbox.write(subjects.into(), promise, work))
    }

    /// Hands a write in; its place in the order is taken before this returns.
    fn hand_in<T: Send + 'static>(
        &self,
        write: impl FnOnce(&PgWriteHandle) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        self.hand_in_to(|inboxes| write(&inboxes.jobs))
    }

    /// Hands in a write of users' keys, whose order is their own.
    fn hand_in_keys(&self, write: impl FnOnce(&PgWriteHandle) -> StoreFuture<()>) -> StoreFuture<()> {
        self.hand_in_to(|inboxes| write(&inboxes.keys))
    }

    fn hand_in_to<T: Send + 'static>(
        &self,
        write: impl FnOnce(&WriteQueues) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        match &self.inboxes {
            Some(inboxes) => self.counted(write(inboxes)),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// Reads with a permit, because the cost of the read grows with the data, and short reads need
    /// connections.
    fn query_long<T, F>(&self, read: impl FnOnce(Pool) -> F + Send + 'static) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (long_reads, pool, patience) = (Arc::clone(&self.long_reads), self.pool.clone(), self.patience);
        let answer = self.runtime.spawn(async move {
            let _permit = permit(long_reads).await?;
            within(patience, read(pool)).await.map_err(|error| to_store_error(&error))
        });
        self.counted(Box::pin(async move { answer.await.map_err(|error| StoreError(error.to_string()))? }))
    }

    /// A read. It goes on by itself: whoever asked may look at the answer only when others have theirs, who must not wait for its
    /// connection meanwhile.
    fn query<T, F>(&self, read: impl FnOnce(Pool) -> F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = self.runtime.spawn(within(self.patience, read(self.pool.clone())));
        self.counted(Box::pin(async move {
            let answer = answer.await.map_err(|error| StoreError(error.to_string()))?;
            answer.map_err(|error| to_store_error(&error))
        }))
    }

    /// Notes that something is under way, where somebody wants to know.
    #[cfg(feature = "simulation")]
    fn counted<T: Send + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        self.under_way.count(answer)
    }

    #[cfg(not(feature = "simulation"))]
    #[expect(clippy::unused_self, reason = "a simulation has something to note")]
    fn counted<T>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        answer
    }
}

/// Returns a permit for a long read if one becomes free within `CONNECT_TIMEOUT`.
async fn permit(long_reads: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, StoreError> {
    match tokio::time::timeout(CONNECT_TIMEOUT, long_reads.acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(closed)) => Err(StoreError(closed.to_string())),
        Err(_) => Err(StoreError(
            "too many long reads (lists, searches, KEYS, figures) are under way at this node; try again in a moment, or give it \
             more --store-connections"
                .into(),
        )),
    }
}

impl Drop for PostgresStore {
    /// Lets the writers finish the writes that they have taken in.
    fn drop(&mut self) {
        self.inboxes = None;
        let writers = std::mem::take(&mut self.writers);
        // Both need the runtime: this thread is not to keep it.
        tokio::task::block_in_place(|| {
            if writers.into_iter().any(|writer| writer.join().is_err()) {
                tracing::error!("a writer thread panicked");
            }
            // Where that fails, the others find out by themselves.
            let leave = async { tokio::time::timeout(CONNECT_TIMEOUT, self.nodes.leave()).await };
            let _gone = self.runtime.block_on(leave);
        });
    }
}
