//! Change notifier: after each commit, a store wakes tasks that wait for jobs or list elements, and
//! collects change events for subscribers.

use std::{
    collections::HashSet,
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use agenix_rules::{
    action::{Action, JobCounts},
    job::{Job, JobState},
};
use bytes::Bytes;
use tokio::sync::Notify;

/// Maximum number of change events that wait for the publisher. The oldest events are dropped
/// first.
const MAX_EVENTS: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct BatchEvents {
    pub(crate) jobs: bool,
    pub(crate) halts: bool,
    /// Lists to which elements were added.
    pub(crate) lists: HashSet<Bytes>,
    /// Changes of jobs and actions; empty if no client subscribes.
    pub(crate) changes: Vec<ChangeEvent>,
}

impl BatchEvents {
    /// Records a change event. Drops the oldest events if the batch has too many.
    pub(crate) fn record(&mut self, change: ChangeEvent) {
        if self.changes.len() >= 2 * MAX_EVENTS {
            self.changes.drain(..MAX_EVENTS);
        }
        self.changes.push(change);
    }

    /// Records the change of a job if a client of any node subscribes. Jobs of the Open Job Spec
    /// are recorded in any case.
    pub(crate) fn record_job(&mut self, before: Option<&Job>, job: &Job, has_subscribers: bool) {
        if has_subscribers || job.ojs.is_some() {
            self.record(ChangeEvent::Job {
                job: Box::new(job.clone()),
                was: before.map(|before| before.state),
                has_progressed: before.is_some_and(|before| job.has_progressed_since(before)),
                has_subscribers,
            });
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ListPushes {
    pub(crate) lists: HashSet<Bytes>,
    /// True if any other list may have new elements, too.
    pub(crate) any: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum ChangeEvent {
    Job {
        job: Box<Job>,
        /// State before the change; `None` if the job is new.
        was: Option<JobState>,
        /// True if the worker has reported progress.
        has_progressed: bool,
        /// True if a client of any node subscribes.
        has_subscribers: bool,
    },
    Action(Box<Action>, JobCounts),
}

/// Announces changes to the waiters and the event publisher. A change that is announced before a
/// task waits is not missed: the next wait returns at once.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotifier {
    jobs: Notify,
    halts: Notify,
    lists: Notify,
    pushed: Mutex<ListPushes>,
    changed: Notify,
    changes: Mutex<Vec<ChangeEvent>>,
    has_subscribers: AtomicBool,
    subscribers_changed: Notify,
    jobs_are_wanted: AtomicBool,
    lists_are_wanted: AtomicBool,
}

impl ChangeNotifier {
    pub(crate) fn announce(&self, mut arrived: BatchEvents) {
        if arrived.jobs {
            self.announce_jobs();
        }
        if arrived.halts {
            self.halts.notify_one();
        }
        if !arrived.lists.is_empty() && self.lists_are_wanted.load(Ordering::SeqCst) {
            lock(&self.pushed).lists.extend(arrived.lists);
            self.lists.notify_one();
        }
        if !arrived.changes.is_empty() {
            let mut changes = lock(&self.changes);
            changes.append(&mut arrived.changes);
            let excess = changes.len().saturating_sub(MAX_EVENTS);
            changes.drain(..excess);
            self.changed.notify_one();
        }
    }

    /// Wakes the waiters for jobs without an event.
    pub(crate) fn announce_jobs(&self) {
        if self.jobs_are_wanted.load(Ordering::SeqCst) {
            self.jobs.notify_one();
        }
    }

    /// Wakes all waiters without an event, because notifications of other nodes may be lost.
    pub(crate) fn announce_all(&self) {
        self.announce_jobs();
        if self.lists_are_wanted.load(Ordering::SeqCst) {
            lock(&self.pushed).any = true;
            self.lists.notify_one();
        }
    }

    /// Enables or disables wake-ups for ready jobs. Enable the wake-ups before the final check for
    /// a job; otherwise a wake-up can be missed.
    pub(crate) fn set_job_interest(&self, are_wanted: bool) {
        self.jobs_are_wanted.store(are_wanted, Ordering::SeqCst);
    }

    /// Enables or disables wake-ups for lists; see [`set_job_interest`](Self::set_job_interest).
    pub(crate) fn set_list_interest(&self, are_wanted: bool) {
        self.lists_are_wanted.store(are_wanted, Ordering::SeqCst);
    }

    pub(crate) async fn jobs(&self) {
        self.jobs.notified().await;
    }

    pub(crate) async fn halts(&self) {
        self.halts.notified().await;
    }

    pub(crate) async fn lists(&self) -> ListPushes {
        self.lists.notified().await;
        mem::take(&mut *lock(&self.pushed))
    }

    /// Waits for changes, and returns them in the order in which they were committed.
    pub(crate) async fn changes(&self) -> Vec<ChangeEvent> {
        self.changed.notified().await;
        mem::take(&mut *lock(&self.changes))
    }

    /// Enables or disables the collection of change events, which costs time in each write.
    pub(crate) fn set_subscribers(&self, has_subscribers: bool) {
        if self.has_subscribers.swap(has_subscribers, Ordering::Relaxed) != has_subscribers {
            self.subscribers_changed.notify_one();
        }
    }

    pub(crate) async fn subscribers_changed(&self) {
        self.subscribers_changed.notified().await;
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        self.has_subscribers.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
