//! Store on PostgreSQL, which several nodes share (ADR 10).
//!
//! Each node has two writer threads with a connection each: one for records, one for users' keys. A
//! writer takes the waiting writes from its queue, and commits them in one transaction. Reads are
//! statements of their own over a pool.
//!
//! - `writer`: queue, group commit, retries and lock order.
//! - `txn`: the operations inside a write transaction.
//! - `queries`, `pages`: reads of records, and of pages of ids.
//! - `keyspace`: users' keys.
//! - `cluster`: live nodes, the leader, and notifications between nodes.
//! - `connection`: opening, pooling and checking of connections.
//! - `codec`, `schema`, `sql_types`: encoding of records, migrations, and conversions of numbers.
//! - `lane_cache`, `read_cache`: caches of lanes, workers and plans.
//! - `ready_positions`: positions in the lanes at which claims begin.
//! - `ready_lanes`: lanes that may have ready jobs, in an index by which a claim chooses its lane.
//! - `export`: export and import of a whole database.

pub(crate) mod cluster;
mod codec;
pub(crate) mod connection;
mod export;
mod keyspace;
mod lane_cache;
mod limit_ends;
#[cfg(feature = "simulation")]
mod manual;
mod old_snapshots;
mod pages;
mod quantities;
mod queries;
mod read_cache;
mod ready_lanes;
mod ready_positions;
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
    thread,
    time::Duration,
};

use agenix_protocol::ids::{PlanId, WorkerId};
use agenix_rules::worker::Worker;
use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::ready;
use sqlx::{PgConnection, Result, postgres::PgConnectOptions, query_scalar};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{JoinHandle, JoinSet},
};

use super::{AckLevel, ChangeNotifier, StoreError, StoreFuture, StoredPlan};
use crate::store::postgres::{
    cluster::{Nodes, NotifyBus, outgoing_messages::OutgoingMessages},
    connection::{ConnectOptions, DedicatedConnection, HealthCheck, Pool, within},
    lane_cache::LaneCache,
    read_cache::TtlCache,
    ready_positions::ReadyNotices,
    txn::{PgTxn, unused_lanes::UnusedSearch},
    writer::{
        PgWriter,
        late_writes::Late,
        queue::{PgQueue, PgWriteHandle},
        shards::Shards,
        subject::Subjects,
        table_growth::Growth,
    },
};

pub(crate) use self::settings::PostgresSettings;
pub(crate) use crate::store::postgres::export::{export, import};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of connections that write: one for jobs, one for users' keys.
const WRITERS: u32 = 2;

/// Maximum number of notices that wait. Further notices are dropped, and waiters find changes by
/// polling.
const MAX_NOTICES: usize = 20_000;

/// PostgreSQL store of one node. The drop finishes submitted writes, and signs the node off.
pub(crate) struct PostgresStore {
    /// Queues of the writers; `None` once the store is closing.
    queues: Option<WriteQueues>,
    writers: Vec<thread::JoinHandle<()>>,
    pool: Pool,
    /// Permits for long reads, which leave the other connections for short reads.
    long_reads: Arc<Semaphore>,
    runtime: Handle,
    answer_timeout: Duration,
    notifier: Arc<ChangeNotifier>,
    nodes: Arc<Nodes>,
    health: Arc<HealthCheck>,
    worker_cache: Arc<TtlCache<WorkerId, Worker>>,
    plan_cache: Arc<TtlCache<PlanId, StoredPlan>>,
    unused_search: Arc<tokio::sync::Mutex<UnusedSearch>>,
    #[cfg(test)]
    notices: mpsc::Sender<cluster::BusMessage>,
    notify_bus: Arc<NotifyBus>,
    /// Background tasks, which end with the store.
    background_tasks: Mutex<JoinSet<()>>,
    #[cfg(feature = "simulation")]
    pending_calls: Arc<manual::PendingCalls>,
}

struct WriteQueues {
    jobs: PgWriteHandle,
    /// Queue of writes of users' keys. These writes have their own writer, connection and
    /// transactions, because claims must wait neither for a large command on keys, nor for the lock
    /// of another node during such a command.
    keys: PgWriteHandle,
}

/// Parses `url`. Returns connection options, and a description of the place for messages.
fn options(url: &str) -> anyhow::Result<(PgConnectOptions, String)> {
    let options: PgConnectOptions = url.parse().context("cannot read the address of the database")?;
    let place =
        format!("{}:{}/{}", options.get_host(), options.get_port(), options.get_database().unwrap_or(""));
    Ok((options.application_name("agq"), place))
}

