//! Writer: one thread with one connection, which commits all waiting writes in one transaction
//! (group commit). Writes of one kind share a statement, so that a batch costs one round trip for
//! each kind and one commit.

pub(crate) mod failure;
pub(crate) mod grouped_writes;
pub(crate) mod late_writes;
pub(crate) mod lock_order;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod shards;
pub(crate) mod subject;
pub(crate) mod table_growth;

use std::{
    mem::take,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use agenix_protocol::ids::ActionId;
use sqlx::Result;
use tokio::{runtime::Handle, sync::mpsc};
use tracing::{debug, warn};

use crate::store::{
    AckLevel, BatchEvents, ChangeEvent, ChangeNotifier,
    postgres::{
        cluster::{BusMessage, Nodes},
        connection::{ConnectOptions, DatabaseSession, Pool, is_disconnect, is_read_only, within},
        lane_cache::LaneCache,
        queries,
        ready_positions::{ReadyNotices, ReadyPositions},
        txn::{PgTxn, opening::OpeningReads},
        writer::{
            failure::{FailurePhase, TxnFailure, is_locked, is_retryable},
            grouped_writes::{add, claim, complete_claims, decide, opening},
            late_writes::{Late, LateWrite},
            pace::Pace,
            queue::{PgQueue, PgWrite, WriteKind},
            shards::Shards,
            table_growth::Growth,
        },
    },
};

const MAX_WRITES: usize = 1024;
/// Maximum number of bytes of the writes of a transaction, unless a single write has more. A
/// message to the database holds at most 1 GB, and each batch is in memory several times.
const MAX_BYTES: usize = 8 << 20;
/// Maximum time, in milliseconds, of the wait for a lock, because the whole batch waits.
const LOCK_TIMEOUT_MS: &str = "500";
/// Delay before claimants claim again if another node held a limit that they needed.
const CLAIM_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Maximum time for which late writes are tried at a time.
const LATE_ROUND: Duration = Duration::from_millis(50);
/// Maximum number of attempts at a transaction that conflicts with others.
const MAX_ATTEMPTS: u32 = 10;
/// Advisory lock that a transaction on users' keys holds until its commit, because a command reads
/// before it writes, and an absent row cannot be locked.
pub(super) const KEYS_LOCK: i64 = 0x0061_6771_5f6b_6579;

/// Writer of a node.
///
/// `work` takes writes from the queue, and `attempt` commits them in one transaction, which it
/// retries after a conflict or a lost connection. If a batch fails, `write` halves it until the
/// failing write is alone. A write that meets a lock of another session becomes a late write, which
/// other writes do not wait for.
pub(super) struct PgWriter {
    pub(super) access: ConnectOptions,
    pub(super) pool: Pool,
    pub(super) runtime: Handle,
    pub(super) queue: Arc<PgQueue>,
    pub(super) notifier: Arc<ChangeNotifier>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) notices: mpsc::Sender<BusMessage>,
    pub(super) shards: Shards,
    pub(super) lanes: LaneCache,
    pub(super) ready_notices: Arc<ReadyNotices>,
    /// Session, as long as its connection works.
    pub(super) session: Option<DatabaseSession>,
    pub(super) answer_timeout: Duration,
    pub(super) late: Late,
    pub(super) growth: Growth,
}

/// Effects of a transaction besides the outcomes of its writes.
struct TxnEffects {
    arrived: BatchEvents,
    events: Vec<BusMessage>,
    /// Ready jobs for the claims of other nodes.
    ready: ReadyPositions,
    /// True if other nodes passed over ready jobs that no claimant of this node got.
    has_left: bool,
    /// True if this node passed over jobs whose limits or budgets another node held.
    has_passed_over: bool,
    grown_by: usize,
}

/// Time for which a transaction waits for locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockWait {
    Long,
    /// Short wait, because an earlier attempt has waited before.
    Short,
}

