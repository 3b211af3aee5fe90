//! MULTI … EXEC: commands on keys are queued, and carried out as one (RESP spec §10).

use agenix_protocol::{
    limits::exceeds,
    request::{Command, Request},
    reserved_keys::is_reserved,
    resp::Reply,
};

use bytes::Bytes;

use super::dispatch::QueuedCommand;

/// A transaction under way.
#[derive(Debug)]
pub(crate) struct Transaction {
    queued: Vec<QueuedCommand>,
    /// How many bytes are queued, and may be; 0 for no limit.
    bytes: usize,
    max_bytes: usize,
    /// Whether a command was refused while it was queued: EXEC then does nothing.
    is_spoiled: bool,
}

impl Transaction {
    /// A transaction of which at most `max_bytes` are queued; 0 for no limit.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { queued: Vec::new(), bytes: 0, max_bytes, is_spoiled: false }
    }

    /// Queues a command. `None` for those that are about the transaction or the connection, which are carried out now.
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
                self.is_spoiled = true;
                return Some(Reply::Error(format!(
                    "ERR '{}' cannot be part of a transaction: only commands on users' keys can",
                    command.name
                )));
            }
        };
        Some(self.admit(queued, size(&request.encode())))
    }

    /// A command was refused. As in Redis, one that is unknown or has the wrong number of arguments spoils the transaction;
    /// what is wrong with an argument is said in its turn, and the other commands are carried out.
    pub(crate) fn refuse(&mut self, command: Option<&Command>, args: &[Bytes], line: String) -> Reply {
        if command.is_some_and(|command| command.takes(args.len()) && !line.starts_with("NOPERM")) {
            return self.admit(QueuedCommand::Refused(line), size(args));
        }
        self.is_spoiled = true;
        Reply::Error(line)
    }

    fn admit(&mut self, queued: QueuedCommand, bytes: usize) -> Reply {
        self.bytes += bytes + size_of::<QueuedCommand>();
        if exceeds(self.bytes, self.max_bytes) {
            self.is_spoiled = true;
            self.queued.clear();
            return Reply::Error(format!("ERR Message too large: max {} bytes", self.max_bytes));
        }
        self.queued.push(queued);
        Reply::Simple("QUEUED".into())
    }

    /// What is to be carried out, or the error line.
    pub(crate) fn end(self) -> Result<Vec<QueuedCommand>, String> {
        if self.is_spoiled {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        Ok(self.queued)
    }
}

fn size(args: &[Bytes]) -> usize {
    args.iter().map(Bytes::len).sum()
}
