//! One process of agq without its network layer, from its start on the bytes of a disk to its end.
//! The process has one thread.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use agenix_protocol::request::{Command, Request};
use bytes::Bytes;
use futures_executor::{LocalPool, LocalSpawner};
use futures_util::{
    FutureExt,
    future::{AbortHandle, BoxFuture, abortable},
    task::LocalSpawnExt,
};
use redb::StorageBackend;
use tokio::sync::mpsc;

use super::{blob_disk::BlobDisk, disk::Disk, time::SimulatedTime};
use crate::{
    app::{AppState, Caller, PlanPolicy},
    auth::audit_log::AuditLog,
    blobs::BlobStorage,
    clock::{Clock, TimeSource},
    registry::pubsub::{QueuedMessage, SubscriptionKind},
    resp::dispatch,
    resp::outcome::CommandOutcome,
    settings::ServiceSettings,
    startup::services,
    store::{
        Store, StoreAdmin, StoreFuture,
        redb::{RedbStore, Writer},
    },
};

/// Number of the connection that subscribes to events of jobs. The connection sends no commands.
const LISTENER: u64 = 0;

pub(super) struct SimulatedProcess {
    pub(super) app: Arc<AppState>,
    pub(super) store: Arc<RedbStore>,
    writer: Writer,
    pool: LocalPool,
    spawner: LocalSpawner,
    messages: mpsc::Receiver<QueuedMessage>,
    replies: Rc<RefCell<Vec<(u64, CommandOutcome)>>>,
    failure: BoxFuture<'static, String>,
}

impl SimulatedProcess {
    /// Starts agq. The error is the message with which agq would exit.
    pub(super) fn begin(
        disk: &Disk,
        blobs: &BlobDisk,
        time: &SimulatedTime,
        settings: &ServiceSettings,
    ) -> Result<Self, String> {
        let [database, journal] = disk.open();
        Self::begin_on(database, journal, Some(Arc::new(blobs.clone())), time, settings)
    }

    pub(super) fn begin_on(
        database: impl StorageBackend,
        journal: impl StorageBackend,
        blobs: Option<Arc<dyn BlobStorage>>,
        time: &SimulatedTime,
        settings: &ServiceSettings,
    ) -> Result<Self, String> {
        let shown = |error: anyhow::Error| format!("{error:#}");
        let id = u64::try_from(time.random() >> 64).unwrap_or_default();
        let (store, mut writer) = RedbStore::by_hand(database, journal, id).map_err(shown)?;
        let store = Arc::new(store);
        let failure = store.failure();
        let (mut pool, clock) = (LocalPool::new(), Clock::of(Arc::new(time.clone())));
        let audit = AuditLog::open(None).map_err(shown)?;
        let of_store = Arc::clone(&store) as Arc<dyn Store>;
        let (app, works) =
            services::build(of_store, blobs, None, clock, audit, PlanPolicy::default(), settings.clone());
        start_over(&mut pool, &mut writer, &app)?;
        let messages = app.pubsub.join(LISTENER, Arc::default());
        app.pubsub.subscribe(LISTENER, SubscriptionKind::Pattern, &Bytes::from_static(b"job:*"));
        app.pubsub.update_interest(|has_subscribers| store.notifier().set_subscribers(has_subscribers));
        let spawner = pool.spawner();
        for work in works {
            spawner.spawn_local(work).expect("the pool is there as long as its process");
        }
        Ok(Self { app, store, writer, pool, spawner, messages, replies: Rc::default(), failure })
    }

    /// Sends a command. The place of the writes of the command in the order of all writes is fixed
    /// when the call returns.
    pub(super) fn give(
        &mut self,
        number: u64,
        caller: Arc<Caller>,
        words: &[Bytes],
    ) -> Result<AbortHandle, String> {
        let (command, request): (&'static Command, Request) =
            Request::parse(words).map_err(|error| error.line())?;
        let run = dispatch::run(Arc::clone(&self.app), caller, command, request);
        Ok(self.spawn(number, run))
    }

    /// Runs a future whose outcome is a reply.
    pub(super) fn spawn(
        &mut self,
        number: u64,
        work: impl Future<Output = CommandOutcome> + 'static,
    ) -> AbortHandle {
        let (work, abort) = abortable(work);
        let replies = Rc::clone(&self.replies);
        let told = work.map(move |done| replies.borrow_mut().extend(done.ok().map(|done| (number, done))));
        self.spawner.spawn_local(told).expect("the pool is there as long as its process");
        self.rest();
        abort
    }

    /// Runs all tasks until they wait for the writer, for time or for a client.
    pub(super) fn rest(&mut self) {
        self.pool.run_until_stalled();
    }

    /// Writes one batch of at most `most` writes. Returns false if there was nothing to write.
    pub(super) fn write(&mut self, most: usize) -> bool {
        self.writer.step(most)
    }

    /// Returns the replies since the last call.
    pub(super) fn replies(&mut self) -> Vec<(u64, CommandOutcome)> {
        self.replies.take()
    }

    /// Returns the events of jobs since the last call, as JSON.
    pub(super) fn events(&mut self) -> Vec<Bytes> {
        std::iter::from_fn(|| Some(self.messages.try_recv().ok()?.message.payload)).collect()
    }

    /// Returns the reason for which agq cannot continue, if there is one.
    pub(super) fn failure(&mut self) -> Option<String> {
        (&mut self.failure).now_or_never()
    }
}

fn start_over(pool: &mut LocalPool, writer: &mut Writer, app: &Arc<AppState>) -> Result<(), String> {
    let outcome = Rc::new(RefCell::new(None));
    let (told, own) = (Rc::clone(&outcome), Arc::clone(app));
    let work =
        async move { *told.borrow_mut() = Some(crate::service::workers::recover_after_restart(&own).await) };
    pool.spawner().spawn_local(work).expect("the pool is there as long as its process");
    loop {
        pool.run_until_stalled();
        if let Some(outcome) = outcome.take() {
            return outcome.map_err(|error| error.to_string());
        }
        if !writer.step(usize::MAX) {
            return Err("agq waits for nobody at its start".into());
        }
    }
}

/// Returns the result of a read, which must be ready without waiting.
pub(super) fn now<T>(answer: StoreFuture<T>) -> Result<T, String> {
    let answered = answer.now_or_never().ok_or("a read did not answer at once")?;
    answered.map_err(|error| error.to_string())
}