/// Creates or migrates the tables. Returns a description of the place for messages.
pub(crate) async fn migrate(url: &str) -> anyhow::Result<String> {
    let (options, place) = options(url)?;
    bring_up_to_date(options, &place).await?;
    Ok(place)
}

async fn bring_up_to_date(options: PgConnectOptions, place: &str) -> anyhow::Result<()> {
    let access = ConnectOptions::new(options, None);
    let failed = || format!("cannot bring the database {place} up to date");
    if access.is_pooled_by_transaction().await.map_err(StoreError::from).with_context(failed)? {
        bail!(
            "cannot use the database {place}: a pooler assigns its connections per transaction, and agq needs each of \
             its own for longer. Set pool_mode = session for this database in pgbouncer.ini, or give the address of PostgreSQL itself"
        );
    }
    let mut connection = access.connect().await.map_err(StoreError::from).with_context(failed)?;
    check_encoding(&mut connection, place).await?;
    match schema::migrate(&mut connection).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("cannot bring the database {place} up to date: {}", schema::message(&error)),
    }
}

async fn check_encoding(connection: &mut PgConnection, place: &str) -> anyhow::Result<()> {
    let encoding = query_scalar("SHOW server_encoding").fetch_one(connection).await;
    let encoding: String =
        encoding.map_err(StoreError::from).with_context(|| format!("cannot use the database {place}"))?;
    if encoding != "UTF8" {
        bail!(
            "cannot use the database {place}: it keeps text as {encoding}, which does not have all characters. \
             Make another one: createdb --encoding=UTF8 --template=template0 NAME"
        );
    }
    Ok(())
}

