//! Outcome of a RESP command.

use agenix_protocol::{ids::WorkerId, resp::Reply};

use super::unacked_claims::UnackedClaim;
use crate::error::CommandError;

pub(crate) type CommandResult = Result<Reply, CommandError>;

/// Outcome of a command: its reply, and its effect on the connection.
#[derive(Debug)]
pub(crate) struct CommandOutcome {
    pub(crate) reply: Reply,
    pub(crate) effect: Effect,
    /// Replies to the commands directly behind it that were carried out together with it.
    pub(crate) merged: Vec<Reply>,
}

impl CommandOutcome {
    /// Creates an outcome without an effect on the connection.
    pub(crate) fn plain(reply: Reply) -> Self {
        Self::with(reply, Effect::None)
    }

    /// Creates an outcome with an effect on the connection.
    pub(crate) fn with(reply: Reply, effect: Effect) -> Self {
        Self { reply, effect, merged: Vec::new() }
    }
}

/// Effect of a command on its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The connection ends.
    Quit,
    /// The connection belongs to this worker from now on.
    Registered(WorkerId),
    /// This worker has been removed.
    Unregistered(WorkerId),
    /// The connection has claimed jobs.
    Claimed(Vec<UnackedClaim>),
}

/// Returns a document as a bulk string of JSON.
pub(crate) fn json<T: serde::Serialize>(document: &T) -> Reply {
    Reply::bulk(agenix_protocol::documents::to_json(document))
}
