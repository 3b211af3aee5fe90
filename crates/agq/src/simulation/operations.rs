//! Operations of a world without faults, as plain data. `differential` repeats them on another
//! store.

use std::sync::Arc;

use agenix_protocol::resp::Reply;

use super::actors::Actor;
use crate::app::Caller;

#[derive(Debug)]
pub(super) enum Operation {
    Ask {
        number: u64,
        caller: Arc<Caller>,
        words: Vec<String>,
    },
    Ojs {
        number: u64,
        operation: OjsOperation,
    },
    Transact {
        number: u64,
        commands: Vec<Vec<String>>,
    },
    GoAway(u64),
    Close(Box<Actor>),
    /// Time passed, in milliseconds.
    Pass(u64),
    /// All ended jobs were pruned. `notes` are the remaining documents of limits and unique kinds,
    /// and the remaining jobs are in `lanes` lanes.
    Forgotten {
        notes: Vec<Vec<(String, String)>>,
        lanes: usize,
    },
    /// Nothing was in progress. The replies are those since the previous `Rest`.
    Rest(Vec<(u64, Reply)>),
}

#[derive(Debug, Clone)]
pub(super) enum OjsOperation {
    /// Submits a JSON array of jobs.
    Enqueue(String),
    /// Fetches at most this number of jobs.
    Fetch(u64),
    /// Acknowledges the job with this id.
    Ack(String),
}

#[derive(Debug, Default)]
pub(super) struct OperationLog {
    pub(super) all: Vec<Operation>,
    /// Replies since the last [`Operation::Rest`].
    pub(super) replies: Vec<(u64, Reply)>,
}
