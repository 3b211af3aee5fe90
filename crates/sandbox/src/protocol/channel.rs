//! Channel: a Unix stream socket with frames and descriptors.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair,
    },
};

use super::{
    frame::{FrameDecoder, Malformed, encode},
    message::{MAX_DESCRIPTORS, Message},
};

/// Bytes of one receive.
const RECEIVE_BYTES: usize = 16 << 10;

/// Error of a receive.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer sent something else than a message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The system refused the receive.
    #[error("cannot receive: {0}")]
    System(#[from] io::Error),
}

/// Socket that sends messages, and receives messages `M`. Senders may be cloned.
#[derive(Debug)]
pub struct Channel<M> {
    socket: Arc<OwnedFd>,
    decoder: FrameDecoder<M>,
    /// Received descriptors that no decoded message has taken.
    descriptors: VecDeque<OwnedFd>,
    buffer: Vec<u8>,
    /// True if the last receive got all that had arrived.
    is_drained: bool,
}

/// Returns a connected pair of sockets for two channels.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends `message` with `descriptors`. Sends of several threads must not overlap.
pub(crate) fn send<M: Message>(
    socket: &OwnedFd,
    message: &M,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut frames = Vec::new();
    queue(&mut frames, message, descriptors.len())?;
    send_frames(socket, &frames, descriptors)
}

/// Adds the frame of `message`, with which `descriptors` descriptors are sent, to `frames`.
pub(crate) fn queue<M: Message>(frames: &mut Vec<u8>, message: &M, descriptors: usize) -> io::Result<()> {
    if descriptors != message.descriptors() {
        return Err(invalid(Malformed::Descriptors(descriptors, message.descriptors())));
    }
    frames.extend(encode(message).map_err(invalid)?);
    Ok(())
}

fn invalid(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Sends `frames` at once, with the descriptors of all of them. Sends of several threads must not
/// overlap.
pub(crate) fn send_frames(socket: &OwnedFd, frames: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(invalid(Malformed::Descriptors(descriptors.len(), MAX_DESCRIPTORS)));
    }
    let mut sent = 0;
    while sent < frames.len() {
        let rest = [IoSlice::new(&frames[sent..])];
        sent += retry_on_intr(|| sendmsg(socket, &rest, &mut ancillary, SendFlags::NOSIGNAL))?;
        // The descriptors are sent with the first byte.
        ancillary.clear();
    }
    Ok(())
}

