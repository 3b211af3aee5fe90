//! What a store tells those who wait: that there is something to take, and, where someone listens, what changed.

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

/// Most news that wait to be told; more are forgotten, the oldest first.
const MAX_NEWS: usize = 100_000;

/// What a batch of writes made available, and changed.
#[derive(Debug, Default)]
pub(crate) struct BatchEvents {
    /// Jobs became ready.
    pub(crate) jobs: bool,
    /// Actions halted.
    pub(crate) halts: bool,
    /// Lists that got elements.
    pub(crate) lists: HashSet<Bytes>,
    /// What changed; empty where nobody listens.
    pub(crate) news: Vec<ChangeEvent>,
}

impl BatchEvents {
    /// Something changed; of more than can be told, the oldest is forgotten.
    pub(crate) fn tell(&mut self, news: ChangeEvent) {
        if self.news.len() >= 2 * MAX_NEWS {
            self.news.drain(..MAX_NEWS);
        }
        self.news.push(news);
    }
}

/// Lists that are worth a look.
#[derive(Debug, Default)]
pub(crate) struct ListPushes {
    /// Those that got elements.
    pub(crate) lists: HashSet<Bytes>,
    /// Whether any may have got some.
    pub(crate) any: bool,
}

/// Something that changed.
#[derive(Debug, Clone)]
pub(crate) enum ChangeEvent {
    /// A job, as it is now.
    Job {
        job: Box<Job>,
        /// Where it stood before.
        was: Option<JobState>,
        /// Whether its worker has reported progress.
        has_progressed: bool,
        /// Whether someone listens, here or elsewhere. What comes by the Open Job Spec is remembered all the same.
        is_heard: bool,
    },
    /// An action, as it is now.
    Action(Box<Action>, JobCounts),
}

/// Collects arrivals until the matchmakers look. What came before they look is not missed.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotifier {
    jobs: Notify,
    halts: Notify,
    lists: Notify,
    pushed: Mutex<ListPushes>,
    told: Notify,
    news: Mutex<Vec<ChangeEvent>>,
    is_heard: AtomicBool,
    heard_changed: Notify,
    jobs_are_wanted: AtomicBool,
    lists_are_wanted: AtomicBool,
}

impl ChangeNotifier {
    /// Something can be taken from now on.
    pub(crate) fn announce(&self, mut arrived: BatchEvents) {
        if arrived.jobs && self.jobs_are_wanted.load(Ordering::SeqCst) {
            self.jobs.notify_one();
        }
        if arrived.halts {
            self.halts.notify_one();
        }
        if !arrived.lists.is_empty() && self.lists_are_wanted.load(Ordering::SeqCst) {
            lock(&self.pushed).lists.extend(arrived.lists);
            self.lists.notify_one();
        }
        if !arrived.news.is_empty() {
            let mut news = lock(&self.news);
            news.append(&mut arrived.news);
            let excess = news.len().saturating_sub(MAX_NEWS);
            news.drain(..excess);
            self.told.notify_one();
        }
    }

    /// Anything may have come: others share the store, and what they tell may be lost.
    pub(crate) fn announce_all(&self) {
        if self.jobs_are_wanted.load(Ordering::SeqCst) {
            self.jobs.notify_one();
        }
        if self.lists_are_wanted.load(Ordering::SeqCst) {
            lock(&self.pushed).any = true;
            self.lists.notify_one();
        }
    }

    /// Whether anyone waits for jobs: nobody is woken for them else. To be said before the last look.
    pub(crate) fn set_job_interest(&self, are_wanted: bool) {
        self.jobs_are_wanted.store(are_wanted, Ordering::SeqCst);
    }

    /// Whether anyone waits for elements of lists, in the same way.
    pub(crate) fn set_list_interest(&self, are_wanted: bool) {
        self.lists_are_wanted.store(are_wanted, Ordering::SeqCst);
    }

    /// Waits until jobs became ready.
    pub(crate) async fn jobs(&self) {
        self.jobs.notified().await;
    }

    /// Waits until an action has halted.
    pub(crate) async fn halts(&self) {
        self.halts.notified().await;
    }

    /// Waits until lists got elements, and names them.
    pub(crate) async fn lists(&self) -> ListPushes {
        self.lists.notified().await;
        mem::take(&mut *lock(&self.pushed))
    }

    /// Waits until something changed, in the order in which it did.
    pub(crate) async fn changes(&self) -> Vec<ChangeEvent> {
        self.told.notified().await;
        mem::take(&mut *lock(&self.news))
    }

    /// Whether anyone wants the news: they cost something to collect.
    pub(crate) fn set_subscribers(&self, is_heard: bool) {
        if self.is_heard.swap(is_heard, Ordering::Relaxed) != is_heard {
            self.heard_changed.notify_one();
        }
    }

    /// Waits until that has changed.
    pub(crate) async fn subscribers_changed(&self) {
        self.heard_changed.notified().await;
    }

    /// Whether anyone wants the news.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
