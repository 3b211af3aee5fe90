//! Outcome of a RESP command.

use agenix_protocol::{
    documents::{parse, parse_object, to_json},
    ids::WorkerId,
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use serde::de::DeserializeOwned;

use crate::{error::Result, registry::unreturned_claims::UnackedClaim};

pub(crate) type CommandResult = Result<Reply>;

#[derive(Debug)]
pub(crate) struct CommandOutcome {
    pub(crate) reply: Reply,
    pub(crate) effect: Effect,
    /// Replies to the commands directly behind it that were carried out together with it.
    pub(crate) merged: Vec<Reply>,
}

impl CommandOutcome {
    pub(crate) fn plain(reply: Reply) -> Self {
        Self::with(reply, Effect::None)
    }

    pub(crate) fn with(reply: Reply, effect: Effect) -> Self {
        Self { reply, effect, merged: Vec::new() }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Quit,
    /// The connection belongs to this worker from now on.
    Registered(WorkerId),
    /// This worker has been removed.
    Unregistered(WorkerId),
    /// The connection has claimed jobs.
    Claimed(Vec<UnackedClaim>),
}

/// Parses an object, or rejects it with `reject`.
pub(crate) fn object<T: DeserializeOwned>(
    json: &[u8],
    reject: fn(String) -> Rejection,
) -> Result<T, Rejection> {
    parse_object(json).map_err(|error| reject(error.to_string()))
}

/// Parses any document, or rejects it with `reject`.
pub(crate) fn parsed<T: DeserializeOwned>(
    json: &[u8],
    reject: fn(String) -> Rejection,
) -> Result<T, Rejection> {
    parse(json).map_err(|error| reject(error.to_string()))
}

pub(crate) fn json<T: serde::Serialize>(document: &T) -> Reply {
    Reply::bulk(to_json(document))
}
