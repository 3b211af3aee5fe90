//! Connection to a supervisor: its set-up, requests and replies.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

use super::SupervisorError;
use crate::{
    protocol::{
        Channel, ReceiveError, SupervisorReply, SupervisorRequest, TaskSignal, TaskStart, queue, send,
        send_frames,
    },
    report::Report,
};

/// Connection to a supervisor that sets up its confinement.
#[derive(Debug)]
pub struct SupervisorConnection(Channel<SupervisorReply>);

impl SupervisorConnection {
    pub(super) fn new(channel: Channel<SupervisorReply>) -> Self {
        Self(channel)
    }

    /// Waits until the confinement is complete. Returns both directions of the connection, and the
    /// properties that hold.
    ///
    /// # Errors
    ///
    /// Returns the fault of the step that failed.
    pub fn ready(mut self) -> Result<(Commands, Replies, Report), SupervisorError> {
        match self.0.receive()?.map(|(reply, _)| reply) {
            Some(SupervisorReply::Ready(report)) => {
                let commands = Commands { socket: Arc::clone(self.0.socket()), sending: Mutex::new(()) };
                Ok((commands, Replies { channel: self.0 }, report))
            }
            Some(SupervisorReply::Refused(fault)) => Err(fault.into()),
            Some(reply) => Err(SupervisorError::OutOfOrder(Box::new(reply))),
            None => Err(SupervisorError::Ended),
        }
    }
}

impl AsFd for SupervisorConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for SupervisorConnection {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Requests to a supervisor. Each call sends one message; the answer is among the [`Replies`].
#[derive(Debug)]
pub struct Commands {
    socket: Arc<OwnedFd>,
    /// Keeps the messages of several threads apart.
    sending: Mutex<()>,
}

impl Commands {
    /// Begins a job that may execute `programs`: byte-escaped absolute paths.
    ///
    /// # Errors
    ///
    /// Returns the error of the system. `EPIPE` means that the supervisor has ended.
    pub fn begin(&self, programs: Vec<String>) -> io::Result<()> {
        self.send(&SupervisorRequest::Begin { programs }, &[])
    }

    /// Begins a job that may execute `programs`, and starts its first task, with one message.
    ///
    /// # Errors
    ///
    /// Returns an error as [`Commands::start`] does.
    pub fn begin_with(
        &self,
        programs: Vec<String>,
        start: TaskStart,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut frames = Vec::new();
        queue(&mut frames, &SupervisorRequest::Begin { programs }, 0)?;
        queue(&mut frames, &SupervisorRequest::Start(start), descriptors.len())?;
        let _one_at_a_time = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        send_frames(&self.socket, &frames, descriptors)
    }

    /// Starts a task. `descriptors` are those for each `Descriptor` of stdin, stdout and stderr, in
    /// this order. The supervisor gets copies.
    ///
    /// # Errors
    ///
    /// Returns the error of the system, and `InvalidInput` for another number of descriptors.
    pub fn start(&self, start: TaskStart, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&SupervisorRequest::Start(start), descriptors)
    }

    /// Signals the process group of a task. A task that has ended is no error.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn signal(&self, task: u32, signal: TaskSignal) -> io::Result<()> {
        self.send(&SupervisorRequest::Signal { task, signal }, &[])
    }

    /// Ends the job: kills all its processes, and empties the scratch directory.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn clean(&self) -> io::Result<()> {
        self.send(&SupervisorRequest::Clean, &[])
    }

    /// Closes the connection, which ends the supervisor and all its processes.
    pub fn close(&self) {
        let _is_closed = shutdown(&*self.socket, Shutdown::Both);
    }

    fn send(&self, request: &SupervisorRequest, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _one_at_a_time = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        send(&self.socket, request, descriptors)
    }
}

/// Reply of a supervisor, and the files that were sent with the reply.
pub type ReceivedReply = (SupervisorReply, Vec<OwnedFd>);

/// Replies of a supervisor.
#[derive(Debug)]
pub struct Replies {
    channel: Channel<SupervisorReply>,
}

impl Replies {
    /// Waits for the next reply. Returns `None` when nothing of the supervisor is left.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed reply, and for errors of the system. The caller then closes
    /// the connection.
    #[expect(clippy::should_implement_trait, reason = "the end is not the end of an iteration")]
    pub fn next(&mut self) -> Result<Option<SupervisorReply>, ReceiveError> {
        Ok(self.channel.receive()?.map(|(reply, _)| reply))
    }

    /// Receives once without waiting, and returns the replies that have arrived completely, each
    /// with the files that were sent with the reply. Returns `None` when nothing of the supervisor
    /// is left.
    ///
    /// # Errors
    ///
    /// Returns an error as [`Replies::next`] does, and `WouldBlock` if nothing has arrived.
    pub fn try_receive(&mut self) -> Result<Option<Vec<ReceivedReply>>, ReceiveError> {
        if !self.channel.try_fill()? {
            return Ok(None);
        }
        let mut replies = Vec::new();
        while let Some(reply) = self.channel.received()? {
            replies.push(reply);
        }
        Ok(Some(replies))
    }

    /// Returns true if the last receive got all that had arrived.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.channel.is_drained()
    }

    /// Returns true if the supervisor has ended, or has sent what is not received.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let mut watched = [PollFd::new(&self.channel, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Replies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Replies {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
