//! World of one seed: disk, clock, process of agq, actors, and the ledger.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use agenix_protocol::{documents::Status, resp::Reply};
use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::AbortHandle;

use crate::{
    app::Caller,
    config,
    registry::budgets::BudgetTerms,
    settings::ServiceSettings,
    simulation::{
        actors::{Actor, CommittedBlob, close_connection},
        blob_disk::BlobDisk,
        budgets,
        claim_model::ClaimModel,
        disk::{Disk, DiskEvent},
        elements::Elements,
        expectations::Expectations,
        jobs_view::SentClaim,
        keys::KeyHistory,
        ledger::{CheckResult, Ledger, ObservedJob},
        limit_terms, log,
        metrics::SimulationMetrics,
        operations::{Operation, OperationLog},
        process::SimulatedProcess,
        share_terms,
        time::SimulatedTime,
    },
};

/// Number of requests whose replies are ignored.
pub(super) const IGNORED: u64 = 0;

/// Request in flight, with the data that is needed to interpret its reply.
#[derive(Debug, Clone)]
pub(super) enum PendingRequest {
    Plan(String),
    /// An acknowledgement means that `count` inputs of the action are stored.
    Inputs {
        action_id: String,
        count: usize,
    },
    Closed(String),
    Deleted(String),
    Forgotten(String),
    Cancel(String),
    Pause {
        queue: String,
        paused: bool,
    },
    Keys {
        version: u64,
        expected: Vec<Reply>,
    },
    /// Element that was pushed to the list on which actors wait.
    Pushed(String),
    Taken,
    Registered(usize),
    Claimed(SentClaim),
    Fetched,
    Reported {
        actor: usize,
        holder: String,
        job_id: String,
        end: Option<Status>,
        attempt: Option<u32>,
    },
    /// An acknowledgement means that the blob of an upload is stored.
    Committed(usize, CommittedBlob),
    Beat(usize),
    Left(usize),
    /// Command of the user about the worker of an actor.
    Told(usize),
    Anything,
}

pub(super) struct InFlightRequest {
    pub(super) asked: PendingRequest,
    pub(super) abort: AbortHandle,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) time: SimulatedTime,
    pub(super) disk: Disk,
    pub(super) blobs: BlobDisk,
    pub(super) settings: ServiceSettings,
    pub(super) process: Option<SimulatedProcess>,
    pub(super) ops: BTreeMap<u64, InFlightRequest>,
    next_number: u64,
    pub(super) actors: Vec<Actor>,
    pub(super) user: Arc<Caller>,
    /// Budgets of the keys.
    pub(super) budgets: BudgetTerms,
    pub(super) ledger: Ledger,
    pub(super) model: ClaimModel,
    pub(super) keys: KeyHistory,
    pub(super) elements: Elements,
    pub(super) fetched: Vec<String>,
    /// Set if no more faults happen.
    pub(super) is_calm: bool,
    /// Set if every actor sends heartbeats all the time.
    pub(super) is_regular: bool,
    pub(super) counts: SimulationMetrics,
    trace: DefaultHasher,
    /// Expectations before each batch, if the disk is recorded.
    promised: Option<Vec<Expectations>>,
    /// Log of the world, if it is wanted.
    pub(super) event_log: Option<Vec<String>>,
    pub(super) operations: Option<OperationLog>,
    pub(super) time_seed: u64,
}

impl World {
    pub(super) fn new(seed: u64, image: &[u8], with_event_log: bool) -> Result<Self, String> {
        let mut world = Self::before(seed, image, with_event_log)?;
        world.start()?;
        Ok(world)
    }

    /// Starts agq on the disk of another world, and checks that everything in `promised` exists.
    pub(super) fn on(seed: u64, image: &[u8], promised: &Expectations) -> Result<Self, String> {
        let mut world = Self::before(seed, image, false)?;
        world.blobs = promised.blobs.storage(&world.time);
        world.settings = promised.settings.clone();
        (world.ledger, world.keys) = (promised.ledger.clone(), promised.keys.clone());
        world.start()?;
        world.check_store()?;
        Ok(world)
    }

