//! The store on PostgreSQL, which many nodes share (ADR 10).
//!
//! Writes come in by the `inbox`; the `writer` does all that wait in one transaction: `claims`, `actions`, `workers`, `pruning` and
//! `keyspace` are what can be done in a `batch`, `rows` is what it writes together. `reads` are statements of their own, over a pool.
//! `schema` makes the tables, `known` remembers the lanes, `seen` workers and plans. `nodes` says who else is there, and `relay` what happens at them; it tells
//! others the `events`, too. `portable` makes of it what any store can read.

mod actions;
mod batch;
#[cfg(feature = "simulation")]
mod by_hand;
mod claims;
mod codec;
mod events;
mod inbox;
mod keyspace;
mod known;
mod nodes;
mod notes;
mod numbers;
mod portable;
mod pruning;
mod reads;
mod records;
mod relay;
mod rows;
mod schema;
mod seen;
mod session;
#[cfg(test)]
mod tests;
mod workers;
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
use sqlx::{
    Error, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet};

use self::{
    batch::Batch,
    inbox::{Inbox, Queue},
    known::Known,
    nodes::Nodes,
    relay::{Notice, Relay},
    seen::Seen,
    session::within,
    writer::{Writer, explained},
};
use super::{Answer, Arrivals, Promise, StoreError, StoredPlan};

pub(crate) use self::portable::{export, import};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most nodes that write counts of their own: beyond that, some share.
const SHARDS: i16 = 1024;

/// Most notices that wait to be told; more are not told, and whoever waits looks by itself.
const MOST_NOTICES: usize = 20_000;

/// How a node works with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Most connections for reads and writes.
    pub(crate) connections: u32,
    /// How long a statement may take, and a transaction may wait for the next one.
    pub(crate) timeout: Duration,
    /// Whether what other nodes tell is listened for.
    pub(crate) listens: bool,
    /// How often to look for what may have been missed.
    pub(crate) poll: Duration,
    /// How long the node that leads may be silent before another does.
    pub(crate) term: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let [timeout, poll, term] = [60, 1, 30].map(Duration::from_secs);
        Self { connections: 8, timeout, listens: true, poll, term }
    }
}

impl Settings {
    /// How long to wait for an answer: the database gives up sooner, where it can be reached.
    fn patience(&self) -> Duration {
        self.timeout + CONNECT_TIMEOUT
    }
}

/// A database, with a writer of this node.
pub(crate) struct PostgresStore {
    /// `None` once the store is closing.
    inbox: Option<Inbox>,
    writer: Option<JoinHandle<()>>,
    pool: PgPool,
    runtime: Handle,
    patience: Duration,
    arrivals: Arc<Arrivals>,
    nodes: Arc<Nodes>,
    workers_seen: Arc<Seen<WorkerId, Worker>>,
    plans_seen: Arc<Seen<PlanId, StoredPlan>>,
    notices: mpsc::Sender<Notice>,
    relay: Arc<Relay>,
    /// What goes on besides, as long as the store is there.
    aside: Mutex<JoinSet<()>>,
    #[cfg(feature = "simulation")]
    under_way: Arc<by_hand::UnderWay>,
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
    bring_up_to_date(&options, &place).await?;
    Ok(place)
}

async fn bring_up_to_date(options: &PgConnectOptions, place: &str) -> anyhow::Result<()> {
    match schema::migrate(options).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("cannot bring the database {place} up to date: {}", schema::said(&error)),
    }
}

