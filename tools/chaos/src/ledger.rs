//! What agq has acknowledged, and what was seen of it. Written by everybody, read at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

/// The ledger.
#[derive(Default)]
pub(super) struct Ledger {
    book: Mutex<Book>,
    is_over: AtomicBool,
}

/// What stands in it.
#[derive(Default)]
pub(super) struct Book {
    /// Actions whose submission was acknowledged, by their ids.
    pub(super) actions: BTreeMap<String, Action>,
    /// The keys that were written.
    pub(super) streams: Vec<Stream>,
    /// How often something was acknowledged.
    pub(super) acknowledged: BTreeMap<&'static str, u64>,
    /// How often something was done to somebody.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// What else is worth to be known.
    pub(super) notes: BTreeMap<&'static str, u64>,
    /// What agq owes.
    pub(super) lost: BTreeSet<String>,
}

/// An action that was acknowledged.
#[derive(Clone)]
pub(super) struct Action {
    /// The value of each input, in their order.
    pub(super) inputs: Vec<String>,
    /// The status of each job that was seen completed, as it was seen.
    pub(super) completed: BTreeMap<String, Value>,
    /// Whether nothing more is expected of it.
    pub(super) is_settled: bool,
}

/// How versions are written to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// SET: each version replaces the one before.
    Value,
    /// RPUSH: each version stands behind the one before.
    List,
}

/// The versions 1, 2, 3 … of one key, all written over one connection: a second one could overtake the first on its way.
#[derive(Clone)]
pub(super) struct Stream {
    pub(super) key: String,
    pub(super) kind: Kind,
    /// The last version of those that were acknowledged one after the other.
    pub(super) acknowledged: u64,
    /// The last version that was sent.
    pub(super) sent: u64,
}

impl Ledger {
    /// Opens the book; nobody may wait for agq while it is open.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that so many of something were acknowledged.
    pub(super) fn acknowledged(&self, what: &'static str, by: usize) {
        *self.book().acknowledged.entry(what).or_default() += by as u64;
    }

    /// Notes a fault.
    pub(super) fn fault(&self, what: &'static str) {
        *self.book().faults.entry(what).or_default() += 1;
    }

    /// Notes something else.
    pub(super) fn note(&self, what: &'static str) {
        *self.book().notes.entry(what).or_default() += 1;
    }

    /// Notes that agq owes something.
    pub(super) fn lost(&self, what: String) {
        self.book().lost.insert(what);
    }

    /// An action was acknowledged.
    pub(super) fn action(&self, id: &str, inputs: Vec<String>) {
        self.acknowledged("actions", 1);
        self.acknowledged("jobs", inputs.len());
        let action = Action { inputs, completed: BTreeMap::new(), is_settled: false };
        self.book().actions.insert(id.to_owned(), action);
    }

    /// The actions of which something is still expected.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let book = self.book();
        let open = book.actions.iter().filter(|(_, action)| !action.is_settled);
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Whether the load is to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the load.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Book {
    /// How many jobs were seen completed.
    pub(super) fn completed(&self) -> usize {
        self.actions.values().map(|action| action.completed.len()).sum()
    }
}