impl PgWriter {
    /// Commits writes until the queue is closed and empty.
    pub(super) fn work(mut self) {
        let queue = Arc::clone(&self.queue);
        let mut pace = Pace::default();
        while let Some(writes) = queue.take(MAX_WRITES, MAX_BYTES, self.late.pause(), &mut pace) {
            let writes = self.late.divert(writes);
            self.write(writes, LockWait::Long);
            pace.end_batch();
            self.write_late();
        }
        self.late.give_up();
        self.session = None;
    }

    fn write(&mut self, mut writes: Vec<PgWrite>, wait: LockWait) {
        if writes.is_empty() {
            return;
        }
        match self.attempt(&mut writes, wait) {
            Ok(effects) => self.answer(effects, writes),
            // Each half would wait as long for the lock on all keys.
            Err(failure) if failure.is_late_opening() && writes.iter().any(PgWrite::is_on_keys) => {
                self.refuse(writes, &failure);
            }
            // One of the writes fails, and the others must not fail with it.
            Err(TxnFailure { error, .. }) if writes.len() > 1 && !is_disconnect(&error) => {
                debug!(%error, count = writes.len(), "the batch failed, and is retried in two halves");
                let rest = writes.split_off(writes.len() / 2);
                let wait = if is_locked(&error) { LockWait::Short } else { wait };
                for part in [writes, rest] {
                    let part = self.late.divert(part);
                    self.write(part, wait);
                }
            }
            Err(failure) if is_locked(&failure.error) => {
                self.late.put(writes);
            }
            Err(failure) => self.refuse(writes, &failure),
        }
    }

    /// Retries late writes, one after the other.
    fn write_late(&mut self) {
        let begun = Instant::now();
        for late in self.late.due() {
            if self.late.is_after_another(&late.subjects) || begun.elapsed() > LATE_ROUND {
                self.late.put_back(late);
                continue;
            }
            let LateWrite { write, subjects, since } = late;
            let mut writes = vec![write];
            match self.attempt(&mut writes, LockWait::Short) {
                Ok(effects) => self.answer(effects, writes),
                Err(failure) if is_locked(&failure.error) && since.elapsed() < self.answer_timeout => {
                    if let Some(write) = writes.pop() {
                        self.late.put_back(LateWrite { write, subjects, since });
                    }
                }
                Err(failure) => self.refuse(writes, &failure),
            }
        }
    }

    fn answer(&mut self, effects: TxnEffects, writes: Vec<PgWrite>) {
        if self.nodes.has_peers() && (effects.arrived.jobs || effects.has_left) {
            self.send_notice(BusMessage::Jobs(effects.ready));
        }
        self.notify_peers(&effects.arrived, effects.events);
        self.notifier.announce(effects.arrived);
        writes.into_iter().for_each(|write| write.answer(Ok(())));
        self.growth.note(effects.grown_by, &self.runtime, &self.pool);
        if effects.has_passed_over {
            self.wake_waiters(ReadyPositions::default());
        }
    }

    /// Wakes the waiters for jobs after a short while, so that the waiters check the lanes with
    /// ready jobs and the lanes in `ready` again. If `ready` is any job, wakes the waiters for
    /// lists, too.
    fn wake_waiters(&self, ready: ReadyPositions) {
        let (notifier, ready_notices) = (Arc::clone(&self.notifier), Arc::clone(&self.ready_notices));
        self.runtime.spawn(async move {
            tokio::time::sleep(CLAIM_RETRY_DELAY).await;
            let is_any = ready.any;
            ready_notices.add(ready);
            if is_any { notifier.announce_all() } else { notifier.announce_jobs() }
        });
    }

