//! State that every command works with: store, waiters, clock, settings, registries and caches.

mod caller;
mod capability_cache;
mod outcome_tracker;
mod plan_policy;
mod unended_steps;

use std::sync::Arc;

use agenix_protocol::{documents::PlanCache, time::Timestamp};

pub(crate) use self::{
    caller::{Agent, Caller, Submitter, connection_name, is_connection, node_of},
    capability_cache::CapabilityCache,
    outcome_tracker::OutcomeTracker,
    plan_policy::{PlanDecision, PlanPolicy, Question},
    unended_steps::UnendedSteps,
};
use crate::{
    auth::audit_log::AuditLog,
    blobs::{BlobStorage, uploads::Uploads},
    clock::Clock,
    registry::{
        backups::Backups, budgets::Budgets, challenges::Challenges, connections::ConnectionRegistry,
        event_log::EventLog, job_times::JobTimes, last_figures::LastFigures, late_timers::LateTimers,
        pubsub::PubSub, queue_limits::QueueLimitCache, shares::Shares, step_locks::StepLocks,
        throughput::Throughput, unreturned_claims::UnreturnedClaims,
    },
    settings::ServiceSettings,
    store::{GroupCommit, Store},
    waiters::Waiters,
};

pub(crate) struct AppState {
    /// Group commit of the store, if connections commit writes on their own threads.
    pub(crate) group_commit: Option<Arc<GroupCommit>>,
    pub(crate) store: Arc<dyn Store>,
    /// Storage of blobs, or `None` if this agq stores none.
    pub(crate) blobs: Option<Arc<dyn BlobStorage>>,
    pub(crate) uploads: Uploads,
    pub(crate) waiters: Waiters,
    pub(crate) clock: Clock,
    pub(crate) capabilities: CapabilityCache,
    pub(crate) plans: PlanCache,
    pub(crate) outcomes: OutcomeTracker,
    pub(crate) unended_steps: UnendedSteps,
    pub(crate) step_locks: StepLocks,
    pub(crate) pubsub: PubSub,
    pub(crate) challenges: Challenges,
    pub(crate) backups: Backups,
    pub(crate) budgets: Budgets,
    pub(crate) shares: Shares,
    pub(crate) connections: ConnectionRegistry,
    pub(crate) events: EventLog,
    pub(crate) throughput: Throughput,
    pub(crate) unreturned_claims: UnreturnedClaims,
    pub(crate) job_times: JobTimes,
    pub(crate) last_figures: LastFigures,
    pub(crate) late_timers: LateTimers,
    pub(crate) queue_limits: QueueLimitCache,
    pub(crate) audit: AuditLog,
    pub(crate) plan_policy: PlanPolicy,
    pub(crate) settings: ServiceSettings,
    pub(crate) started_at: Timestamp,
}

impl AppState {
    /// Makes the store collect changes only while a subscriber exists, because that costs time.
    pub(crate) fn update_event_interest(&self) {
        self.pubsub.update_interest(|has_subscribers| self.store.notifier().set_subscribers(has_subscribers));
    }
}