impl PostgresStore {
    /// Connects, and migrates the tables. `url` is `postgres://USER@HOST/DATABASE`, as in libpq.
    pub(crate) async fn open(url: &str, settings: PostgresSettings) -> anyhow::Result<Self> {
        let (options, place) = options(url)?;
        bring_up_to_date(options.clone(), &place).await?;
        let access = ConnectOptions::new(options, Some(settings.timeout));
        let notifier = Arc::new(ChangeNotifier::default());
        let nodes = Arc::new(Nodes::new(settings.term, access.clone(), Arc::clone(&notifier)));
        let shown = nodes.send_heartbeat().await.map_err(StoreError::from);
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
        let pool = Pool::new(access.clone(), settings.connections - WRITERS);
        let (notices, outgoing_notices) = mpsc::channel(MAX_NOTICES);
        let ready_notices = Arc::<ReadyNotices>::default();
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
                shards: Shards::of_node(nodes.number()),
                lanes: LaneCache::new(Arc::clone(&ready_notices), settings.poll),
                ready_notices: Arc::clone(&ready_notices),
                session: None,
                answer_timeout: settings.answer_timeout(),
                late: Late::default(),
                growth: Growth::default(),
            };
            writers.push(thread::Builder::new().name(name.into()).spawn(move || writer.work())?);
            std::io::Result::Ok(PgWriteHandle(queue))
        };
        let queues = WriteQueues { jobs: start_writer("writer")?, keys: start_writer("key writer")? };
        let notify_bus = NotifyBus {
            access: access.clone(),
            messages: OutgoingMessages::default(),
            dedicated: DedicatedConnection::new(access.clone()),
            nodes: Arc::clone(&nodes),
            notifier: Arc::clone(&notifier),
            ready_notices,
            settings,
        };
        let (notify_bus, mut background_tasks) = (Arc::new(notify_bus), JoinSet::new());
        background_tasks.spawn(Arc::clone(&notify_bus).publish(outgoing_notices));
        background_tasks.spawn(Arc::clone(&notify_bus).publish_messages());
        background_tasks.spawn({
            let nodes = Arc::clone(&nodes);
            async move { nodes.heartbeat().await }
        });
        let long_reads = usize::try_from((settings.connections - WRITERS) / 2)?;
        Ok(Self {
            queues: Some(queues),
            writers,
            pool,
            long_reads: Arc::new(Semaphore::new(long_reads)),
            runtime,
            answer_timeout: settings.answer_timeout(),
            notifier,
            nodes,
            health: Arc::new(HealthCheck::new(access.clone())),
            worker_cache: Arc::default(),
            plan_cache: Arc::default(),
            unused_search: Arc::default(),
            #[cfg(test)]
            notices,
            notify_bus,
            background_tasks: Mutex::new(background_tasks),
            #[cfg(feature = "simulation")]
            pending_calls: Arc::default(),
        })
    }

    /// Joins the other nodes: passes their pub/sub messages, with a channel and a payload, to
    /// `tell`, and shows `settings` (names and values) to them for comparison.
    pub(crate) fn join(&self, settings: &str, tell: impl Fn(Bytes, Bytes) + Send + Sync + 'static) {
        let lease = self.notify_bus.settings.term.as_secs_f64();
        self.nodes.warn_of_different_settings(format!("{settings} store-lease={lease}"));
        let notify_bus = Arc::clone(&self.notify_bus);
        let mut background_tasks = self.background_tasks.lock().unwrap_or_else(PoisonError::into_inner);
        background_tasks.spawn(async move { notify_bus.receive(tell).await });
    }

    /// Returns a function that sends a pub/sub message, with a channel and a payload, to the other
    /// nodes.
    pub(crate) fn peer_sender(&self) -> impl Fn(&Bytes, &Bytes) + Send + Sync + use<> {
        let notify_bus = Arc::clone(&self.notify_bus);
        move |channel: &Bytes, payload: &Bytes| {
            if notify_bus.nodes.has_peers() {
                notify_bus.messages.push(channel, payload);
            }
        }
    }

    fn write<T: Send + 'static>(
        &self,
        level: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.write_on(Subjects::default(), level, work)
    }

    /// Submits a write, which keeps its order with the other writes on `subjects`.
    fn write_on<T: Send + 'static>(
        &self,
        subjects: impl Into<Subjects>,
        level: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.submit_write(|handle| handle.write(subjects.into(), level, work))
    }

    /// Submits a write of records. The write takes its place in the order before this returns.
    fn submit_write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&PgWriteHandle) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        self.submit_write_to(|queues| write(&queues.jobs))
    }

    /// Submits a write of users' keys, which have an order of their own.
    fn hand_in_keys(&self, write: impl FnOnce(&PgWriteHandle) -> StoreFuture<()>) -> StoreFuture<()> {
        self.submit_write_to(|queues| write(&queues.keys))
    }

    fn submit_write_to<T: Send + 'static>(
        &self,
        write: impl FnOnce(&WriteQueues) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        match &self.queues {
            Some(queues) => self.counted(write(queues)),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// Reads with a permit, because long reads must leave connections for short ones.
    fn query_long<T, F>(&self, read: impl FnOnce(Pool) -> F + Send + 'static) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (long_reads, pool, answer_timeout) =
            (Arc::clone(&self.long_reads), self.pool.clone(), self.answer_timeout);
        let answer = self.runtime.spawn(async move {
            let _permit = permit(long_reads).await?;
            Ok(within(answer_timeout, read(pool)).await?)
        });
        self.answered(answer)
    }

    /// Reads in a task, because the caller may await late, and must not keep the connection.
    fn query<T, F>(&self, read: impl FnOnce(Pool) -> F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let read = within(self.answer_timeout, read(self.pool.clone()));
        self.answered(self.runtime.spawn(async move { Ok(read.await?) }))
    }

    fn answered<T: Send + 'static>(&self, answer: JoinHandle<Result<T, StoreError>>) -> StoreFuture<T> {
        self.counted(Box::pin(async move { answer.await.map_err(|error| StoreError(error.to_string()))? }))
    }

    /// Counts the call until it is answered, so that a simulation can wait until the store is idle.
    #[cfg(feature = "simulation")]
    fn counted<T: Send + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        self.pending_calls.count(answer)
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
            "too many long reads (lists, searches, KEYS, metrics) are under way at this node; try again in a moment, or \
             give it more --store-connections"
                .into(),
        )),
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.queues = None;
        let writers = std::mem::take(&mut self.writers);
        // The writers and the query need the runtime, which this thread must not block.
        tokio::task::block_in_place(|| {
            if writers.into_iter().any(|writer| writer.join().is_err()) {
                tracing::error!("a writer thread panicked");
            }
            // If this fails, the other nodes detect the silence of this node.
            let leave = async { tokio::time::timeout(CONNECT_TIMEOUT, self.nodes.leave()).await };
            let _gone = self.runtime.block_on(leave);
        });
    }
}
