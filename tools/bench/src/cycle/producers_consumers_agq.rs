//! agq with eight producers and eight consumers, each with a connection. All clients run in one
//! thread, as the clients of the peers run in one process of Node.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{
    agenix::{completion, submission},
    agq::AgqServer,
    payloads::Payloads,
    wire::BufferedConnection,
};
use crate::measure::per_second;

const PAIRS: usize = 8;
const MAX_OUTSTANDING: usize = 64;
const INPUT_BYTES: usize = 100;
/// Seconds for which a claim waits. After this time a consumer checks whether the round is over.
const CLAIM_SECS: &str = "0.2";

/// Connections of all producers and consumers, and their nodes.
pub(super) struct ProducersConsumers {
    // The connections are dropped first.
    connections: Vec<QueueConnection>,
    _nodes: Vec<AgqServer>,
    payloads: Arc<Payloads>,
}

impl ProducersConsumers {
    /// Connects producers and consumers to the nodes in turn.
    pub(super) fn at(nodes: Vec<AgqServer>) -> anyhow::Result<Self> {
        let node = |number: usize| &nodes[number % nodes.len()];
        let producers =
            (0..PAIRS).map(|number| Ok(QueueConnection::new(QueueRole::Producer, node(number).connect()?)));
        let consumers = (0..PAIRS).map(|number| {
            Ok(QueueConnection::new(QueueRole::Consumer, node(number).connect_worker(number)?))
        });
        let connections = producers.chain(consumers).collect::<io::Result<_>>()?;
        Ok(Self { connections, _nodes: nodes, payloads: Payloads::new(INPUT_BYTES) })
    }

    /// Submits jobs for `span`, and returns jobs per second until the last one has completed.
    pub(super) fn jobs_per_sec(&mut self, span: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let mut progress = QueueProgress { until: started + span, submitted: 0, done: 0, last_end: started };
        loop {
            for connection in self.connections.iter_mut().filter(|connection| !connection.is_awaited) {
                connection.begin(&mut progress, &self.payloads)?;
            }
            if !self.connections.iter().any(|connection| connection.is_awaited) {
                return Ok(per_second(progress.done, progress.last_end - started));
            }
            for number in answered(&self.connections)? {
                self.connections[number].take(&mut progress, &self.payloads)?;
            }
        }
    }
}

/// Waits for answers, and returns the numbers of the connections that have one.
fn answered(connections: &[QueueConnection]) -> io::Result<Vec<usize>> {
    let awaited: Vec<_> = (0..connections.len()).filter(|&number| connections[number].is_awaited).collect();
    let mut polled: Vec<_> =
        awaited.iter().map(|&number| PollFd::new(&connections[number].wire, PollFlags::IN)).collect();
    poll(&mut polled, None)?;
    let is_ready = polled.iter().map(|polled| !polled.revents().is_empty());
    Ok(awaited.iter().zip(is_ready).filter_map(|(&number, is_ready)| is_ready.then_some(number)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum QueueRole {
    Producer,
    Consumer,
}

/// A connection of a producer or a consumer.
struct QueueConnection {
    role: QueueRole,
    wire: BufferedConnection,
    /// True if an answer is outstanding.
    is_awaited: bool,
    /// Id and report of the job that is reported together with the next claim.
    job_id: String,
    json: String,
}

impl QueueConnection {
    fn new(role: QueueRole, wire: BufferedConnection) -> Self {
        Self { role, wire, is_awaited: false, job_id: String::new(), json: String::new() }
    }

    /// Sends the next command, if there is one.
    fn begin(&mut self, progress: &mut QueueProgress, payloads: &Payloads) -> io::Result<()> {
        match self.role {
            QueueRole::Producer if progress.has_room() => {
                progress.submitted += 1;
                submission(&mut self.json, payloads.input(progress.submitted));
                self.wire.write_command(&["ACTION.SUBMIT", &self.json])?;
            }
            // The next claim is sent with the report, so that one sync covers both. The claim does
            // not wait.
            QueueRole::Consumer if !self.job_id.is_empty() => {
                self.wire.write_command(&["JOB.UPDATE", &self.job_id, &self.json])?;
                self.wire.write_command(&["RPOP", "queue:ready"])?;
            }
            QueueRole::Consumer if !progress.is_over() => {
                self.wire.write_command(&["BRPOP", "queue:ready", CLAIM_SECS])?;
            }
            _ => return Ok(()),
        }
        self.is_awaited = true;
        self.wire.send()
    }

    /// Reads the answer to the last command.
    fn take(&mut self, progress: &mut QueueProgress, payloads: &Payloads) -> io::Result<()> {
        self.is_awaited = false;
        if self.role == QueueRole::Producer {
            return self.wire.read_ok();
        }
        if !self.job_id.is_empty() {
            self.wire.read_ok()?;
            self.job_id.clear();
            progress.done += 1;
            progress.last_end = Instant::now();
        }
        match self.wire.bulk()? {
            Some(job) => completion(&mut self.job_id, &mut self.json, job, payloads.result(progress.done)),
            None => Ok(()),
        }
    }
}

/// Number of submitted and of completed jobs.
struct QueueProgress {
    until: Instant,
    submitted: usize,
    done: usize,
    last_end: Instant,
}

impl QueueProgress {
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Returns true if another job may be submitted.
    fn has_room(&self) -> bool {
        self.submitted - self.done < MAX_OUTSTANDING && self.has_time()
    }

    fn is_over(&self) -> bool {
        self.submitted == self.done && !self.has_time()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MAX_OUTSTANDING, QueueProgress};

    #[test]
    fn round_is_over_when_all_submitted_jobs_have_completed() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let progress = |until, submitted| QueueProgress { until, submitted, done: 1, last_end: now };
        let of = |progress: QueueProgress| (progress.has_room(), progress.is_over());
        assert_eq!(of(progress(later, 1)), (true, false));
        assert_eq!(of(progress(later, MAX_OUTSTANDING)), (true, false));
        assert_eq!(of(progress(later, MAX_OUTSTANDING + 1)), (false, false));
        assert_eq!(of(progress(now, 2)), (false, false));
        assert_eq!(of(progress(now, 1)), (false, true));
    }
}
