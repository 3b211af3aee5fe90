//! Builds the application state on a store, and its background tasks.

use std::sync::Arc;

use agenix_protocol::documents::PlanCache;

use crate::{
    app::{AppState, CapabilityCache, OutcomeTracker, PlanPolicy, UnendedSteps},
    auth::audit_log::AuditLog,
    background::{blob_sweeper, event_publisher, reaper},
    blobs::{BlobStorage, uploads::Uploads},
    clock::Clock,
    registry::{
        backups::Backups, budgets::Budgets, challenges::Challenges, connections::ConnectionRegistry,
        event_log::EventLog, job_times::JobTimes, last_figures::LastFigures, late_timers::LateTimers,
        pubsub::PubSub, queue_limits::QueueLimitCache, shares::Shares, step_locks::StepLocks,
        throughput::Throughput, unreturned_claims::UnreturnedClaims,
    },
    service::halting,
    settings::ServiceSettings,
    store::{GroupCommit, Store},
    waiters::{BackgroundTask, Waiters},
};

/// Returns the application state on `store` and `blobs`, and the background tasks that must run
/// beside the commands. `group_commit` belongs to `store`.
pub(crate) fn build(
    store: Arc<dyn Store>,
    blobs: Option<Arc<dyn BlobStorage>>,
    group_commit: Option<Arc<GroupCommit>>,
    clock: Clock,
    audit: AuditLog,
    plan_policy: PlanPolicy,
    settings: ServiceSettings,
) -> (Arc<AppState>, Vec<BackgroundTask>) {
    let (waiters, waiter_tasks) =
        Waiters::new(&store, group_commit.clone(), &clock, settings.start_timeout_ms);
    let started_at = clock.now();
    let app = Arc::new(AppState {
        waiters,
        group_commit,
        store,
        blobs,
        uploads: Uploads::default(),
        started_at,
        clock,
        capabilities: CapabilityCache::default(),
        plans: PlanCache::default(),
        outcomes: OutcomeTracker::default(),
        unended_steps: UnendedSteps::default(),
        step_locks: StepLocks::default(),
        pubsub: PubSub::default(),
        challenges: Challenges::default(),
        backups: Backups::default(),
        budgets: Budgets::default(),
        shares: Shares::new(settings.share_terms.clone()),
        connections: ConnectionRegistry::default(),
        events: EventLog::new(started_at),
        throughput: Throughput::default(),
        unreturned_claims: UnreturnedClaims::default(),
        job_times: JobTimes::default(),
        last_figures: LastFigures::default(),
        late_timers: LateTimers::default(),
        queue_limits: QueueLimitCache::default(),
        audit,
        plan_policy,
        settings,
    });
    let mut tasks = Vec::from(waiter_tasks);
    tasks.push(Box::pin(reaper::run(Arc::clone(&app))));
    tasks.push(Box::pin(event_publisher::run(Arc::clone(&app))));
    tasks.push(Box::pin(halting::run(Arc::clone(&app))));
    tasks.push(Box::pin(blob_sweeper::run(Arc::clone(&app))));
    (app, tasks)
}

/// Returns the state of an agq with its database in `dir`, and drops its background tasks.
#[cfg(test)]
pub(crate) fn without_tasks(
    dir: &std::path::Path,
    adjust: impl FnOnce(&mut ServiceSettings),
) -> Arc<AppState> {
    with_policy(dir, PlanPolicy::default(), adjust)
}

/// Returns the state of an agq as [`without_tasks`] does, with an audit log.
#[cfg(test)]
pub(crate) fn with_audit_log(dir: &std::path::Path, audit: AuditLog) -> Arc<AppState> {
    for_tests(dir, (audit, PlanPolicy::default()), |_| {})
}

/// Returns the state of an agq as [`without_tasks`] does, with a policy.
#[cfg(test)]
pub(crate) fn with_policy(
    dir: &std::path::Path,
    plan_policy: PlanPolicy,
    adjust: impl FnOnce(&mut ServiceSettings),
) -> Arc<AppState> {
    for_tests(dir, (AuditLog::default(), plan_policy), adjust)
}

#[cfg(test)]
fn for_tests(
    dir: &std::path::Path,
    (audit, plan_policy): (AuditLog, PlanPolicy),
    adjust: impl FnOnce(&mut ServiceSettings),
) -> Arc<AppState> {
    let file = dir.join("agq.redb");
    let store = crate::store::redb::RedbStore::open(&file, crate::store::OpenOptions::default()).unwrap();
    let mut settings = crate::config::default_settings().unwrap();
    adjust(&mut settings);
    let blobs = crate::blobs::directory::BlobDirectory::open(&dir.join("blobs")).unwrap();
    build(Arc::new(store), Some(Arc::new(blobs)), None, Clock::default(), audit, plan_policy, settings).0
}
