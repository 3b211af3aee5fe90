//! What happened in a world where nothing went wrong, move by move: to be done again on another store.

use std::sync::Arc;

use agenix_protocol::resp::Reply;

use super::{
    actors::Actor,
    own::OjsOperation,
    world::{NOBODY, World},
};
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

/// The moves of a world, as they are made.
#[derive(Debug, Default)]
pub(super) struct OperationLog {
    pub(super) all: Vec<Operation>,
    replies: Vec<(u64, Reply)>,
}

impl World {
    /// Notes a move, where somebody wants to make it again.
    pub(super) fn note(&mut self, made: impl FnOnce() -> Operation) {
        if let Some(moves) = &mut self.moves {
            moves.all.push(made());
        }
    }

    /// Notes an answer.
    pub(super) fn note_reply(&mut self, number: u64, reply: &Reply) {
        if let Some(moves) = self.moves.as_mut().filter(|_| number != NOBODY) {
            moves.replies.push((number, reply.clone()));
        }
    }

    /// Where moves are noted, one is over before the next is made.
    pub(super) fn rest_between(&mut self) -> Result<(), String> {
        if self.moves.is_none() {
            return Ok(());
        }
        self.settle()?;
        self.write_all()?;
        let Some(moves) = &mut self.moves else { return Ok(()) };
        let mut replies = std::mem::take(&mut moves.replies);
        replies.sort_by_key(|(number, _)| *number);
        moves.all.push(Operation::Rest(replies));
        Ok(())
    }
}
