//! The world of one seed: a disk, a clock, agq, everybody who plays with it, and the ledger that all of it is held against.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    settings::Settings,
    simulation::{
        actors::{Actor, close_connection},
        disk::{Disk, DiskEvent},
        keys::KeyHistory,
        ledger::{CheckResult, Ledger, ObservedJob},
        log,
        metrics::SimulationMetrics,
        operations::{Operation, OperationLog},
        process::SimulatedProcess,
        time::SimulatedTime,
    },
};

/// The number of those replies that nobody waits for.
pub(super) const NOBODY: u64 = 0;

/// What was asked, and what its answer means.
#[derive(Debug, Clone)]
pub(super) enum PendingRequest {
    Plan(String),
    /// So many inputs of an action are there when this is acknowledged.
    Inputs {
        action_id: String,
        count: usize,
    },
    Closed(String),
    Deleted(String),
    Cancel {
        job_id: String,
    },
    Pause {
        queue: String,
        paused: bool,
    },
    Keys {
        version: u64,
        expected: Vec<Reply>,
    },
    /// An element of the list that is waited for: pushed, or taken.
    Pushed(String),
    Taken,
    Registered {
        actor: usize,
    },
    Claimed {
        actor: usize,
    },
    Fetched,
    Reported {
        actor: usize,
        holder: String,
        job_id: String,
        end: Option<Status>,
        attempt: Option<u32>,
    },
    Beat {
        actor: usize,
    },
    Left {
        actor: usize,
    },
    Anything,
}

pub(super) struct InFlightRequest {
    pub(super) asked: PendingRequest,
    pub(super) abort: AbortHandle,
}

/// Elements that pass through a list on which others wait.
#[derive(Debug, Default)]
pub(super) struct Elements {
    pub(super) sent: BTreeSet<String>,
    pub(super) acknowledged: BTreeSet<String>,
    pub(super) taken: BTreeSet<String>,
    /// How many were under way to somebody who went away, or when agq died: as in Redis, those may be lost.
    pub(super) in_doubt: usize,
    /// How many left in this life of agq without an answer.
    pub(super) gone_waiters: usize,
}

/// What agq has promised so far, and what may be there besides.
#[derive(Debug, Clone)]
pub(super) struct Expectations {
    ledger: Ledger,
    keys: KeyHistory,
}

pub(super) struct World {
    /// Chance for the step that is under way.
    pub(super) rng: Rng,
    pub(super) time: SimulatedTime,
    pub(super) disk: Disk,
    pub(super) settings: Settings,
    pub(super) life: Option<SimulatedProcess>,
    pub(super) ops: BTreeMap<u64, InFlightRequest>,
    next_number: u64,
    pub(super) actors: Vec<Actor>,
    pub(super) people: Arc<Caller>,
    pub(super) ledger: Ledger,
    pub(super) keys: KeyHistory,
    pub(super) elements: Elements,
    pub(super) fetched: Vec<String>,
    /// Nothing goes wrong any more.
    pub(super) is_calm: bool,
    /// Everybody is heard of all the time.
    pub(super) is_regular: bool,
    pub(super) counts: SimulationMetrics,
    trace: DefaultHasher,
    /// What was promised before each batch, where somebody wants to start agq on what was there then.
    promised: Option<Vec<Expectations>>,
    /// What happened, line by line, where somebody wants to read it.
    pub(super) story: Option<Vec<String>>,
    /// What happened, where somebody wants to do it again.
    pub(super) moves: Option<OperationLog>,
    /// With which chance its time began.
    pub(super) time_seed: u64,
}

impl World {
    pub(super) fn new(seed: u64, image: &[u8], tells: bool) -> Result<Self, String> {
        let mut world = Self::before(seed, image, tells)?;
        world.start()?;
        Ok(world)
    }

