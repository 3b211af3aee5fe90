//! The writer: one thread, one connection, one transaction at a time with everything that waits. What is written together costs
//! one round to the database for each kind, and one commit.

use std::{mem::take, sync::Arc, time::Duration};

use agenix_protocol::ids::ActionId;
use sqlx::{Error, PgPool, query};
use tokio::{runtime::Handle, sync::mpsc};
use tracing::{debug, warn};

use super::{
    access::Access,
    batch::Batch,
    claims::Wanting,
    faults::{explained, is_away, is_read_only, said},
    inbox::{Adding, Claiming, Deciding, Queue, Work, Write},
    known::Known,
    nodes::Nodes,
    reads,
    relay::Notice,
    session::{Session, within},
};
use crate::store::{Arrivals, Arrived, NewAction, News, Promise, StoreError};

/// Most writes that share a transaction.
const MOST_TOGETHER: usize = 1024;
/// How often a transaction is tried that others were in the way of.
const MOST_TRIES: u32 = 10;
/// Whoever writes users' keys holds this advisory lock until it is committed: a command reads before it writes, and what is not
/// there yet has no row to lock.
pub(super) const KEYS_LOCK: i64 = 0x0061_6771_5f6b_6579;

/// Writes.
pub(super) struct Writer {
    pub(super) access: Access,
    pub(super) pool: PgPool,
    pub(super) runtime: Handle,
    pub(super) queue: Arc<Queue>,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) nodes: Arc<Nodes>,
    /// Where others are told what happens here.
    pub(super) notices: mpsc::Sender<Notice>,
    /// Which of the tallies and totals this node writes.
    pub(super) shard: i16,
    pub(super) known: Known,
    /// The connection, as long as it works.
    pub(super) session: Option<Session>,
    /// How long to wait for an answer.
    pub(super) patience: Duration,
}

/// What a transaction brought about, besides its outcomes.
struct Effects {
    arrived: Arrived,
    events: Vec<Notice>,
}

impl Writer {
    /// Writes until nothing comes any more.
    pub(super) fn work(mut self) {
        let queue = Arc::clone(&self.queue);
        while let Some(writes) = queue.take(MOST_TOGETHER) {
            self.write(writes);
        }
        self.session = None;
    }

    fn write(&mut self, mut writes: Vec<Write>) {
        match self.attempt(&mut writes) {
            Ok(effects) => {
                self.tell_others(&effects.arrived, effects.events);
                self.arrivals.announce(effects.arrived);
                writes.into_iter().for_each(|write| write.answer(Ok(())));
            }
            // One of them cannot be done: the others are not to suffer from it.
            Err(Failure { error, .. }) if writes.len() > 1 && !is_away(&error) => {
                debug!(%error, count = writes.len(), "these writes are done one by one");
                writes.into_iter().for_each(|write| self.write(vec![write]));
            }
            Err(failure) => {
                let fate = failure.explained();
                if is_away(&failure.error) {
                    warn!(count = writes.len(), "writes are refused: {fate}");
                }
                writes.into_iter().for_each(|write| write.answer(Err(fate.clone())));
            }
        }
    }

    /// Tells other nodes, and whoever else listens at the database. Who misses it looks by itself, sooner or later.
    fn tell_others(&self, arrived: &Arrived, events: Vec<Notice>) {
        let tell = |notice| drop(self.notices.try_send(notice));
        if self.nodes.has_company() {
            if arrived.jobs {
                tell(Notice::Jobs);
            }
            arrived.lists.iter().for_each(|key| tell(Notice::List(key.clone())));
        }
        events.into_iter().for_each(tell);
    }

    /// Does all of it in one transaction, again where others were in the way, and over another connection where that was broken
    /// before anything was begun.
    fn attempt(&mut self, writes: &mut [Write]) -> Result<Effects, Failure> {
        let mut tries = 1;
        loop {
            let (session, is_kept) = match self.session.take() {
                Some(session) => (session, true),
                None => (self.connect().map_err(Failure::before)?, false),
            };
            match self.transact(&session, writes) {
                Ok(effects) => {
                    self.session = Some(session);
                    return Ok(effects);
                }
                Err(failure) => {
                    // What was learned may have been of this transaction alone.
                    self.known = Known::default();
                    // A server that takes no writes has done nothing; another may be there by now.
                    let is_stale =
                        is_kept && (failure.stage == Stage::Before || is_read_only(&failure.error));
                    // A connection on which that fails is not used again.
                    if !is_away(&failure.error) && session.script("ROLLBACK").is_ok() {
                        self.session = Some(session);
                    } else {
                        session.give_up();
                    }
                    if tries == MOST_TRIES || !is_stale && !is_in_the_way(&failure.error) {
                        return Err(failure);
                    }
                    tries += 1;
                }
            }
        }
    }

    fn connect(&self) -> Result<Session, Error> {
        // The writer says the same few things again and again. To plan each anew takes longer than to do it.
        let connecting = self.access.connect_with(&[("plan_cache_mode", "force_generic_plan")]);
        Session::connect(connecting, self.patience)
    }

    fn transact(&mut self, session: &Session, writes: &mut [Write]) -> Result<Effects, Failure> {
        let is_promised = writes.iter().any(|write| write.promise > Promise::Visible);
        let begin = if is_promised { "BEGIN" } else { "BEGIN; SET LOCAL synchronous_commit TO off" };
        session.script(begin).map_err(Failure::before)?;
        let is_heard = self.is_heard();
        self.known.has_company = self.nodes.has_company();
        let (mut arrived, events, touched) = self.apply(session, writes, is_heard)?;
        session.script("COMMIT").map_err(|error| Failure { error, stage: Stage::Commit })?;
        if is_heard {
            self.read_actions(touched, &mut arrived);
        }
        Ok(Effects { arrived, events })
    }