impl PostgresStore {
    /// Connects, and makes the tables where they are missing. `url` is `postgres://USER@HOST/DATABASE`, as libpq knows it.
    pub(crate) async fn open(url: &str, settings: Settings) -> anyhow::Result<Self> {
        let (options, place) = options(url)?;
        let timeout = settings.timeout.as_millis().to_string();
        let bounded = options.clone().options([
            ("statement_timeout", timeout.as_str()),
            ("idle_in_transaction_session_timeout", timeout.as_str()),
            // To compile a statement takes a hundred times as long as any of ours.
            ("jit", "off"),
        ]);
        let pool = PgPoolOptions::new()
            // One is the writer's.
            .max_connections(settings.connections - 1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(bounded);
        let arrivals = Arc::new(Arrivals::default());
        let nodes = Arc::new(Nodes::new(settings.term, settings.patience(), Arc::clone(&arrivals)));
        bring_up_to_date(&options, &place).await?;
        let shown = nodes.show(&pool).await.map_err(|error| explained(&error));
        shown.with_context(|| format!("cannot use the database {place}"))?;
        Self::start(pool, nodes, arrivals, settings).context("cannot start the writer")
    }

    fn start(
        pool: PgPool,
        nodes: Arc<Nodes>,
        arrivals: Arc<Arrivals>,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let (queue, runtime) = (Arc::new(Queue::default()), Handle::current());
        let (notices, told) = mpsc::channel(MOST_NOTICES);
        let writer = Writer {
            nodes: Arc::clone(&nodes),
            notices: notices.clone(),
            pool: pool.clone(),
            runtime: runtime.clone(),
            queue: Arc::clone(&queue),
            arrivals: Arc::clone(&arrivals),
            shard: fastrand::i16(0..SHARDS),
            known: Known::default(),
            session: None,
            patience: settings.patience(),
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || writer.work())?;
        let relay = Relay {
            pool: pool.clone(),
            nodes: Arc::clone(&nodes),
            arrivals: Arc::clone(&arrivals),
            settings,
        };
        let (relay, mut aside) = (Arc::new(relay), JoinSet::new());
        aside.spawn(Arc::clone(&relay).tell(told));
        aside.spawn({
            let (nodes, pool) = (Arc::clone(&nodes), pool.clone());
            async move { nodes.beat(&pool).await }
        });
        let (inbox, writer, aside) = (Some(Inbox(queue)), Some(thread), Mutex::new(aside));
        let patience = settings.patience();
        Ok(Self {
            inbox,
            writer,
            pool,
            runtime,
            patience,
            arrivals,
            nodes,
            workers_seen: Arc::default(),
            plans_seen: Arc::default(),
            notices,
            relay,
            aside,
            #[cfg(feature = "simulation")]
            under_way: Arc::default(),
        })
    }

    /// Hears what happens at other nodes, and tells it `tell`; what comes from `outgoing` is told to them. Messages on channels are
    /// for the hub.
    pub(crate) fn join(
        &self,
        mut outgoing: mpsc::Receiver<(Bytes, Bytes)>,
        tell: impl Fn(Bytes, Bytes) + Send + Sync + 'static,
    ) {
        let (relay, nodes, notices) =
            (Arc::clone(&self.relay), Arc::clone(&self.nodes), self.notices.clone());
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.spawn(async move { relay.hear(tell).await });
        aside.spawn(async move {
            while let Some((channel, payload)) = outgoing.recv().await {
                if nodes.has_company() {
                    let _full = notices.try_send(Notice::Message(channel, payload));
                }
            }
        });
    }

    fn write<T: Send + 'static>(
        &self,
        promise: Promise,
        work: impl Fn(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        self.hand_in(|inbox| inbox.write(promise, work))
    }

    /// Hands a write in; its place in the order is taken before this returns.
    fn hand_in<T: Send + 'static>(&self, write: impl FnOnce(&Inbox) -> Answer<T>) -> Answer<T> {
        match &self.inbox {
            Some(inbox) => self.counted(write(inbox)),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// A read. It goes on by itself: whoever asked may look at the answer only when others have theirs, who must not wait for its
    /// connection meanwhile.
    fn read<T, F>(&self, read: impl FnOnce(PgPool) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = self.runtime.spawn(within(self.patience, read(self.pool.clone())));
        self.counted(Box::pin(async move {
            let answer = answer.await.map_err(|error| StoreError(error.to_string()))?;
            answer.map_err(|error| explained(&error))
        }))
    }

    /// Notes that something is under way, where somebody wants to know.
    #[cfg(feature = "simulation")]
    fn counted<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        self.under_way.count(answer)
    }

    #[cfg(not(feature = "simulation"))]
    #[expect(clippy::unused_self, reason = "a simulation has something to note")]
    fn counted<T>(&self, answer: Answer<T>) -> Answer<T> {
        answer
    }
}

impl Drop for PostgresStore {
    /// Lets the writer finish what it was given.
    fn drop(&mut self) {
        self.inbox = None;
        let Some(writer) = self.writer.take() else { return };
        // Both need the runtime: this thread is not to keep it.
        tokio::task::block_in_place(|| {
            if writer.join().is_err() {
                tracing::error!("the writer thread panicked");
            }
            // Where that fails, the others find out by themselves.
            let leave = async { tokio::time::timeout(CONNECT_TIMEOUT, self.nodes.leave(&self.pool)).await };
            let _gone = self.runtime.block_on(leave);
        });
    }
}
