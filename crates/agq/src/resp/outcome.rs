//! Outcome of a RESP command.

use std::sync::Arc;

use agenix_protocol::{
    ids::{JobId, WorkerId},
    resp::Reply,
};

use crate::error::CommandError;

pub(crate) type CommandResult = Result<Reply, CommandError>;

/// A command that was carried out: its reply, and what it means for the connection.
#[derive(Debug)]
pub(crate) struct CommandOutcome {
    pub(crate) reply: Reply,
    pub(crate) effect: Effect,
    /// The same of those right behind it, as far as they were carried out together with it.
    pub(crate) also: Vec<CommandOutcome>,
}

impl CommandOutcome {
    /// A reply that means nothing for the connection.
    pub(crate) fn plain(reply: Reply) -> Self {
        Self::with(reply, Effect::None)
    }

    /// A reply that means this for the connection.
    pub(crate) fn with(reply: Reply, effect: Effect) -> Self {
        Self { reply, effect, also: Vec::new() }
    }
}

/// What a command means for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// It ends.
    Quit,
    /// The connection speaks for this worker from now on.
    Registered(WorkerId),
    /// This worker is no more.
    Unregistered(WorkerId),
    /// A job was given to the connection.
    Claimed {
        job_id: JobId,
        holder: Arc<str>,
        attempt: u32,
    },
}

/// A document as a bulk string.
pub(crate) fn json<T: serde::Serialize>(document: &T) -> Reply {
    Reply::bulk(agenix_protocol::documents::to_json(document))
}
