//! MULTI … EXEC: commands on users' keys are queued, and carried out in one write (RESP spec §10).

use agenix_protocol::{
    errors::ErrorKind,
    limits::exceeds,
    request::{Command, Request},
    reserved_keys::is_reserved,
    resp::Reply,
};

use bytes::Bytes;

use super::dispatch::QueuedCommand;

#[derive(Debug)]
pub(crate) struct Transaction {
    queued: Vec<QueuedCommand>,
    bytes: usize,
    /// Maximum number of queued bytes; 0 means no limit.
    max_bytes: usize,
    /// True if a command was refused when it was queued. EXEC does nothing then.
    is_aborted: bool,
}

impl Transaction {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { queued: Vec::new(), bytes: 0, max_bytes, is_aborted: false }
    }

    /// Returns `None` for a command on the transaction or the connection, which is not queued.
    pub(crate) fn take(&mut self, command: &Command, request: &Request) -> Option<Reply> {
        let queued = match request {
            Request::Multi | Request::Exec | Request::Discard | Request::Reset | Request::Quit => {
                return None;
            }
            Request::Key(key) if !key.names().into_iter().any(|name| is_reserved(name)) => {
                QueuedCommand::Key(key.clone())
            }
            Request::Ping { message } => QueuedCommand::Ping(message.clone()),
            Request::Echo { message } => QueuedCommand::Echo(message.clone()),
            _ => {
                self.is_aborted = true;
                return Some(Reply::Error(format!(
                    "ERR '{}' cannot be part of a transaction: only commands on users' keys can",
                    command.name
                )));
            }
        };
        Some(self.admit(queued, size(&request.encode())))
    }

    /// As in Redis, an unknown command or a wrong number of arguments spoils the transaction. A
    /// wrong argument is an error in the reply to EXEC, and the other commands are carried out.
    pub(crate) fn refuse(&mut self, command: Option<&Command>, args: &[Bytes], line: String) -> Reply {
        let is_permitted = ErrorKind::of(&line) != ErrorKind::NotPermitted;
        if command.is_some_and(|command| command.takes(args.len()) && is_permitted) {
            return self.admit(QueuedCommand::Refused(line), size(args));
        }
        self.is_aborted = true;
        Reply::Error(line)
    }

    fn admit(&mut self, queued: QueuedCommand, bytes: usize) -> Reply {
        self.bytes += bytes + size_of::<QueuedCommand>();
        if exceeds(self.bytes, self.max_bytes) {
            self.is_aborted = true;
            self.queued.clear();
            return Reply::Error(format!("ERR Message too large: max {} bytes", self.max_bytes));
        }
        self.queued.push(queued);
        Reply::Simple("QUEUED".into())
    }

    pub(crate) fn end(self) -> Result<Vec<QueuedCommand>, String> {
        if self.is_aborted {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        Ok(self.queued)
    }
}

fn size(args: &[Bytes]) -> usize {
    args.iter().map(Bytes::len).sum()
}
