//! What is known of every command before it is read: its name, its arity, who may use it. One row a command.

use bytes::Bytes;

use super::{Request, RequestError};

/// A row of the table of commands.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Its name, in capitals.
    pub name: &'static str,
    /// As Redis counts: the number of words with the name; negative for "at least".
    pub arity: i8,
    /// What it does to its connection and to the data.
    pub kind: CommandKind,
    /// Who may use it.
    pub access: CommandAccess,
    /// The place of its first key among the words, of its last (negative from the end), and the step; zeros without keys.
    pub keys: (i8, i8, i8),
    /// Its arguments, for people.
    pub syntax: &'static str,
    /// What it does, for people.
    pub summary: &'static str,
    /// Reads the arguments, of which there are as many as the arity says.
    pub parse: fn(&[Bytes]) -> Result<Request, RequestError>,
}

/// What a command does to its connection and to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// Only concerns the connection.
    Session,
    /// Reads.
    Read,
    /// Writes, in one step: many may be on their way at once.
    Write,
    /// Reads and writes in several steps: alone on its connection.
    Steps,
    /// May wait.
    Blocking,
}

/// Who may use a command; the session key may use all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandAccess {
    /// Every key.
    Everyone,
    /// A client's key.
    Client,
    /// A worker's key.
    Worker,
    /// The session key alone.
    Admin,
}

impl Command {
    /// Whether this many words, the name among them, are as many as it takes.
    pub fn takes(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= arity } else { words == arity }
    }
}