    fn before(seed: u64, image: &[u8], with_event_log: bool) -> Result<Self, String> {
        log::begin(seed);
        let mut rng = Rng::with_seed(seed);
        let mut settings = config::default_settings().map_err(|error| error.to_string())?;
        (settings.heartbeat_interval_ms, settings.heartbeat_factor) = (1000, 3);
        settings.start_timeout_ms = [2000, 2000, 10_000, 0][rng.usize(..4)];
        settings.job_timeout_ms = 20_000;
        settings.share_terms = share_terms::terms();
        let forgets = rng.u8(..4) == 0;
        (settings.keep_ended_ms, settings.keep_dead_ms) = if forgets { (3000, 6000) } else { (0, 0) };
        let time_seed = rng.u64(..);
        let (time, budgets) = (SimulatedTime::new(time_seed), budgets::terms(seed));
        let mut world = Self {
            blobs: BlobDisk::new(&time),
            time,
            time_seed,
            rng,
            disk: Disk::with(image),
            settings,
            process: None,
            ops: BTreeMap::new(),
            next_number: 1,
            actors: Vec::new(),
            user: budgets::user(!budgets.is_empty()),
            budgets,
            // One seed of eight has sandboxes, without a draw, so that other seeds stay the same.
            ledger: Ledger::new(forgets, seed % 8 == 1, limit_terms::has_limits(seed)),
            model: ClaimModel::default(),
            keys: KeyHistory::new(),
            elements: Elements::default(),
            fetched: Vec::new(),
            is_calm: false,
            is_regular: false,
            counts: SimulationMetrics::default(),
            trace: DefaultHasher::new(),
            promised: None,
            event_log: with_event_log.then(Vec::new),
            operations: None,
        };
        for name in [Some("w0"), Some("w1"), Some("w2"), None] {
            let number = world.number();
            world.actors.push(Actor::new(number, name));
        }
        Ok(world)
    }

    /// Returns a recorded world without faults, in which one operation follows the other.
    pub(super) fn orderly(seed: u64, image: &[u8], with_event_log: bool) -> Result<Self, String> {
        let mut world = Self::before(seed, image, with_event_log)?;
        world.is_calm = true;
        (world.budgets, world.user) = (BudgetTerms::default(), budgets::user(false));
        world.start()?;
        world.write_all()?;
        world.operations = Some(OperationLog::default());
        Ok(world)
    }

    /// Starts to record the changes of the disk. Returns the current file.
    pub(super) fn record(&mut self) -> Vec<u8> {
        self.promised = Some(Vec::new());
        self.disk.record()
    }

    /// Returns the changes of the disk, and the expectations at each mark.
    pub(super) fn recorded(&mut self) -> (Vec<DiskEvent>, Vec<Expectations>) {
        self.mark();
        (self.disk.recorded(), self.promised.take().unwrap_or_default())
    }

