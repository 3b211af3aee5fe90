//! A command from the moment it may start until its reply is known.

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

/// Reads that come together are answered together while what they answer has no more bytes than this, each: what is not sent yet
/// is in memory.
const SMALL_REPLY: usize = 1024;

/// A command under way. What is done at once needs no future.
pub(crate) enum InFlight {
    Done(Option<CommandOutcome>),
    Going(Pin<Box<dyn Future<Output = CommandOutcome> + Send>>),
    /// It is carried out together with the one before it, whose outcome has this one's, too.
    Along,
}

impl InFlight {
    pub(crate) fn done(done: CommandOutcome) -> Self {
        Self::Done(Some(done))
    }

    /// Whether nothing is left to be done but to send a small reply.
    pub(crate) fn is_settled(&self) -> bool {
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
            Self::Going(going) => going.as_mut().poll(cx),
            Self::Along => Poll::Pending,
        }
    }
}

/// A command that the session let pass.
pub(crate) struct ReadyCommand {
    /// In bytes.
    pub(crate) size: usize,
    pub(crate) command: &'static Command,
    pub(crate) request: Request,
    /// How many that say the same are right behind it.
    pub(crate) twins: usize,
}

/// The first of the commands under way, when it is done. Waits for ever where there is none.
pub(crate) async fn next_done(running: &mut VecDeque<(usize, InFlight)>) -> CommandOutcome {
    match running.front_mut() {
        Some((_, first)) => first.await,
        None => std::future::pending().await,
    }
}
