//! Producers of load, which submit actions, set values, and push list elements. The ledger gets
//! acknowledged writes only.

use std::{io, time::Duration};

use fastrand::Rng;
use serde_json::json;

use super::{
    Endpoints, PLAN,
    ledger::{ChaosLedger, KeyVersions, Kind},
    pause,
    resp::{Resp, RespReply, unexpected},
};

/// Greatest depth of a pipeline.
const MAX_PIPELINE: u64 = 16;
/// Number of versions after which a producer begins another key.
const VERSIONS: u64 = 500;
/// Greatest number of jobs of an action.
const MAX_JOBS: usize = 20;
/// Number of pending actions above which producers write keys only, so that workers keep up.
const MAX_PENDING_ACTIONS: usize = 40;
/// Greatest pause between two operations of a producer, in milliseconds.
const MAX_PAUSE_MS: u64 = 20;

pub(super) struct Producer<'a> {
    pub(super) name: String,
    pub(super) endpoints: &'a Endpoints,
    pub(super) ledger: &'a ChaosLedger,
    pub(super) rng: Rng,
    /// Number of keys and actions so far, for the names of the next.
    begun: u64,
    /// Action without an answer, which is submitted again.
    pending: Option<UnansweredSubmission>,
}

struct UnansweredSubmission {
    id: String,
    inputs: Vec<String>,
    document: String,
}

impl<'a> Producer<'a> {
    pub(super) fn new(name: String, endpoints: &'a Endpoints, ledger: &'a ChaosLedger, rng: Rng) -> Self {
        Self { name, endpoints, ledger, rng, begun: 0, pending: None }
    }

    /// Produces until the load ends, and connects again after each lost connection.
    pub(super) fn run(mut self) {
        while !self.ledger.is_over() {
            let connected = Resp::open(&self.endpoints.proxy, &self.endpoints.key);
            if connected.and_then(|mut resp| self.produce(&mut resp)).is_err() {
                self.ledger.note("connections that producers lost");
                pause(Duration::from_millis(50));
            }
        }
    }

    /// Produces over one connection, with new keys.
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
            pause(Duration::from_millis(self.rng.u64(..MAX_PAUSE_MS)));
        }
        self.ledger.content().streams.extend([values, list]);
        done
    }

    fn stream(&mut self, kind: Kind) -> KeyVersions {
        KeyVersions { key: format!("chaos:{}", self.next_name()), kind, acknowledged: 0, sent: 0 }
    }

    fn next_name(&mut self) -> String {
        self.begun += 1;
        format!("{}-{}", self.name, self.begun)
    }

    /// Sends some versions in a pipeline, and reads their replies up to the first failure.
    fn extend(&mut self, resp: &mut Resp, stream: &mut KeyVersions) -> io::Result<()> {
        let (verb, kind) = match stream.kind {
            Kind::Value => ("SET", "values set"),
            Kind::List => ("RPUSH", "elements pushed"),
        };
        let first = stream.sent + 1;
        stream.sent += self.rng.u64(1..=MAX_PIPELINE);
        for version in first..=stream.sent {
            resp.send(&[verb, &stream.key, &version.to_string()])?;
        }
        for version in first..=stream.sent {
            match (stream.kind, resp.receive()?) {
                (Kind::Value, RespReply::Line(_ok)) => {}
                (Kind::List, RespReply::Integer(length)) if length == version => {}
                (Kind::List, RespReply::Integer(length)) => {
                    let key = &stream.key;
                    self.ledger
                        .lost(format!("{key} had {length} elements when it should have had {version}"));
                }
                (_, refused) => return Err(self.refused(&refused)),
            }
            stream.acknowledged = version;
            self.ledger.acknowledged(kind, 1);
        }
        Ok(())
    }

    /// Submits an action, or again the one whose answer was lost.
    fn submit(&mut self, resp: &mut Resp) -> io::Result<()> {
        if self.pending.is_none() && self.ledger.pending_actions().len() > MAX_PENDING_ACTIONS {
            return Ok(());
        }
        let submission = self.pending.take().unwrap_or_else(|| self.submission());
        let reply = resp.ask(&["ACTION.SUBMIT", &submission.document]);
        let UnansweredSubmission { id, inputs, .. } = &submission;
        let expected = format!("OK action_id={id} jobs_created={}", inputs.len());
        match reply {
            Ok(RespReply::Line(line)) if line == expected => {
                self.ledger.action(id, inputs.clone());
                return Ok(());
            }
            Ok(RespReply::Line(line)) => {
                self.ledger.lost(format!("action {id} was answered '{line}' instead of '{expected}'"));
                return Ok(());
            }
            Ok(RespReply::Error(error)) if error.contains("already exists") => {
                self.ledger.lost(format!("action {id} was submitted again and answered '{error}'"));
                return Ok(());
            }
            _ => self.pending = Some(submission),
        }
        reply.and_then(|other| Err(self.refused(&other)))
    }

    fn submission(&mut self) -> UnansweredSubmission {
        let id = self.next_name();
        let inputs: Vec<String> = (0..self.rng.usize(1..=MAX_JOBS)).map(|n| format!("{id}-{n}")).collect();
        let documents: Vec<_> = inputs.iter().map(|input| json!({"n": input})).collect();
        let priority = self.rng.i32(-2..=2);
        let document =
            json!({"action_id": id, "plan_id": PLAN, "inputs": documents, "priority": priority}).to_string();
        UnansweredSubmission { id, inputs, document }
    }

    fn refused(&self, reply: &RespReply) -> io::Error {
        self.ledger.note("commands that were refused");
        unexpected(reply)
    }
}