    /// agq is started on what is left of another world's disk, and must keep what was promised there.
    pub(super) fn on(seed: u64, image: &[u8], promised: &Expectations) -> Result<Self, String> {
        let mut world = Self::before(seed, image, false)?;
        Expectations { ledger: world.ledger, keys: world.keys } = promised.clone();
        world.start()?;
        world.check_store()?;
        Ok(world)
    }

    fn before(seed: u64, image: &[u8], tells: bool) -> Result<Self, String> {
        log::begin(seed);
        let mut rng = Rng::with_seed(seed);
        let mut settings = config::default_settings().map_err(|error| error.to_string())?;
        (settings.heartbeat_interval_ms, settings.heartbeat_factor) = (1000, 3);
        settings.start_timeout_ms = [2000, 2000, 10_000, 0][rng.usize(..4)];
        settings.job_timeout_ms = 20_000;
        let forgets = rng.u8(..4) == 0;
        (settings.keep_ended_ms, settings.keep_dead_ms) = if forgets { (3000, 6000) } else { (0, 0) };
        let time_seed = rng.u64(..);
        let mut world = Self {
            time: SimulatedTime::new(time_seed),
            time_seed,
            rng,
            disk: Disk::with(image),
            settings,
            life: None,
            ops: BTreeMap::new(),
            next_number: 1,
            actors: Vec::new(),
            people: Actor::new(1, None).caller,
            ledger: Ledger::new(forgets),
            keys: KeyHistory::new(),
            elements: Elements::default(),
            fetched: Vec::new(),
            is_calm: false,
            is_regular: false,
            counts: SimulationMetrics::default(),
            trace: DefaultHasher::new(),
            promised: None,
            story: tells.then(Vec::new),
            moves: None,
        };
        for name in [Some("w0"), Some("w1"), Some("w2"), None] {
            let number = world.number();
            world.actors.push(Actor::new(number, name));
        }
        Ok(world)
    }

    /// A world in which nothing goes wrong, and one thing happens after the other: its moves are noted.
    pub(super) fn orderly(seed: u64, image: &[u8], tells: bool) -> Result<Self, String> {
        let mut world = Self::before(seed, image, tells)?;
        world.is_calm = true;
        world.start()?;
        world.write_all()?;
        world.moves = Some(OperationLog::default());
        Ok(world)
    }

    /// From now on, everything that is done to the disk is written down; the file as it is now.
    pub(super) fn record(&mut self) -> Vec<u8> {
        self.promised = Some(Vec::new());
        self.disk.record()
    }

    /// What was done to the disk, and what was promised at each mark.
    pub(super) fn recorded(&mut self) -> (Vec<DiskEvent>, Vec<Expectations>) {
        self.mark();
        (self.disk.recorded(), self.promised.take().unwrap_or_default())
    }

    fn mark(&mut self) {
        if let Some(promised) = &mut self.promised {
            self.disk.mark(promised.len());
            promised.push(Expectations { ledger: self.ledger.clone(), keys: self.keys.clone() });
        }
    }

