//! What happened in a world where nothing went wrong, move by move: to be done again on another store.

use std::sync::Arc;

use agenix_protocol::resp::Reply;

use super::actors::Actor;
use crate::app::Caller;

/// One thing that happened.
#[derive(Debug)]
pub(super) enum Operation {
    /// A command was given.
    Ask {
        number: u64,
        caller: Arc<Caller>,
        words: Vec<String>,
    },
    /// Something was done with jobs that have limits and kinds.
    Own {
        number: u64,
        own: OjsOperation,
    },
    /// Commands on keys, all at once.
    Transact {
        number: u64,
        commands: Vec<Vec<String>>,
    },
    /// Whoever waits for an answer went away.
    GoAway {
        number: u64,
    },
    /// A connection was closed.
    Close(Box<Actor>),
    Pass {
        ms: u64,
    },
    /// What has ended was forgotten. These notes of limits and kinds are left, and jobs in so many
    /// lanes.
    Forgotten {
        notes: Vec<Vec<(String, String)>>,
        lanes: usize,
    },
    /// Nothing went on any more, and these answers had come since the last time.
    Rest(Vec<(u64, Reply)>),
}

/// Operation on jobs of the Open Job Spec.
#[derive(Debug, Clone)]
pub(super) enum OjsOperation {
    /// Submits a JSON array of jobs.
    Enqueue(String),
    /// Fetches at most this number of jobs.
    Fetch(u64),
    /// Acknowledges the job with this id.
    Ack(String),
}

/// The moves of a world, as they are made.
#[derive(Debug, Default)]
pub(super) struct OperationLog {
    pub(super) all: Vec<Operation>,
    /// Replies since the last [`Operation::Rest`].
    pub(super) replies: Vec<(u64, Reply)>,
}
