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

use crate::commands::{Done, Effect};

/// Reads that come together are answered together while what they answer has no more bytes than this, each: what is not sent yet
/// is in memory.
const SMALL_REPLY: usize = 1024;

/// A command under way. What is done at once needs no future.
pub(super) enum Running {
    Done(Option<Done>),
    Going(Pin<Box<dyn Future<Output = Done> + Send>>),
    /// It is carried out together with the one before it, whose outcome has this one's, too.
    Along,
}

impl Running {
    pub(super) fn done(done: Done) -> Self {
        Self::Done(Some(done))
    }

    /// Whether nothing is left to be done but to send a small reply.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Done(Some(Done { reply, effect: Effect::None, .. })) => match reply {
                Reply::Bulk(bytes) => bytes.len() <= SMALL_REPLY,
                reply => matches!(reply, Reply::Simple(_) | Reply::Integer(_) | Reply::Nil),
            },
            _ => false,
        }
    }
}

impl Future for Running {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        match &mut *self {
            Self::Done(done) => done.take().map_or(Poll::Pending, Poll::Ready),
            Self::Going(going) => going.as_mut().poll(cx),
            Self::Along => Poll::Pending,
        }
    }
}

/// A command that the session let pass.
pub(super) struct Passed {
    /// In bytes.
    pub(super) size: usize,
    pub(super) command: &'static Command,
    pub(super) request: Request,
    /// How many that say the same are right behind it.
    pub(super) twins: usize,
}

/// The first of the commands under way, when it is done. Waits for ever where there is none.
pub(super) async fn front(running: &mut VecDeque<(usize, Running)>) -> Done {
    match running.front_mut() {
        Some((_, first)) => first.await,
        None => std::future::pending().await,
    }
}
