//! MULTI … EXEC: commands on users' keys are queued, and carried out in one write (RESP spec §10).

use agenix_protocol::{
    errors::ErrorKind,
    limits::{Limits, exceeds},
    request::{Command, Request},
    reserved_keys::is_reserved,
    resp::{FrameError, Reply},
};

use bytes::Bytes;

use super::dispatch::QueuedCommand;

#[derive(Debug)]
pub(crate) struct Transaction {
    queued: Vec<QueuedCommand>,
    bytes: usize,
    /// Number of arguments of the queued commands. Each takes memory, even an empty one.
    elements: usize,
    /// Bounds of one command, which apply to all queued commands together.
    limits: Limits,
    /// True if a command was refused when it was queued. EXEC does nothing then, so no command is
    /// stored.
    is_aborted: bool,
}

impl Transaction {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { queued: Vec::new(), bytes: 0, elements: 0, limits, is_aborted: false }
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
                self.abort();
                return Some(Reply::Error(format!(
                    "ERR '{}' cannot be part of a transaction: only commands on users' keys can",
                    command.name
                )));
            }
        };
        Some(self.admit(queued, &request.encode()))
    }

    /// As in Redis, an unknown command or a wrong number of arguments spoils the transaction. A
    /// wrong argument is an error in the reply to EXEC, and the other commands are carried out.
    pub(crate) fn refuse(&mut self, command: Option<&Command>, args: &[Bytes], line: String) -> Reply {
        let is_permitted = ErrorKind::of(&line) != ErrorKind::NotPermitted;
        if command.is_some_and(|command| command.takes(args.len()) && is_permitted) {
            return self.admit(QueuedCommand::Refused(line), args);
        }
        self.abort();
        Reply::Error(line)
    }

    fn admit(&mut self, queued: QueuedCommand, args: &[Bytes]) -> Reply {
        self.bytes += args.iter().map(Bytes::len).sum::<usize>() + size_of::<QueuedCommand>();
        self.elements += args.len();
        if let Err(error) = self.check_size() {
            self.abort();
            return Reply::Error(error.to_string());
        }
        if !self.is_aborted {
            self.queued.push(queued);
        }
        Reply::Simple("QUEUED".into())
    }

    fn abort(&mut self) {
        self.is_aborted = true;
        self.queued = Vec::new();
    }

    fn check_size(&self) -> Result<(), FrameError> {
        let Limits { max_message_bytes, max_elements, .. } = self.limits;
        if exceeds(self.bytes, max_message_bytes) {
            return Err(FrameError::TooLarge(max_message_bytes));
        }
        if exceeds(self.elements, max_elements) {
            return Err(FrameError::TooManyElements(max_elements));
        }
        Ok(())
    }

    pub(crate) fn end(self) -> Result<Vec<QueuedCommand>, String> {
        if self.is_aborted {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        Ok(self.queued)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{limits::Limits, request::Request, resp::Reply};
    use bytes::Bytes;

    use super::Transaction;

    fn take(transaction: &mut Transaction, words: &[Bytes]) -> Reply {
        let (command, request) = Request::parse(words).unwrap();
        transaction.take(command, &request).unwrap()
    }

    #[test]
    fn transaction_has_the_limits_of_one_command() {
        let limits = Limits { max_elements: 5, ..Limits::default() };
        let mut transaction = Transaction::new(limits);
        let command = [Bytes::from("DEL"), Bytes::new(), Bytes::new()];
        assert_eq!(take(&mut transaction, &command), Reply::Simple("QUEUED".into()));
        let refusal = Reply::Error("ERR Message too large: max 5 elements".into());
        assert_eq!(take(&mut transaction, &command), refusal);
        assert!(transaction.end().is_err());
    }

    #[test]
    fn aborted_transaction_stores_nothing() {
        let mut transaction = Transaction::new(Limits::default());
        let [get, publish] = [["GET", "k", ""], ["PUBLISH", "c", "x"]].map(|words| words.map(Bytes::from));
        let is_queued = |reply: Reply| reply == Reply::Simple("QUEUED".into());
        assert!(is_queued(take(&mut transaction, &get[..2])));
        assert!(!is_queued(take(&mut transaction, &publish)));
        assert!(is_queued(take(&mut transaction, &get[..2])), "as Redis replies");
        assert_eq!(transaction.queued.len(), 0);
    }
}
