//! Commands in flight: from their start until their replies are known.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use agenix_protocol::{
    request::{Command, Request},
    resp::Reply,
};

use crate::resp::outcome::{CommandOutcome, Effect};

/// Maximum number of bytes of a reply that counts as small. Reads of a pipeline start together as
/// long as their replies are small, because replies that are not sent yet are in memory.
const SMALL_REPLY: usize = 1024;

/// Command in flight. A command that is done at once needs no future.
pub(crate) enum InFlight {
    Done(Option<CommandOutcome>),
    Pending(Pin<Box<dyn Future<Output = CommandOutcome> + Send>>),
    /// The command is carried out by an earlier command, whose outcome contains its reply.
    Merged,
}

impl InFlight {
    pub(crate) fn done(done: CommandOutcome) -> Self {
        Self::Done(Some(done))
    }

    /// Returns true if the reply is known and small, and has no effect on the connection.
    pub(crate) fn is_resolved(&self) -> bool {
        match self {
            Self::Done(Some(CommandOutcome { reply, effect: Effect::None, .. })) => match reply {
                Reply::Bulk(bytes) => bytes.len() <= SMALL_REPLY,
                reply => matches!(reply, Reply::Simple(_) | Reply::Integer(_) | Reply::Nil),
            },
            _ => false,
        }
    }
}

impl Future for InFlight {
    type Output = CommandOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandOutcome> {
        match &mut *self {
            Self::Done(done) => done.take().map_or(Poll::Pending, Poll::Ready),
            Self::Pending(pending) => pending.as_mut().poll(cx),
            Self::Merged => Poll::Pending,
        }
    }
}

/// Command that the session has authorized.
pub(crate) struct ReadyCommand {
    /// Number of bytes that its arguments take in memory.
    pub(crate) size: usize,
    pub(crate) command: &'static Command,
    pub(crate) request: Request,
}

/// Waits for the outcome of the first command in flight. Waits forever if no command is in flight.
pub(crate) async fn next_done(running: &mut VecDeque<(usize, InFlight)>) -> CommandOutcome {
    match running.front_mut() {
        Some((_, first)) => first.await,
        None => std::future::pending().await,
    }
}