impl<M: Message> Channel<M> {
    /// Creates a channel over one end of a stream socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let decoder = FrameDecoder::default();
        Self {
            socket: Arc::new(socket),
            decoder,
            descriptors: VecDeque::new(),
            buffer: vec![0; RECEIVE_BYTES],
            is_drained: true,
        }
    }

    /// Returns the socket, for sends and for poll(2).
    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Returns true if nothing else had arrived at the last receive.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Waits for the next message. Returns `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed message and for errors of the system.
    pub fn receive(&mut self) -> Result<Option<(M, Vec<OwnedFd>)>, ReceiveError> {
        loop {
            if let Some(message) = self.received()? {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Returns the next message that has arrived completely.
    pub(crate) fn received(&mut self) -> Result<Option<(M, Vec<OwnedFd>)>, ReceiveError> {
        let Some(message) = self.decoder.next_message()? else { return Ok(None) };
        let needs = message.descriptors();
        if self.descriptors.len() < needs {
            return Err(Malformed::Descriptors(self.descriptors.len(), needs).into());
        }
        let descriptors = self.descriptors.drain(..needs).collect();
        Ok(Some((message, descriptors)))
    }

    /// Receives once, and waits for the bytes. Returns false at the end of the connection.
    pub(crate) fn fill(&mut self) -> Result<bool, ReceiveError> {
        self.receive_once(RecvFlags::CMSG_CLOEXEC)
    }

    /// Receives once, or returns `WouldBlock`. Returns false at the end of the connection.
    pub(crate) fn try_fill(&mut self) -> Result<bool, ReceiveError> {
        self.receive_once(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive_once(&mut self, flags: RecvFlags) -> Result<bool, ReceiveError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        // Without space, the kernel closes descriptors that a peer sends uninvited.
        let space = if M::TAKES_DESCRIPTORS { &mut space[..] } else { &mut [] };
        let mut ancillary = RecvAncillaryBuffer::new(space);
        let received = retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut self.buffer)];
            recvmsg(&self.socket, &mut into, &mut ancillary, flags)
        });
        let received = match received {
            // The peer is gone, and has left messages of this process unread.
            Err(Errno::CONNRESET) => return Ok(false),
            received => received.map_err(io::Error::from)?,
        };
        let mut has_descriptors = false;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                has_descriptors = true;
                self.descriptors.extend(descriptors);
            }
        }
        let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
        // One receive gets the descriptors of one message, and one message may be incomplete.
        if is_cut || self.descriptors.len() > 2 * MAX_DESCRIPTORS {
            return Err(Malformed::Descriptors(self.descriptors.len(), MAX_DESCRIPTORS).into());
        }
        if received.bytes == 0 {
            self.decoder.finish()?;
            return Ok(false);
        }
        // A receive stops behind bytes with descriptors.
        self.is_drained = received.bytes < self.buffer.len() && !has_descriptors;
        self.decoder.push(&self.buffer[..received.bytes]);
        Ok(true)
    }
}

impl<M> AsFd for Channel<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::fd::{AsFd, OwnedFd},
    };

    use super::{Channel, ReceiveError, pair, send};
    use crate::protocol::{Malformed, Sink, Source, SupervisorRequest, TaskStart};

    fn start(task: u32, argv: Vec<String>) -> SupervisorRequest {
        let (program, stdout) = ("/bin/true".to_owned(), Sink::Descriptor);
        SupervisorRequest::Start(TaskStart {
            task,
            program,
            argv,
            env: vec![],
            cwd: None,
            stdin: Source::Descriptor,
            stdout,
            stderr: Sink::Stdout,
            is_last: false,
            worker_env: vec![],
            memory: None,
        })
    }

    fn text(descriptor: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(descriptor).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (ours, theirs) = pair().unwrap();
        let sender = std::thread::spawn(move || {
            for task in 0..20 {
                let (one, mut write) = std::io::pipe().unwrap();
                write!(write, "{task}").unwrap();
                let argv = vec!["x".repeat(usize::try_from(task).unwrap() * 3000)];
                send(&ours, &SupervisorRequest::Clean, &[]).unwrap();
                send(&ours, &start(task, argv), &[one.as_fd(), write.as_fd()]).unwrap();
            }
        });
        let mut channel = Channel::<SupervisorRequest>::new(theirs);
        for task in 0..20 {
            assert_eq!(channel.receive().unwrap().unwrap().0, SupervisorRequest::Clean);
            let (message, mut descriptors) = channel.receive().unwrap().unwrap();
            assert!(matches!(&message, SupervisorRequest::Start(start) if start.task == task));
            drop(descriptors.pop());
            assert_eq!(text(descriptors.pop().unwrap()), task.to_string());
        }
        assert!(channel.receive().unwrap().is_none());
        sender.join().unwrap();
    }

    #[test]
    fn message_without_its_descriptors_is_malformed() {
        let (ours, theirs) = pair().unwrap();
        let frame = crate::protocol::encode(&start(1, vec![])).unwrap();
        std::fs::File::from(ours).write_all(&frame).unwrap();
        let refused = Channel::<SupervisorRequest>::new(theirs).receive();
        assert!(matches!(refused, Err(ReceiveError::Malformed(Malformed::Descriptors(0, 2)))), "{refused:?}");
    }

    #[test]
    fn send_refuses_another_number_of_descriptors() {
        let (ours, _theirs) = pair().unwrap();
        assert!(send(&ours, &start(1, vec![]), &[]).is_err());
        assert!(send(&ours, &SupervisorRequest::Clean, &[ours.as_fd()]).is_err());
    }
}
