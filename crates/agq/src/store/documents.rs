//! Notes: what is kept of things that have no record of their own, as JSON under a kind and an id.

use crate::store::RuleResult;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DocumentKind {
    /// That inputs of an action are still to be stored, by its id.
    Arriving,
    /// A schedule, by its name.
    Cron,
    /// An action whose halt policy is not met yet, by its id.
    Halt,
    /// A halted action whose jobs have not all ended, by its id: nobody claims its jobs.
    Halted,
    /// Inputs of an action that are still to be stored, by its id and the place of the first of them.
    Inputs,
    /// A limit and how far it is used up, by its key.
    Limit,
    /// What is set for a queue, by its name.
    Queue,
    /// That a workflow has something left to do, by its id.
    Running,
    /// The first job of a kind of which there is to be one, by the hash of that kind.
    Unique,
    /// A workflow, by its id.
    Workflow,
}

impl DocumentKind {
    /// All of them, in the order of their names.
    pub(crate) const ALL: [Self; 10] = [
        Self::Arriving,
        Self::Cron,
        Self::Halt,
        Self::Halted,
        Self::Inputs,
        Self::Limit,
        Self::Queue,
        Self::Running,
        Self::Unique,
        Self::Workflow,
    ];

    /// The name under which it is kept.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Arriving => "arriving",
            Self::Cron => "cron",
            Self::Halt => "halt",
            Self::Halted => "halted",
            Self::Inputs => "inputs",
            Self::Limit => "limit",
            Self::Queue => "queue",
            Self::Running => "running",
            Self::Unique => "unique",
            Self::Workflow => "workflow",
        }
    }

    /// The kind of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What a rule makes of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DocumentChange {
    /// It stays as it is.
    Keep,
    /// It says this from now on.
    Put(String),
    /// It goes.
    Remove,
}

/// Decides what becomes of a note, given what it says now. May be asked more than once.
pub(crate) type DocumentRule = Box<dyn Fn(Option<&str>) -> RuleResult<DocumentChange> + Send + Sync>;