    fn refuse(&self, writes: Vec<PgWrite>, failure: &TxnFailure) {
        let error = failure.to_store_error();
        if is_disconnect(&failure.error) {
            warn!(count = writes.len(), "writes are refused: {error}");
        }
        if matches!(failure.stage, FailurePhase::Commit | FailurePhase::Panic) {
            // After a lost commit the writes may have been made, and a client that repeats them
            // changes nothing. After a panic the database takes a moment to end the abandoned
            // session, whose locks claimants have passed over meanwhile.
            self.wake_waiters(ReadyPositions::any());
        }
        writes.into_iter().for_each(|write| write.answer(Err(error.clone())));
    }

    /// Notifies other nodes and other programs. A lost notification only delays waiters until they
    /// poll.
    fn notify_peers(&self, arrived: &BatchEvents, events: Vec<BusMessage>) {
        if self.nodes.has_peers() {
            arrived.lists.iter().for_each(|key| self.send_notice(BusMessage::List(key.clone())));
        }
        events.into_iter().for_each(|event| self.send_notice(event));
    }

    fn send_notice(&self, notice: BusMessage) {
        let _full = self.notices.try_send(notice);
    }

    /// Commits `writes` in one transaction. Retries conflicts, and a kept connection that failed.
    fn attempt(&mut self, writes: &mut [PgWrite], wait: LockWait) -> Result<TxnEffects, TxnFailure> {
        let mut attempts = 1;
        loop {
            let (session, is_kept) = match self.session.take() {
                Some(session) => (session, true),
                None => (self.connect().map_err(TxnFailure::before)?, false),
            };
            // A rule that panics must end neither the thread nor the writes of others.
            let transact = || self.transact(&session, writes, wait);
            let done = catch_unwind(AssertUnwindSafe(transact));
            match done.unwrap_or_else(|_panic| Err(TxnFailure::panic())) {
                Ok(effects) => {
                    self.session = Some(session);
                    return Ok(effects);
                }
                Err(failure) => {
                    self.pool.note(&failure.error);
                    // The lanes in the cache may have existed in this transaction only.
                    self.lanes.clear();
                    // A server that takes no writes has done nothing, and another server may be
                    // there by now.
                    let is_stale =
                        is_kept && (failure.stage == FailurePhase::Before || is_read_only(&failure.error));
                    // A connection whose rollback fails is not used again.
                    let is_usable = !is_disconnect(&failure.error) && failure.stage != FailurePhase::Panic;
                    if is_usable && session.script("ROLLBACK").is_ok() {
                        self.session = Some(session);
                    } else {
                        session.give_up();
                    }
                    self.notify_of_unlocked(writes);
                    if attempts == MAX_ATTEMPTS || !is_stale && !is_retryable(&failure.error) {
                        return Err(failure);
                    }
                    attempts += 1;
                }
            }
        }
    }

    /// Notifies other nodes after a rollback if the transaction may have locked ready jobs, which
    /// they have passed over.
    fn notify_of_unlocked(&self, writes: &[PgWrite]) {
        let has_claims = writes.iter().any(|write| matches!(write.work, WriteKind::Claim(..)));
        if has_claims && self.nodes.has_peers() {
            self.send_notice(BusMessage::Jobs(ReadyPositions::any()));
        }
    }

    fn connect(&self) -> Result<DatabaseSession> {
        // The writer repeats a few statements, and planning them each time takes longer than
        // running them.
        let connecting = self.access.connect_with(&[
            ("plan_cache_mode", "force_generic_plan"),
            // The writer looks all rows up by index, but a plan from the time when a table was
            // small would scan the table.
            ("enable_seqscan", "off"),
            // The planner expects few ready jobs of a lane behind a position, and would sort all of
            // them instead of reading the first ones in the order of the index.
            ("enable_bitmapscan", "off"),
            ("lock_timeout", LOCK_TIMEOUT_MS),
        ]);
        DatabaseSession::connect(connecting, self.answer_timeout)
    }

