//! Documents: JSON of records without a table of their own, stored under a kind and an id.

use agenix_protocol::time::Timestamp;

use crate::store::{RuleResult, StoreFuture, UnusedRecords};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DocumentKind {
    /// Mark of an action whose inputs are not all stored yet, by the id of the action.
    Arriving,
    /// Schedule, by its name.
    Cron,
    /// Mark of an action whose halt policy is not met yet, by the id of the action.
    Halt,
    /// Mark of a halted action whose jobs have not all ended, by the id of the action. Its jobs are
    /// not claimed.
    Halted,
    /// Inputs of an action that are still to be stored, by the id of the action and the index of
    /// the first of them.
    Inputs,
    /// Limit and its present use, by the key of the limit.
    Limit,
    /// Settings of a queue, by its name.
    Queue,
    /// Mark of a workflow that has not finished, by its id.
    Running,
    /// Id of the first job of a kind that admits only one, by the hash of the kind.
    Unique,
    /// Workflow, by its id.
    Workflow,
}

impl DocumentKind {
    /// All kinds in the order of their names.
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

    /// Returns the name under which documents of the kind are stored.
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

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DocumentChange {
    Keep,
    Put(String),
    Remove,
}

/// Rule that decides about a document, given its JSON (`None` if it does not exist). May be called
/// more than once for one write.
pub(crate) type DocumentRule = Box<dyn Fn(Option<&str>) -> RuleResult<DocumentChange> + Send + Sync>;

/// Documents, with the same rules as [`JobStore`](super::JobStore).
pub(crate) trait DocumentStore: Send + Sync + 'static {
    fn document(&self, kind: DocumentKind, id: &str) -> StoreFuture<Option<String>>;
    /// Returns all documents of a kind with their ids, in the order of their ids.
    fn documents(&self, kind: DocumentKind) -> StoreFuture<Vec<(String, String)>>;
    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool>;
    fn update_document(
        &self,
        kind: DocumentKind,
        id: &str,
        rule: DocumentRule,
    ) -> StoreFuture<RuleResult<()>>;
    /// Removes limits that no kept job uses and that hold no job back, and returns their number.
    fn forget_limits(&self, _now: Timestamp) -> StoreFuture<usize> {
        Box::pin(std::future::ready(Ok(0)))
    }
    /// Returns the unused lanes and limits that [`forget_limits`](Self::forget_limits) does not
    /// find.
    fn unused(&self, _now: Timestamp) -> StoreFuture<UnusedRecords> {
        Box::pin(std::future::ready(Ok(UnusedRecords::default())))
    }
    /// Removes those of the given lanes and limits that are still unused.
    fn forget_unused(&self, _unused: UnusedRecords) -> StoreFuture<()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
