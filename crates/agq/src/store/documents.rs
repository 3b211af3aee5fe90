//! Documents: JSON of records without a table of their own, stored under a kind and an id.

use agenix_protocol::time::Timestamp;

use crate::store::{RuleResult, StoreFuture, UnusedRecords, types::RuleFuture};

/// Defines the kinds of documents, each with the name under which its documents are stored.
macro_rules! define_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum DocumentKind {
            $($(#[$doc])* $kind,)*
        }

        impl DocumentKind {
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            pub(crate) fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

define_kinds! {
    /// [`StoredBlob`](agenix_rules::blob::StoredBlob), by its hash.
    Blob "blob";
    /// [`Usage`](agenix_rules::budget::Usage) of a budget, by the name of its key.
    Budget "budget";
    /// [`JobBlobs`](agenix_rules::blob::JobBlobs) of a job whose results name blobs, by its id.
    JobBlobs "job_blobs";
    /// [`JobBlobs`](agenix_rules::blob::JobBlobs) of a job whose input names blobs, by its id.
    JobInputs "job_inputs";
    /// [`Approval`](agenix_protocol::documents::Approval) of a plan, by its id.
    Approval "approval";
    /// Mark of an action whose inputs are not all stored yet, by the id of the action.
    Arriving "arriving";
    /// Schedule, by its name.
    Cron "cron";
    /// Mark of a closed action without jobs, by the time of its submission and its id.
    EmptyAction "empty_action";
    /// Mark of an action whose halt policy is not met yet, by the id of the action.
    Halt "halt";
    /// Mark of a halted action whose jobs have not all ended, by the id of the action. The jobs of
    /// the action are not claimed.
    Halted "halted";
    /// Inputs that an action is still to get, by the id of the action and the index of the first of
    /// these inputs.
    Inputs "inputs";
    /// Limit and its present use, by the key of the limit.
    Limit "limit";
    /// Settings of a queue, by its name.
    Queue "queue";
    /// Mark of a workflow that has not finished, by its id.
    Running "running";
    /// Id of the first job of a kind that admits only one, by the hash of the kind.
    Unique "unique";
    /// Workflow, by its id.
    Workflow "workflow";
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
    /// Returns at most `limit` documents of a kind whose ids follow `after`, in the order of ids.
    fn documents_after(
        &self,
        kind: DocumentKind,
        after: &str,
        limit: usize,
    ) -> StoreFuture<Vec<(String, String)>>;
    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool>;
    fn update_document(&self, kind: DocumentKind, id: &str, rule: DocumentRule) -> RuleFuture<()>;
    /// Returns lanes and limits that no kept job uses. Such a limit holds no job back. A remote
    /// store looks through all of them in several calls.
    fn unused(&self, now: Timestamp) -> StoreFuture<UnusedRecords>;
    /// Removes the given lanes and limits that are still unused.
    fn forget_unused(&self, unused: UnusedRecords) -> StoreFuture<()>;
}