    fn transact(
        &mut self,
        session: &DatabaseSession,
        writes: &mut [PgWrite],
        wait: LockWait,
    ) -> Result<TxnEffects, TxnFailure> {
        let has_subscribers = self.has_subscribers();
        self.lanes.set_peers(self.nodes.has_peers());
        let opening =
            opening(session, &mut self.lanes, writes, begin(writes, wait)).map_err(TxnFailure::before)?;
        let reads = opening.send(session).map_err(TxnFailure::of_opening)?;
        let (mut effects, touched) = self.apply(session, writes, has_subscribers, reads)?;
        if has_subscribers {
            self.read_actions(touched, &mut effects.arrived);
        }
        Ok(effects)
    }

    fn has_subscribers(&self) -> bool {
        self.notifier.has_subscribers() || self.nodes.has_remote_subscribers()
    }

    /// Reads the changed actions for change events. Runs after the commit, because two nodes that
    /// end the last jobs of an action do not see each other's changes before.
    fn read_actions(&self, touched: Vec<ActionId>, arrived: &mut BatchEvents) {
        match self.runtime.block_on(within(self.answer_timeout, queries::these_actions(&self.pool, touched)))
        {
            Ok(found) => found
                .into_iter()
                .for_each(|(action, counts)| arrived.record(ChangeEvent::Action(Box::new(action), counts))),
            // The writes are committed even if the change events are incomplete.
            Err(error) => debug!(%error, "the changed actions could not be read for subscribers"),
        }
    }

    fn apply(
        &mut self,
        session: &DatabaseSession,
        writes: &mut [PgWrite],
        has_subscribers: bool,
        reads: OpeningReads,
    ) -> Result<(TxnEffects, Vec<ActionId>), TxnFailure> {
        let shard = self.shards.next(self.nodes.is_snapshot_old());
        let mut txn = PgTxn::open(session, &mut self.lanes, shard, has_subscribers, reads);
        txn.keep_checked_jobs()?;
        decide(&mut txn, writes)?;
        txn.lock_bounds(writes)?;
        add(&mut txn, writes)?;
        for write in &mut *writes {
            if let WriteKind::Other(other) = &mut write.work {
                // The write may read jobs.
                txn.write()?;
                other.work.apply(&mut txn)?;
            }
        }
        claim(&mut txn, writes)?;
        let texts = txn.commit().map_err(TxnFailure::of_commit)?;
        complete_claims(writes, texts);
        txn.add_own_ready();
        let effects = TxnEffects {
            arrived: take(&mut txn.arrived),
            events: take(&mut txn.events),
            ready: take(&mut txn.ready),
            has_left: txn.has_left,
            has_passed_over: txn.limits.has_passed_over()
                || txn.budgets.has_passed_over()
                || txn.quantities.has_passed_over,
            grown_by: txn.grown_by,
        };
        Ok((effects, take(&mut txn.touched)))
    }
}

/// Returns the statements that begin a transaction. The statements set the isolation level, so that
/// the default of the database or the user has no effect. A later statement sees the commits of
/// others, and locks protect rows that must not change.
fn begin(writes: &[PgWrite], wait: LockWait) -> &'static [&'static str] {
    const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const WAIT_LITTLE: &str = "SET LOCAL lock_timeout TO 10";
    const NO_SYNC: &str = "SET LOCAL synchronous_commit TO off";
    let is_durable = writes.iter().any(|write| write.level > AckLevel::Applied);
    if writes.iter().any(PgWrite::is_on_keys) {
        // One lock guards all keys, and a large command may hold that lock for long.
        return &[BEGIN, "SET LOCAL lock_timeout TO 0"];
    }
    match (is_durable, wait) {
        (true, LockWait::Long) => &[BEGIN],
        (false, LockWait::Long) => &[BEGIN, NO_SYNC],
        (true, LockWait::Short) => &[BEGIN, WAIT_LITTLE],
        (false, LockWait::Short) => &[BEGIN, WAIT_LITTLE, NO_SYNC],
    }
}