    /// What happened so far, as a number: the same for the same seed.
    pub(super) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// Notes what happens.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Starts agq on what is on the disk, and looks whether it still knows what it promised. A start that a fault prevents
    /// is tried again, with one fault less.
    pub(super) fn start(&mut self) -> CheckResult {
        let life = loop {
            match SimulatedProcess::begin(&self.disk, &self.time, &self.settings) {
                Ok(life) => break life,
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
        self.life = Some(life);
        self.counts.restarts += 1;
        self.tell(|| "agq has started".into());
        let jobs = self.all_jobs()?;
        self.ledger.started_again(&jobs)?;
        let found = self.found_keys()?;
        self.keys.settle(&found)?;
        self.settle_pauses()?;
        self.check_actions()?;
        self.settle()
    }

    /// agq is dead, and with it every connection.
    pub(super) fn end_process(&mut self) {
        let pending = self.ops.values().filter(|op| matches!(op.asked, PendingRequest::Taken)).count();
        self.elements.in_doubt += pending + std::mem::take(&mut self.elements.gone_waiters);
        self.ops.clear();
        self.life = None;
        self.time.forget_sleepers();
        for at in 0..self.actors.len() {
            let number = self.number();
            let is_nobody = self.actors[at].worker_id.is_none();
            self.actors[at].connect(number);
            if is_nobody {
                // What a connection held goes back when agq starts.
                self.actors[at].holds.clear();
            }
        }
    }

    /// Somebody gives a command.
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
        let life = self.life.as_mut().ok_or("nobody is asked while agq is dead")?;
        let abort = life.give(number, Arc::clone(caller), &words)?;
        self.counts.commands += 1;
        self.ops.insert(number, InFlightRequest { asked, abort });
        self.note(|| Operation::Ask { number, caller: Arc::clone(caller), words: spoken });
        self.rest_between()?;
        Ok(number)
    }

    /// Time passes.
    pub(super) fn pass(&mut self, ms: u64) -> CheckResult {
        self.time.pass(ms);
        self.note(|| Operation::Pass { ms });
        self.settle()?;
        self.rest_between()
    }

    /// Someone outside goes on until nothing happens any more without the writer or time; then everything must be in order.
    pub(super) fn settle(&mut self) -> CheckResult {
        loop {
            let Some(life) = &mut self.life else { return Ok(()) };
            life.rest();
            let (replies, events) = (life.replies(), life.events());
            if replies.is_empty() && events.is_empty() {
                break;
            }
            for event in events {
                let seen: ObservedJob =
                    serde_json::from_slice(&event).map_err(|error| format!("{event:?}: {error}"))?;
                self.trace_of(&event);
                self.tell(|| format!("   {} is {} ({})", seen.job_id, seen.state, seen.attempt));
                self.ledger.heard(seen)?;
            }
            for (number, done) in replies {
                self.trace_of(&(number, format!("{:?}", done.reply)));
                self.note_reply(number, &done.reply);
                self.deliver(number, done)?;
            }
        }
        self.look_after_agq()
    }

    /// Whether agq lives; it is started again when it does not.
    fn look_after_agq(&mut self) -> CheckResult {
        let Some(life) = &mut self.life else { return Ok(()) };
        let reason = life.failure();
        if let Some(reason) = &reason {
            self.tell(|| format!("agq cannot go on: {reason}"));
        }
        if reason.is_none() && !self.disk.is_dead() {
            return Ok(());
        }
        self.end_process();
        self.start()
    }

    /// The writer writes, and everything that was written must be in order.
    pub(super) fn write(&mut self, most: usize) -> Result<bool, String> {
        self.mark();
        let Some(life) = &mut self.life else { return Ok(false) };
        if !life.write(most) {
            return Ok(false);
        }
        self.counts.writes += 1;
        self.settle()?;
        self.check_store()?;
        Ok(true)
    }

    /// Writes until nothing waits to be written.
    pub(super) fn write_all(&mut self) -> CheckResult {
        while self.write(64)? {}
        Ok(())
    }

    /// A connection breaks: what was under way on it is dropped, and agq clears up.
    pub(super) fn disconnect(&mut self, at: usize) {
        if let Some(op) = self.actors[at].waits.and_then(|number| self.ops.remove(&number)) {
            op.abort.abort();
        }
        if let Some(number) = self.actors[at].waits {
            self.note(|| Operation::GoAway { number });
        }
        let next = self.number();
        if let Some(life) = &mut self.life {
            life.rest();
            life.spawn(NOBODY, close_connection(&life.app, &self.actors[at]));
        }
        let gone = self.actors[at].clone();
        self.note(|| Operation::Close(Box::new(gone)));
        if self.actors[at].worker_id.is_none() {
            self.actors[at].holds.clear();
        }
        self.actors[at].connect(next);
    }

    /// A connection breaks, between two other things that happen.
    pub(super) fn part(&mut self, at: usize) -> CheckResult {
        self.disconnect(at);
        self.rest_between()
    }

    fn trace_of(&mut self, what: &impl Hash) {
        what.hash(&mut self.trace);
    }
}
