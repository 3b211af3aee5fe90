//! The load: actions, values that grow, lists that grow. Only what was acknowledged comes into the ledger.

use std::{io, time::Duration};

use fastrand::Rng;
use serde_json::json;

use super::{
    PLAN, Place,
    ledger::{Kind, Ledger, Stream},
    pause,
    resp::{Reply, Resp, unexpected},
};

/// Most commands that are sent before their replies are taken.
const MOST_AT_ONCE: u64 = 16;
/// After so many versions the next key is begun.
const VERSIONS: u64 = 500;
/// Most jobs of an action.
const MOST_JOBS: usize = 20;
/// While more actions than this are unsettled, only keys are written: the workers have to keep up.
const MOST_UNSETTLED: usize = 40;
/// Longest time between two things that a producer does, in milliseconds.
const IDLE_MS: u64 = 20;

/// One producer.
pub(super) struct Producer<'a> {
    pub(super) name: String,
    pub(super) place: &'a Place,
    pub(super) ledger: &'a Ledger,
    pub(super) rng: Rng,
    /// How many keys and actions it has begun: the names of the next.
    begun: u64,
    /// An action whose answer has not come: it is submitted until it has.
    pending: Option<Submission>,
}

struct Submission {
    id: String,
    inputs: Vec<String>,
    document: String,
}

impl<'a> Producer<'a> {
    /// A producer that has done nothing yet.
    pub(super) fn new(name: String, place: &'a Place, ledger: &'a Ledger, rng: Rng) -> Self {
        Self { name, place, ledger, rng, begun: 0, pending: None }
    }

    /// Produces until the load ends, over as many connections as it takes.
    pub(super) fn run(mut self) {
        while !self.ledger.is_over() {
            let connected = Resp::open(&self.place.proxy, &self.place.key);
            if connected.and_then(|mut resp| self.produce(&mut resp)).is_err() {
                self.ledger.note("connections that producers lost");
                pause(Duration::from_millis(50));
            }
        }
    }

    /// Works over one connection, with keys of its own.
    fn produce(&mut self, resp: &mut Resp) -> io::Result<()> {
        let (mut values, mut list) = (self.stream(Kind::Value), self.stream(Kind::List));
        let mut done = Ok(());
        while done.is_ok() && !self.ledger.is_over() {
            done = match self.rng.u8(..10) {
                0..4 => self.extend(resp, &mut values),
                4..8 => self.extend(resp, &mut list),
                _ => self.submit(resp),
            };
            if values.sent >= VERSIONS || list.sent >= VERSIONS {
                break;
            }
            pause(Duration::from_millis(self.rng.u64(..IDLE_MS)));
        }
        self.ledger.book().streams.extend([values, list]);
        done
    }

    fn stream(&mut self, kind: Kind) -> Stream {
        Stream { key: format!("chaos:{}", self.next_name()), kind, acknowledged: 0, sent: 0 }
    }

    fn next_name(&mut self) -> String {
        self.begun += 1;
        format!("{}-{}", self.name, self.begun)
    }

    /// Sends some versions at once, and takes their replies until one of them is none.
    fn extend(&mut self, resp: &mut Resp, stream: &mut Stream) -> io::Result<()> {
        let (verb, what) = match stream.kind {
            Kind::Value => ("SET", "values set"),
            Kind::List => ("RPUSH", "elements pushed"),
        };
        let first = stream.sent + 1;
        stream.sent += self.rng.u64(1..=MOST_AT_ONCE);
        for version in first..=stream.sent {
            resp.send(&[verb, &stream.key, &version.to_string()])?;
        }
        for version in first..=stream.sent {
            match (stream.kind, resp.receive()?) {
                (Kind::Value, Reply::Line(_ok)) => {}
                (Kind::List, Reply::Integer(length)) if length == version => {}
                (Kind::List, Reply::Integer(length)) => {
                    let key = &stream.key;
                    self.ledger
                        .lost(format!("{key} had {length} elements when it should have had {version}"));
                }
                (_, refused) => return Err(self.refused(&refused)),
            }
            stream.acknowledged = version;
            self.ledger.acknowledged(what, 1);
        }
        Ok(())
    }

    /// Submits an action, or once more the one whose answer was lost.
    fn submit(&mut self, resp: &mut Resp) -> io::Result<()> {
        if self.pending.is_none() && self.ledger.unsettled().len() > MOST_UNSETTLED {
            return Ok(());
        }
        let submission = self.pending.take().unwrap_or_else(|| self.submission());
        let asked = resp.ask(&["ACTION.SUBMIT", &submission.document]);
        let Submission { id, inputs, .. } = &submission;
        let expected = format!("OK action_id={id} jobs_created={}", inputs.len());
        match asked {
            Ok(Reply::Line(line)) if line == expected => {
                self.ledger.action(id, inputs.clone());
                return Ok(());
            }
            Ok(Reply::Line(line)) => {
                self.ledger.lost(format!("action {id} was answered '{line}' instead of '{expected}'"));
                return Ok(());
            }
            Ok(Reply::Error(error)) if error.contains("already exists") => {
                self.ledger.lost(format!("action {id} was submitted again and answered '{error}'"));
                return Ok(());
            }
            _ => self.pending = Some(submission),
        }
        asked.and_then(|reply| Err(self.refused(&reply)))
    }

    fn submission(&mut self) -> Submission {
        let id = self.next_name();
        let inputs: Vec<String> = (0..self.rng.usize(1..=MOST_JOBS)).map(|n| format!("{id}-{n}")).collect();
        let documents: Vec<_> = inputs.iter().map(|input| json!({"n": input})).collect();
        let priority = self.rng.i32(-2..=2);
        let document =
            json!({"action_id": id, "plan_id": PLAN, "inputs": documents, "priority": priority}).to_string();
        Submission { id, inputs, document }
    }

    fn refused(&self, reply: &Reply) -> io::Error {
        self.ledger.note("commands that were refused");
        unexpected(reply)
    }
}
