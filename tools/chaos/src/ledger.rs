//! The ledger of everything that agq has acknowledged, and that clients have seen. All threads
//! write to the ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

#[derive(Default)]
pub(super) struct ChaosLedger {
    content: Mutex<LedgerContent>,
    is_over: AtomicBool,
}

/// Content of the ledger.
#[derive(Default)]
pub(super) struct LedgerContent {
    /// Actions whose submission was acknowledged, by id.
    pub(super) actions: BTreeMap<String, AcknowledgedAction>,
    /// Keys that were written.
    pub(super) streams: Vec<KeyVersions>,
    /// Number of acknowledgements by kind.
    pub(super) acknowledged: BTreeMap<&'static str, u64>,
    /// Number of faults by kind.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Number of other events by kind.
    pub(super) notes: BTreeMap<&'static str, u64>,
    /// Guarantees that agq has broken.
    pub(super) lost: BTreeSet<String>,
}

/// An action that was acknowledged.
#[derive(Clone)]
pub(super) struct AcknowledgedAction {
    /// Value of each input, in order.
    pub(super) inputs: Vec<String>,
    /// Status of each job when it was first seen as completed.
    pub(super) completed: BTreeMap<String, Value>,
    /// True if no job of the action is expected to change any more.
    pub(super) is_final: bool,
}

/// Way in which versions are written to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// SET: each version replaces the previous one.
    Value,
    /// RPUSH: each version is appended.
    List,
}

/// The versions 1, 2, 3 … of a key. All versions are written over one connection, because commands
/// of different connections have no order.
#[derive(Clone)]
pub(super) struct KeyVersions {
    pub(super) key: String,
    pub(super) kind: Kind,
    /// Last version that was acknowledged together with all before it.
    pub(super) acknowledged: u64,
    /// Last version that was sent.
    pub(super) sent: u64,
}

impl ChaosLedger {
    /// Locks the content. The caller must not wait for agq while the caller has the lock.
    pub(super) fn content(&self) -> MutexGuard<'_, LedgerContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts acknowledgements.
    pub(super) fn acknowledged(&self, kind: &'static str, by: usize) {
        *self.content().acknowledged.entry(kind).or_default() += by as u64;
    }

    /// Counts a fault.
    pub(super) fn fault(&self, kind: &'static str) {
        *self.content().faults.entry(kind).or_default() += 1;
    }

    /// Counts another event.
    pub(super) fn note(&self, kind: &'static str) {
        *self.content().notes.entry(kind).or_default() += 1;
    }

    /// Records a guarantee that agq has broken.
    pub(super) fn lost(&self, loss: String) {
        self.content().lost.insert(loss);
    }

    /// Records an acknowledged action.
    pub(super) fn action(&self, id: &str, inputs: Vec<String>) {
        self.acknowledged("actions", 1);
        self.acknowledged("jobs", inputs.len());
        let action = AcknowledgedAction { inputs, completed: BTreeMap::new(), is_final: false };
        self.content().actions.insert(id.to_owned(), action);
    }

    /// Returns the ids of actions whose jobs are still expected to change.
    pub(super) fn pending_actions(&self) -> Vec<String> {
        let content = self.content();
        let open = content.actions.iter().filter(|(_, action)| !action.is_final);
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Returns true if the load has to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the load.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl LedgerContent {
    /// Returns the number of jobs that were seen as completed.
    pub(super) fn completed(&self) -> usize {
        self.actions.values().map(|action| action.completed.len()).sum()
    }
}
