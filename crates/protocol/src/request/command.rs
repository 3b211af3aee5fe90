//! Rows of the table of commands: name, arity, kind, permission and parser of a command.

use bytes::Bytes;

use super::{Request, RequestError};

/// Row of the table of commands.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Name, in capitals.
    pub name: &'static str,
    /// Number of words with the name, as Redis counts them. A negative number is a minimum.
    pub arity: i8,
    /// Effect on the connection and on the data.
    pub kind: CommandKind,
    /// Keys of people and workers that may use the command.
    pub access: CommandAccess,
    /// Permission for the key of an agent.
    pub agent: AgentAccess,
    /// Positions of the first and last key (negative: from the end), and the step; 0 without keys.
    pub keys: (i8, i8, i8),
    /// Syntax of the arguments, for people.
    pub syntax: &'static str,
    /// Summary, for people.
    pub summary: &'static str,
    /// Parser of the arguments, whose number matches the arity.
    pub parse: fn(&[Bytes]) -> Result<Request, RequestError>,
}

/// Effect of a command on its connection and on the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// Changes only the connection.
    Session,
    /// Reads.
    Read,
    /// Writes in one step. Many such commands may overlap.
    Write,
    /// Reads and writes in several steps. The command runs alone on its connection.
    Steps,
    /// May block.
    Blocking,
}

/// Permission of people and workers to use a command. The session key permits every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandAccess {
    /// Permitted with every key but that of an agent.
    Everyone,
    /// Permitted with a client key.
    Client,
    /// Permitted with a worker key.
    Worker,
    /// Permitted with the session key only.
    Admin,
}

/// Permission of the key of an agent to use a command. A command is refused unless its row names
/// another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentAccess {
    /// Refused.
    Refused,
    /// Permitted: the command names no record of an owner.
    Permitted,
    /// Permitted for what the agent owns. Everything else does not exist for the command.
    Own,
}

impl Command {
    /// Returns the row of a command that agents may use.
    pub(crate) const fn for_agents(self) -> Self {
        Self { agent: AgentAccess::Permitted, ..self }
    }

    /// Returns the row of a command that agents may use on what they own.
    pub(crate) const fn for_owners(self) -> Self {
        Self { agent: AgentAccess::Own, ..self }
    }

    /// Returns true if the arity allows `words` words, the name included.
    pub fn takes(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= arity } else { words == arity }
    }
}