    fn mark(&mut self) {
        if let Some(promised) = &mut self.promised {
            self.disk.mark(promised.len());
            let (ledger, keys, settings) = (self.ledger.clone(), self.keys.clone(), self.settings.clone());
            promised.push(Expectations { ledger, keys, blobs: self.blobs.published(), settings });
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(event_log) = &mut self.event_log {
            event_log.push(line());
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Starts agq on the disk, and checks that all acknowledged data exists.
    ///
    /// If a fault prevents the start, the disk is repaired, and the start is repeated.
    pub(super) fn start(&mut self) -> CheckResult {
        // A restart forgets all uploads, so their files may be lost as after a power failure.
        self.blobs.lose_power(&mut self.rng);
        let process = loop {
            match SimulatedProcess::begin(&self.disk, &self.blobs, &self.time, &self.settings) {
                Ok(process) => break process,
                Err(message) => {
                    self.tell(|| format!("agq cannot start: {message}"));
                    self.time.forget_sleepers();
                    if !self.disk.is_faulty() {
                        return Err(format!("agq does not start: {message}"));
                    }
                    self.disk.repair();
                }
            }
        };
        self.blobs.repair();
        process.app.budgets.set(self.budgets.clone());
        self.process = Some(process);
        self.counts.restarts += 1;
        self.tell(|| "agq has started".into());
        let jobs = self.all_jobs()?;
        self.restart_model(&jobs);
        self.ledger.check_restart(&jobs)?;
        let found = self.found_keys()?;
        self.keys.resolve(&found)?;
        self.check_pauses()?;
        self.check_actions()?;
        self.run_until_idle()
    }

    /// Ends the process of agq, which closes all connections.
    pub(super) fn end_process(&mut self) {
        let pending = self.ops.values().filter(|op| matches!(op.asked, PendingRequest::Taken)).count();
        self.elements.in_doubt += pending + std::mem::take(&mut self.elements.gone_waiters);
        self.ops.clear();
        self.process = None;
        self.time.forget_sleepers();
        for at in 0..self.actors.len() {
            let number = self.number();
            let is_nobody = self.actors[at].worker_id.is_none();
            self.actors[at].connect(number);
            if is_nobody {
                // At its start agq releases the jobs of connections.
                self.actors[at].holds.clear();
            }
        }
    }

    pub(super) fn ask(
        &mut self,
        asked: PendingRequest,
        caller: &Arc<Caller>,
        words: &[String],
    ) -> Result<u64, String> {
        let number = self.number();
        self.tell(|| format!("{number}: {} asks {}", caller.connection, words.join(" ")));
        let spoken = words.to_vec();
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let process = self.process.as_mut().ok_or("nobody is asked while agq is dead")?;
        let abort = process.give(number, Arc::clone(caller), &words)?;
        self.counts.commands += 1;
        self.sent(number, InFlightRequest { asked, abort });
        self.note(|| Operation::Ask { number, caller: Arc::clone(caller), words: spoken });
        self.rest_between()?;
        Ok(number)
    }

    pub(super) fn pass(&mut self, ms: u64) -> CheckResult {
        self.time.pass(ms);
        self.note(|| Operation::Pass(ms));
        self.run_until_idle()?;
        self.rest_between()
    }

    /// Delivers replies and events until all tasks wait. Then restarts agq if it has failed.
    pub(super) fn run_until_idle(&mut self) -> CheckResult {
        loop {
            let Some(process) = &mut self.process else { return Ok(()) };
            process.rest();
            let (replies, events) = (process.replies(), process.events());
            if replies.is_empty() && events.is_empty() {
                break;
            }
            for event in events {
                let seen: ObservedJob =
                    serde_json::from_slice(&event).map_err(|error| format!("{event:?}: {error}"))?;
                self.trace_of(&event);
                self.tell(|| format!("   {} is {} ({})", seen.job_id, seen.state, seen.attempt));
                self.observe(&seen)?;
            }
            for (number, done) in replies {
                self.trace_of(&(number, format!("{:?}", done.reply)));
                self.note_reply(number, &done.reply);
                self.deliver(number, done)?;
            }
        }
        self.restart_if_failed()
    }

    fn restart_if_failed(&mut self) -> CheckResult {
        let Some(process) = &mut self.process else { return Ok(()) };
        let reason = process.failure();
        if let Some(reason) = &reason {
            self.tell(|| format!("agq cannot go on: {reason}"));
        }
        if reason.is_none() && !self.disk.is_dead() {
            return Ok(());
        }
        self.end_process();
        self.start()
    }

    /// Writes one batch, and checks the store. Returns false if there was nothing to write.
    pub(super) fn write(&mut self, most: usize) -> Result<bool, String> {
        self.mark();
        self.open_batch();
        let Some(process) = &mut self.process else { return Ok(false) };
        if !process.write(most) {
            self.model.batch = None;
            self.model.starts.nothing_is_in_flight();
            return Ok(false);
        }
        self.counts.writes += 1;
        self.run_until_idle()?;
        self.model.batch = None;
        self.check_store()?;
        Ok(true)
    }

    pub(super) fn write_all(&mut self) -> CheckResult {
        while self.write(64)? {}
        Ok(())
    }

    /// Closes an actor's connection: aborts its request, and lets agq handle the closing.
    pub(super) fn disconnect(&mut self, at: usize) {
        if let Some(op) = self.actors[at].waits.and_then(|number| self.ops.remove(&number)) {
            op.abort.abort();
        }
        if let Some(number) = self.actors[at].waits {
            self.note(|| Operation::GoAway(number));
        }
        let next = self.number();
        if let Some(process) = &mut self.process {
            process.rest();
            process.spawn(IGNORED, close_connection(&process.app, &self.actors[at]));
        }
        let gone = self.actors[at].clone();
        self.note(|| Operation::Close(Box::new(gone)));
        if self.actors[at].worker_id.is_none() {
            self.actors[at].holds.clear();
        }
        self.actors[at].connect(next);
    }

    /// Closes the connection of an actor as an operation of its own.
    pub(super) fn part(&mut self, at: usize) -> CheckResult {
        self.disconnect(at);
        self.rest_between()
    }

    fn trace_of(&mut self, value: &impl Hash) {
        value.hash(&mut self.trace);
    }
}
