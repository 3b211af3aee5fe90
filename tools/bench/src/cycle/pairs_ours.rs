//! agq with eight who submit and eight who work off, each with a connection, all of them in one thread, as those of the peers are in one
//! process of Node.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{
    agq::Agq,
    ours::{completion, submission},
    texts::Texts,
    wire::Wire,
};
use crate::measure::per_second;

const PAIRS: usize = 8;
const MOST_OUTSTANDING: usize = 64;
const INPUT_BYTES: usize = 100;
/// How long a claim waits, in seconds: so often a consumer looks whether it is all over.
const CLAIM_SECS: &str = "0.2";

/// The connections of all of them, and their agq.
pub(super) struct Pairs {
    // The first to be dropped.
    hands: Vec<Hand>,
    _nodes: Vec<Agq>,
    texts: Arc<Texts>,
}

impl Pairs {
    /// Each at the next of these nodes.
    pub(super) fn at(nodes: Vec<Agq>) -> anyhow::Result<Self> {
        let node = |number: usize| &nodes[number % nodes.len()];
        let producers = (0..PAIRS).map(|number| Ok(Hand::new(Role::Producer, node(number).connect()?)));
        let consumers =
            (0..PAIRS).map(|number| Ok(Hand::new(Role::Consumer, node(number).connect_worker(number)?)));
        let hands = producers.chain(consumers).collect::<io::Result<_>>()?;
        Ok(Self { hands, _nodes: nodes, texts: Texts::new(INPUT_BYTES) })
    }

    /// How many jobs a second are done where they are submitted for so long; the end is that of the last one.
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let mut tally = Tally { until: started + span, submitted: 0, done: 0, last_end: started };
        loop {
            for hand in self.hands.iter_mut().filter(|hand| !hand.is_awaited) {
                hand.begin(&mut tally, &self.texts)?;
            }
            if !self.hands.iter().any(|hand| hand.is_awaited) {
                return Ok(per_second(tally.done, tally.last_end - started));
            }
            for number in answered(&self.hands)? {
                self.hands[number].take(&mut tally, &self.texts)?;
            }
        }
    }
}

/// Waits until some of those who wait have an answer; which ones.
fn answered(hands: &[Hand]) -> io::Result<Vec<usize>> {
    let awaited: Vec<_> = (0..hands.len()).filter(|&number| hands[number].is_awaited).collect();
    let mut polled: Vec<_> =
        awaited.iter().map(|&number| PollFd::new(&hands[number].wire, PollFlags::IN)).collect();
    poll(&mut polled, None)?;
    let has_come = polled.iter().map(|polled| !polled.revents().is_empty());
    Ok(awaited.iter().zip(has_come).filter_map(|(&number, has_come)| has_come.then_some(number)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Producer,
    Consumer,
}

/// One who submits or works off.
struct Hand {
    role: Role,
    wire: Wire,
    /// Whether an answer is to come.
    is_awaited: bool,
    /// Of the job that is done, and is to be reported with the next claim.
    job_id: String,
    json: String,
}

impl Hand {
    fn new(role: Role, wire: Wire) -> Self {
        Self { role, wire, is_awaited: false, job_id: String::new(), json: String::new() }
    }

    /// Sends what is next, where there is something.
    fn begin(&mut self, tally: &mut Tally, texts: &Texts) -> io::Result<()> {
        match self.role {
            Role::Producer if tally.has_room() => {
                tally.submitted += 1;
                submission(&mut self.json, texts.input(tally.submitted));
                self.wire.command(&["ACTION.SUBMIT", &self.json])?;
            }
            // The next claim goes with the report, and is on disk with it. Only who finds nothing waits.
            Role::Consumer if !self.job_id.is_empty() => {
                self.wire.command(&["JOB.UPDATE", &self.job_id, &self.json])?;
                self.wire.command(&["RPOP", "queue:ready"])?;
            }
            Role::Consumer if !tally.is_over() => {
                self.wire.command(&["BRPOP", "queue:ready", CLAIM_SECS])?;
            }
            _ => return Ok(()),
        }
        self.is_awaited = true;
        self.wire.send()
    }

    /// Takes the answer to what was sent, which has come or is about to.
    fn take(&mut self, tally: &mut Tally, texts: &Texts) -> io::Result<()> {
        self.is_awaited = false;
        if self.role == Role::Producer {
            return self.wire.is_done();
        }
        if !self.job_id.is_empty() {
            self.wire.is_done()?;
            self.job_id.clear();
            tally.done += 1;
            tally.last_end = Instant::now();
        }
        match self.wire.bulk()? {
            Some(job) => completion(&mut self.job_id, &mut self.json, job, texts.result(tally.done)),
            None => Ok(()),
        }
    }
}

/// What was begun and what was done, by all together.
struct Tally {
    until: Instant,
    submitted: usize,
    done: usize,
    last_end: Instant,
}

impl Tally {
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Whether one more may be on its way.
    fn has_room(&self) -> bool {
        self.submitted - self.done < MOST_OUTSTANDING && self.has_time()
    }

    fn is_over(&self) -> bool {
        self.submitted == self.done && !self.has_time()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MOST_OUTSTANDING, Tally};

    #[test]
    fn it_is_over_when_all_that_was_begun_in_time_is_done() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let tally = |until, submitted| Tally { until, submitted, done: 1, last_end: now };
        let of = |tally: Tally| (tally.has_room(), tally.is_over());
        assert_eq!(of(tally(later, 1)), (true, false));
        assert_eq!(of(tally(later, MOST_OUTSTANDING)), (true, false));
        assert_eq!(of(tally(later, MOST_OUTSTANDING + 1)), (false, false));
        assert_eq!(of(tally(now, 2)), (false, false));
        assert_eq!(of(tally(now, 1)), (false, true));
    }
}