    /// Whether anybody listens, here or at another node.
    fn is_heard(&self) -> bool {
        self.arrivals.is_heard() || self.nodes.is_heard_elsewhere()
    }

    /// How actions stand of which something changed. Only when it is committed: of two nodes that end the last jobs of an action,
    /// neither sees the other's before.
    fn read_actions(&self, touched: Vec<ActionId>, arrived: &mut Arrived) {
        match self.runtime.block_on(within(self.patience, reads::these_actions(&self.pool, touched))) {
            Ok(found) => found
                .into_iter()
                .for_each(|(action, tally)| arrived.tell(News::Action(Box::new(action), tally))),
            // It is committed, whatever can be told of it.
            Err(error) => debug!(%error, "how actions stand could not be read for those who listen"),
        }
    }

    fn apply(
        &mut self,
        session: &Session,
        writes: &mut [Write],
        is_heard: bool,
    ) -> Result<(Arrived, Vec<Notice>, Vec<ActionId>), Error> {
        let is_on_keys = |write: &Write| matches!(&write.work, Work::Other(other) if other.is_on_keys());
        if writes.iter().any(is_on_keys) {
            // Before everything else, so that nobody waits for it who is waited for.
            session.run(query("SELECT pg_advisory_xact_lock($1)").bind(KEYS_LOCK))?;
        }
        let mut batch = Batch::open(session, &mut self.known, self.shard, is_heard);
        decide(&mut batch, writes)?;
        add(&mut batch, writes)?;
        for write in &mut *writes {
            if let Work::Other(other) = &mut write.work {
                // It may look at jobs.
                batch.write()?;
                other.apply(&mut batch)?;
            }
        }
        claim(&mut batch, writes)?;
        batch.write()?;
        Ok((take(&mut batch.arrived), take(&mut batch.events), take(&mut batch.touched)))
    }
}

/// Where a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before anything was done.
    Before,
    /// On the way: nothing of it is left.
    During,
    /// While it was committed: it may have been done.
    Commit,
}

/// Why a transaction failed.
struct Failure {
    error: Error,
    stage: Stage,
}

impl Failure {
    fn before(error: Error) -> Self {
        Self { error, stage: Stage::Before }
    }

    /// For people.
    fn explained(&self) -> StoreError {
        let Self { error, stage } = self;
        if *stage == Stage::Commit && is_away(error) {
            let text = format!(
                "the database was lost while this was committed ({}): whether it was done is not known",
                said(error)
            );
            return StoreError(text);
        }
        explained(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, stage: Stage::During }
    }
}

fn decide(batch: &mut Batch<'_>, writes: &mut [Write]) -> Result<(), Error> {
    let (mut decisions, mut pendings) = (Vec::new(), Vec::new());
    for write in writes {
        if let Work::Decide(deciding) = &mut write.work {
            let Deciding { decision, pending } = &mut **deciding;
            decisions.push(&*decision);
            pendings.push(pending);
        }
    }
    if decisions.is_empty() {
        return Ok(());
    }
    for (pending, outcome) in pendings.into_iter().zip(batch.decide(&decisions)?) {
        pending.outcome = Some(outcome);
    }
    Ok(())
}

fn add(batch: &mut Batch<'_>, writes: &mut [Write]) -> Result<(), Error> {
    let (mut actions, mut pendings, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    for write in writes {
        if let Work::Add(adding) = &mut write.work {
            let Adding { new, pending } = &mut **adding;
            if is_checked(new) {
                checked.push((&*new, pending));
            } else {
                actions.push(&*new);
                pendings.push(pending);
            }
        }
    }
    if !actions.is_empty() {
        for (pending, outcome) in pendings.into_iter().zip(batch.add_actions(&actions)?) {
            pending.outcome = Some(outcome);
        }
    }
    for (new, pending) in checked {
        pending.outcome = Some(batch.add_checked(new)?);
    }
    Ok(())
}

/// Whether it depends on what is there whether all of its jobs may be added.
fn is_checked(new: &NewAction) -> bool {
    new.jobs
        .iter()
        .filter_map(|job| job.own.as_ref())
        .any(|own| own.is_named || own.unique.is_some() || own.plan_id != new.action.plan_id)
}

fn claim(batch: &mut Batch<'_>, writes: &mut [Write]) -> Result<(), Error> {
    let (mut all, mut pendings) = (Vec::new(), Vec::new());
    for write in writes {
        if let Work::Claim(claiming, pending) = &mut write.work {
            let Claiming { claimants, now, start_timeout_ms } = &*claiming;
            let (now, start_timeout_ms) = (*now, *start_timeout_ms);
            all.extend(claimants.iter().map(|claimant| Wanting { claimant, now, start_timeout_ms }));
            pendings.push((claimants.len(), pending));
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut claims = batch.claim(&all)?.into_iter();
    for (count, pending) in pendings {
        pending.outcome = Some(claims.by_ref().take(count).collect());
    }
    Ok(())
}

/// Whether the same may succeed when it is done again: a deadlock, or a row that was written meanwhile.
fn is_in_the_way(error: &Error) -> bool {
    let Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| code == "40P01" || code == "40001")
}
