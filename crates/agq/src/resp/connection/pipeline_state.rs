//! States of a pipeline. The state decides which command may start behind the commands in flight:
//!
//! | State | In flight | Read | Write | Claim | Exclusive |
//! |---|---|---|---|---|---|
//! | `Resolved`, empty | nothing | yes | yes | yes | yes |
//! | `Resolved` | small replies that are known | yes | yes | yes | no |
//! | `Pipelining` | writes, or large replies | no | in order | in order | no |
//! | `Exclusive` | a last command that runs alone | no | no | no | no |
//! | `Blocked` | a last command that waits for a job or an element | no | no | no | no |
//! | `Confirming` | a subscription that is being confirmed | no | no | no | no |
//!
//! Every state returns to `Resolved` when no command is in flight any more. "In order" means: in a
//! store with one order for all writes always, otherwise only behind writes of the same kind
//! (users' keys or records). Exclusive commands change the session, or have several steps.

use agenix_protocol::request::Concurrency;

/// State of the commands in flight of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipelineState {
    /// All replies in flight are known and small.
    Resolved,
    /// A reply in flight is not known yet, or is large.
    Pipelining,
    /// The last command in flight runs alone: no command starts behind it.
    Exclusive,
    /// The last command in flight waits for a job or an element. Commands behind it are read only
    /// to notice when the client closes the connection.
    Blocked,
    /// A subscription is being confirmed: no message is delivered before its confirmation.
    Confirming,
}

impl PipelineState {
    /// Returns the state after the start of a command, before its first poll.
    pub(crate) fn started(self, concurrency: Concurrency, blocks: bool) -> Self {
        match concurrency {
            Concurrency::Alone | Concurrency::Claim if blocks => Self::Blocked,
            Concurrency::Alone | Concurrency::Claim => Self::Exclusive,
            Concurrency::Read | Concurrency::Write => self,
        }
    }

    /// Returns the state after the first poll of a command has returned its reply.
    pub(crate) fn answered_at_once(self) -> Self {
        if self == Self::Blocked { Self::Exclusive } else { self }
    }

    /// Returns the state in which no command starts behind the last command.
    pub(crate) fn exclusive(self) -> Self {
        if self.accepts_commands() { Self::Exclusive } else { self }
    }

    /// Returns the state after a reply that is not resolved has been added.
    pub(crate) fn unresolved(self) -> Self {
        if self == Self::Resolved { Self::Pipelining } else { self }
    }

    /// Returns true if a command may start behind the commands in flight.
    pub(crate) fn accepts_commands(self) -> bool {
        matches!(self, Self::Resolved | Self::Pipelining)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::request::Concurrency;

    use super::PipelineState;

    #[test]
    fn pipeline_accepts_commands_behind_reads_and_writes_only() {
        let after = |concurrency, blocks| PipelineState::Resolved.started(concurrency, blocks);
        assert!(after(Concurrency::Read, false).accepts_commands());
        assert!(after(Concurrency::Write, false).unresolved().accepts_commands());
        assert!(!after(Concurrency::Claim, false).accepts_commands());
        assert!(!after(Concurrency::Alone, true).accepts_commands());
        assert!(!PipelineState::Pipelining.exclusive().accepts_commands());
    }

    #[test]
    fn pipeline_is_blocked_only_while_a_blocking_command_waits() {
        let blocked = PipelineState::Resolved.started(Concurrency::Claim, true);
        assert_eq!(blocked, PipelineState::Blocked);
        assert_eq!((blocked.unresolved(), blocked.exclusive()), (blocked, blocked));
        assert_eq!(blocked.answered_at_once(), PipelineState::Exclusive);
        assert_eq!(PipelineState::Confirming.answered_at_once(), PipelineState::Confirming);
    }
}
