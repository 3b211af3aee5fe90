//! agq with eight who submit and eight who work off.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;

use super::{
    agq::Agq,
    ours::{completion, submission},
    texts::Texts,
    wire::Wire,
};
use crate::bench::measure::per_second;

const PAIRS: usize = 8;
const MOST_OUTSTANDING: usize = 64;
const INPUT_BYTES: usize = 100;
/// How long a claim waits, in seconds: so often a consumer looks whether it is all over.
const CLAIM_SECS: &str = "0.2";

/// The connections of all of them, and their agq.
pub(super) struct Pairs {
    // The first to be dropped.
    producers: Vec<Wire>,
    consumers: Vec<Wire>,
    _nodes: Vec<Agq>,
    texts: Arc<Texts>,
}

impl Pairs {
    /// Each at the next of these nodes.
    pub(super) fn at(nodes: Vec<Agq>) -> anyhow::Result<Self> {
        let node = |number: usize| &nodes[number % nodes.len()];
        let producers = (0..PAIRS).map(|number| node(number).connect()).collect::<io::Result<_>>()?;
        let consumers =
            (0..PAIRS).map(|number| node(number).connect_worker(number)).collect::<io::Result<_>>()?;
        Ok(Self { producers, consumers, _nodes: nodes, texts: Texts::new(INPUT_BYTES) })
    }

    /// How many jobs a second are done where they are submitted for so long; the end is that of the last one.
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let run = Run { until: started + span, texts: &self.texts, tally: Tally::new(started) };
        let ends: Vec<_> = thread::scope(|scope| {
            let run = &run;
            let mut hands = Vec::new();
            for wire in &mut self.producers {
                hands.push(scope.spawn(move || run.guarded(|| run.produce(wire))));
            }
            for wire in &mut self.consumers {
                hands.push(scope.spawn(move || run.guarded(|| run.consume(wire))));
            }
            hands.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for end in ends {
            end.map_err(|_| anyhow!("a client's thread panicked"))??;
        }
        let counts = run.tally.counts();
        Ok(per_second(counts.done, counts.last_end - started))
    }
}

/// What they know of each other in one run.
struct Run<'a> {
    until: Instant,
    texts: &'a Texts,
    tally: Tally,
}

impl Run<'_> {
    /// Where one fails, the others do not wait for it.
    fn guarded(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let done = work();
        if done.is_err() {
            self.tally.change(|counts| counts.has_failed = true);
        }
        done
    }

    fn produce(&self, wire: &mut Wire) -> io::Result<()> {
        let mut json = String::new();
        while Instant::now() < self.until {
            let Some(number) = self.tally.begin() else { break };
            submission(&mut json, self.texts.input(number));
            wire.done(&["ACTION.SUBMIT", &json])?;
        }
        self.tally.change(|counts| counts.producers -= 1);
        Ok(())
    }

    fn consume(&self, wire: &mut Wire) -> io::Result<()> {
        let (mut job_id, mut json) = (String::new(), String::new());
        let (mut number, mut has_job) = (0, false);
        while has_job || !self.tally.is_over() {
            // The next claim goes with the report, and is on disk with it. Only who finds nothing waits.
            if has_job {
                wire.command(&["JOB.UPDATE", &job_id, &json])?;
                wire.command(&["RPOP", "queue:ready"])?;
            } else {
                wire.command(&["BRPOP", "queue:ready", CLAIM_SECS])?;
            }
            wire.send()?;
            if has_job {
                wire.is_done()?;
                self.tally.change(Counts::one_more_is_done);
            }
            let job = wire.bulk()?;
            has_job = job.is_some();
            if let Some(job) = job {
                completion(&mut job_id, &mut json, job, self.texts.result(number))?;
                number += 1;
            }
        }
        Ok(())
    }
}

/// What was begun and what was done, by all together.
struct Tally {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct Counts {
    producers: usize,
    submitted: usize,
    done: usize,
    last_end: Instant,
    has_failed: bool,
}

impl Counts {
    fn one_more_is_done(&mut self) {
        self.done += 1;
        self.last_end = Instant::now();
    }
}

impl Tally {
    fn new(started: Instant) -> Self {
        let counts = Counts { producers: PAIRS, submitted: 0, done: 0, last_end: started, has_failed: false };
        Self { counts: Mutex::new(counts), changed: Condvar::new() }
    }

    /// Waits until one more may be on its way, and counts it; nothing where somebody has failed.
    fn begin(&self) -> Option<usize> {
        let is_full =
            |counts: &mut Counts| counts.submitted - counts.done >= MOST_OUTSTANDING && !counts.has_failed;
        let waited = self.changed.wait_while(self.lock(), is_full);
        let mut counts = waited.unwrap_or_else(PoisonError::into_inner);
        counts.submitted += 1;
        (!counts.has_failed).then_some(counts.submitted)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.lock();
        change(&mut counts);
        // One that is done makes room for one: all who submit need not wake for that. With each of them awake for each end, an agq did a
        // fifth fewer jobs.
        if counts.has_failed {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    fn is_over(&self) -> bool {
        let counts = self.lock();
        counts.has_failed || (counts.producers == 0 && counts.submitted == counts.done)
    }

    fn counts(&self) -> Counts {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{MOST_OUTSTANDING, PAIRS, Tally};

    #[test]
    fn it_is_over_when_all_that_was_begun_is_done() {
        let tally = Tally::new(Instant::now());
        for number in 1..=MOST_OUTSTANDING {
            assert_eq!(tally.begin(), Some(number));
        }
        tally.change(|counts| counts.producers -= PAIRS);
        assert!(!tally.is_over());
        tally.change(|counts| counts.done = MOST_OUTSTANDING);
        assert!(tally.is_over());
        tally.change(|counts| counts.has_failed = true);
        assert_eq!(tally.begin(), None);
    }
}
