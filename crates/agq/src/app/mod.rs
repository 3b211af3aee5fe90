//! State that every command works with: store, waiters, clock, settings, registries and caches.

mod caller;
mod capability_cache;
mod outcome_tracker;
mod unended_steps;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agenix_protocol::{documents::PlanCache, time::Timestamp};

pub(crate) use self::{
    caller::{Caller, connection_name, is_connection, node_of},
    capability_cache::CapabilityCache,
    outcome_tracker::OutcomeTracker,
    unended_steps::UnendedSteps,
};
use crate::{
    auth::audit_log::AuditLog,
    clock::Clock,
    registry::{
        backups::Backups, challenges::Challenges, connections::ConnectionRegistry, event_log::EventLog,
        last_figures::LastFigures, output_handovers::OutputHandovers, pubsub::PubSub,
        queue_limits::QueueLimitCache, throughput::Throughput,
    },
    settings::Settings,
    store::{GroupCommit, Store},
    waiters::Waiters,
};

/// State of one agq process, independent of the protocol.
pub(crate) struct AppState {
    /// Group commit of the store, if connections commit writes on their own threads.
    pub(crate) group_commit: Option<Arc<GroupCommit>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) waiters: Waiters,
    pub(crate) clock: Clock,
    pub(crate) abilities: CapabilityCache,
    pub(crate) plans: PlanCache,
    pub(crate) outcomes: OutcomeTracker,
    pub(crate) unended_steps: UnendedSteps,
    pub(crate) output_handovers: OutputHandovers,
    pub(crate) pubsub: PubSub,
    pub(crate) challenges: Challenges,
    pub(crate) backups: Backups,
    pub(crate) connections: ConnectionRegistry,
    pub(crate) events: EventLog,
    pub(crate) pace: Throughput,
    pub(crate) last_figures: LastFigures,
    pub(crate) bounds: QueueLimitCache,
    pub(crate) audit: AuditLog,
    pub(crate) settings: Settings,
    /// Start of this agq.
    pub(crate) started_at: Timestamp,
}

impl AppState {
    /// Tells the store to collect change notifications only while a subscriber exists, because
    /// collecting them costs time.
    pub(crate) fn update_event_interest(&self) {
        self.pubsub.update_interest(|has_subscribers| self.store.notifier().set_subscribers(has_subscribers));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
