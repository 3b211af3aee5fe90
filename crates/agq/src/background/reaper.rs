//! Reaper: expires leases, workers, keys and old jobs, and runs schedules and workflows. Each round
//! does what no command triggers. Workflows advance beside the rounds.
//!
//! The clock may jump. Time that passes unobserved, because the machine slept, counts neither
//! against workers nor against attempts. After the clock was set back, deadlines are computed
//! again, because they come from a later time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agenix_protocol::time::Timestamp;
use agenix_rules::{
    job::{self, Job, JobState, RuleOutcome},
    worker::{self, Liveness, Worker},
};
use futures_util::future::join3;
use tracing::{debug, error, warn};

use super::{
    orphaned_jobs::requeue_orphaned_jobs,
    pause_detector::{ExtendedAttempts, PauseDetector},
};
use crate::{
    app::AppState,
    error::Result,
    redis,
    service::{
        approval_decisions::ApprovalRounds,
        chunked_submission::StalledSubmissions,
        closed_connections::release_unreturned,
        halting,
        job_changes::if_exists,
        limits, schedules,
        timers::{TimerRule, fire_due_jobs},
        worker_messages::publish_worker_event,
        workflow::{self, WorkflowRetention},
    },
    store::{AckLevel, Retention, UnusedRecords},
};

/// Maximum time between two rounds, after which a retry or a lost worker is noticed. A crash loses
/// at most the claims and heartbeats of this time.
const MAX_ROUND_INTERVAL_MS: u64 = 500;
/// Maximum number of due jobs in one write, because other writes wait for it.
const MAX_DUE: usize = 1000;
/// Maximum number of writes of due jobs in a round.
const MAX_DUE_STEPS: usize = 50;
/// Number of ended jobs that one write deletes. Other writes get their turn between two such
/// writes.
const PRUNE_STEP: usize = 100;
/// Maximum number of writes that delete ended jobs in a round.
const MAX_PRUNE_STEPS: usize = 20;

pub(crate) async fn run(app: Arc<AppState>) {
    let interval = MAX_ROUND_INTERVAL_MS.min(app.settings.heartbeat_interval_ms / 4).max(10);
    let interval = Duration::from_millis(interval);
    let detector = PauseDetector::new(app.clock.now(), app.settings.heartbeat_interval_ms);
    // The detector also reads the clock during a long round.
    let observing = async {
        loop {
            app.clock.sleep(interval).await;
            detector.observe(app.clock.now());
        }
    };
    let reaping = async {
        let mut reaper = Reaper::new(&app, &detector);
        loop {
            reaper.tick().await;
            app.clock.sleep(interval).await;
        }
    };
    // A workflow that hands outputs on reads blobs, and leases must not wait for their storage.
    let advancing = async {
        loop {
            app.clock.sleep(interval).await;
            if app.store.leads()
                && let Err(error) = workflow::advance_all(&app).await
            {
                error!(%error, "the workflows could not be advanced; the next round tries again");
            }
        }
    };
    join3(reaping, observing, advancing).await;
}

/// Acts on the leader of several nodes only, except for the connections and waiters of its own
/// node.
struct Reaper<'r> {
    app: &'r AppState,
    detector: &'r PauseDetector,
    corrections: Corrections,
    extended: ExtendedAttempts,
    stalled_submissions: StalledSubmissions,
    approvals: ApprovalRounds,
    workflows: WorkflowRetention,
}

/// Corrections that a change of the clock or of the leader makes necessary.
#[derive(Debug, PartialEq, Eq)]
struct Corrections {
    is_leader: bool,
    /// True until all deadlines have been computed again, because they may come from a later time.
    needs_deadlines: bool,
}

impl Corrections {
    /// The clock may have been set back while agq was not running.
    fn after_start(is_leader: bool) -> Self {
        Self { is_leader, needs_deadlines: true }
    }

    fn clock_was_set_back(&mut self) {
        self.needs_deadlines = true;
    }

    /// Returns true for a new leader. A new leader begins as after a start, because it does not
    /// know what the earlier leader observed.
    fn observe_leadership(&mut self, leads: bool) -> bool {
        let is_new = leads && !self.is_leader;
        if is_new {
            self.needs_deadlines = true;
        }
        self.is_leader = leads;
        is_new
    }
}

impl<'r> Reaper<'r> {
    fn new(app: &'r AppState, detector: &'r PauseDetector) -> Self {
        let corrections = Corrections::after_start(app.store.leads());
        Self {
            app,
            detector,
            corrections,
            extended: ExtendedAttempts::default(),
            stalled_submissions: StalledSubmissions::default(),
            approvals: ApprovalRounds::default(),
            workflows: WorkflowRetention::default(),
        }
    }

    /// Logs errors, because the next round tries again.
    async fn tick(&mut self) {
        // The clock may have gone forward and back again since the last round.
        let (latest, now) = self.app.clock.latest_and_now();
        self.detector.observe(now);
        if now < latest {
            warn!(
                ms = latest.ms_since(now),
                "the clock was set back; silences of workers and waits of jobs are counted from now on"
            );
            self.detector.listen_from(now);
            self.corrections.clock_was_set_back();
        }
        self.app.backups.expire(now);
        if let Err(error) = release_unreturned(self.app).await {
            debug!(%error, "claims of closed connections could not be returned; the next round tries again");
        }
        let leads = self.app.store.leads();
        if self.corrections.observe_leadership(leads) {
            self.detector.subtract_unseen(u64::MAX);
            self.extended.clear();
            self.detector.listen_from(now);
        }
        if !leads {
            // No other node wakes the waiters of this node when only time has passed.
            if let Err(error) = limits::wake_waiting(self.app).await {
                debug!(%error, "waiters under limits could not be woken; the next round tries again");
            }
            return;
        }
        self.correct_times().await;
        if let Err(error) = self.make_round().await {
            error!(%error, "a round of the reaper failed; the next one tries again");
        }
    }

    /// Gives attempts the unobserved time back, and computes deadlines again after a set-back
    /// clock.
    async fn correct_times(&mut self) {
        let unseen_ms = self.detector.unseen_ms();
        if unseen_ms > 0 {
            match extend_after_pause(self.app, unseen_ms, &mut self.extended).await {
                Ok(()) => {
                    self.detector.subtract_unseen(unseen_ms);
                    self.extended.clear();
                }
                Err(error) => error!(%error, "attempts could not be extended; the next round tries again"),
            }
        }
        if self.corrections.needs_deadlines {
            match recompute_deadlines(self.app).await {
                Ok(()) => self.corrections.needs_deadlines = false,
                Err(error) => {
                    error!(%error, "deadlines could not be computed again; the next round tries again");
                }
            }
        }
    }

    async fn make_round(&mut self) -> Result<()> {
        let app = self.app;
        // Due jobs come first, because they must not wait for the rest of the round.
        for _step in 0..MAX_DUE_STEPS {
            let asked_at = app.clock.now();
            self.detector.observe(asked_at);
            // Attempts that have not been extended yet must not end.
            let is_extended = self.detector.unseen_ms() == 0;
            let due_rule: TimerRule = if is_extended { job::due } else { job::due_while_waiting };
            let fired = fire_due_jobs(app, due_rule, MAX_DUE).await;
            self.detector.observe_store(asked_at, app.clock.now(), fired.is_err());
            if fired? < MAX_DUE {
                break;
            }
        }
        expire_silent_workers(app, self.detector).await?;
        requeue_orphaned_jobs(app).await?;
        limits::wake_waiting(app).await?;
        halting::advance_all(app).await?;
        self.approvals.advance_due(app).await?;
        self.stalled_submissions.continue_stalled(app).await?;
        schedules::run_due(app).await?;
        prune_old_jobs(app).await?;
        for _step in 0..MAX_DUE_STEPS {
            if redis::expire(&*app.store, app.clock.now(), MAX_DUE).await? < MAX_DUE {
                break;
            }
        }
        // Claims and heartbeats are acknowledged before they are synced, so they are synced here.
        app.store.sync().await?;
        if app.throughput.is_due(app.clock.now()) {
            app.throughput.add_sample(app.clock.now(), &app.store.totals().await?);
            let keep = retention(app);
            self.workflows.forget_some(app, keep.ended_since, keep.dead_since).await?;
            let unused = app.store.unused(app.clock.now()).await?;
            if unused != UnusedRecords::default() {
                app.store.forget_unused(unused).await?;
            }
        }
        Ok(())
    }
}

/// Declares silent workers dead (worker spec §5.3). [`requeue_orphaned_jobs`] gives their jobs to
/// other workers.
async fn expire_silent_workers(app: &AppState, detector: &PauseDetector) -> Result<()> {
    let silence_ms = app.settings.silence_ms();
    let asked_at = app.clock.now();
    let workers = app.store.worker_records().await;
    detector.observe_store(asked_at, app.clock.now(), workers.is_err());
    for worker in workers? {
        let now = app.clock.now();
        let listening_since = detector.observe(now);
        if worker.liveness == Liveness::Dead {
            prune_dead_worker(app, &worker, now).await?;
            continue;
        }
        if !worker::is_silent(&worker, now, listening_since, silence_ms) {
            continue;
        }
        let silent_ms = now.ms_since(worker.last_seen_at);
        // The rule checks again, because a heartbeat may have come since the record was read.
        let rule = move |known: Option<&Worker>| {
            let silent = |worker: &&Worker| worker::is_silent(worker, now, listening_since, silence_ms);
            Ok(known.filter(silent).map(worker::dead))
        };
        let worker_id = &worker.worker_id;
        app.store.decide_worker(worker_id, AckLevel::Durable, None, Box::new(rule)).await??;
        let after = app.store.worker(worker_id).await?;
        if after.is_some_and(|worker| worker.liveness == Liveness::Dead) {
            let jobs = app.store.held_by(worker_id.as_str()).await?.len();
            app.outcomes.forget(worker_id);
            warn!(%worker_id, silent_ms, jobs, "a worker sent no heartbeat in time and is declared dead");
            app.waiters.evict(worker_id.as_str());
            publish_worker_event(app, worker_id, "dead");
        }
    }
    Ok(())
}

/// Deletes the record of a dead worker after `keep_dead_ms`, which allows the analysis of failures.
async fn prune_dead_worker(app: &AppState, worker: &Worker, now: Timestamp) -> Result<()> {
    let keep_ms = app.settings.keep_dead_ms;
    if keep_ms == 0 || now.ms_since(worker.last_seen_at) <= keep_ms {
        return Ok(());
    }
    if app.store.forget_worker(&worker.worker_id, Timestamp(now.0.saturating_sub(keep_ms))).await? {
        app.capabilities.forget(&worker.worker_id);
        app.outcomes.forget(&worker.worker_id);
    }
    Ok(())
}

/// Extends all active attempts by `unseen_ms`, the time that passed unobserved, apart from what
/// earlier calls have `extended`.
async fn extend_after_pause(app: &AppState, unseen_ms: u64, extended: &mut ExtendedAttempts) -> Result<()> {
    app.store.wait_until_applied().await?;
    let now = app.clock.now();
    let is_active = |job: &Job| job.state == JobState::Active;
    for job in app.store.pending_timers(Timestamp(0), Box::new(is_active)).await? {
        // An attempt that began after the pause is not extended.
        let (attempt, missing_ms) = (job.attempt, extended.missing_ms(&job, unseen_ms));
        let rule = move |job: Option<&Job>| {
            let same = job.filter(|job| job.attempt == attempt);
            Ok(same.map_or(RuleOutcome::Unchanged, |job| job::extended_after_pause(job, missing_ms, now)))
        };
        app.store.decide(&job.job_id, AckLevel::Applied, None, Box::new(rule)).await??;
        extended.record(&job, unseen_ms);
    }
    Ok(())
}

/// Computes deadlines again after the clock was set back, because they come from a later time.
async fn recompute_deadlines(app: &AppState) -> Result<()> {
    // Writes that are not applied yet have deadlines of the old clock.
    app.store.wait_until_applied().await?;
    let now = app.clock.now();
    let ahead = app.store.pending_timers(now, Box::new(move |job| job::is_timed_ahead(job, now))).await?;
    let mut delays = BTreeMap::new();
    schedules::reschedule_all(app).await?;
    limits::reschedule_all(app).await?;
    for step in ahead.chunks(MAX_DUE) {
        let mut answers = Vec::with_capacity(step.len());
        for job in step {
            if !delays.contains_key(&job.action_id) {
                let action = app.store.action(&job.action_id).await?;
                delays.insert(&job.action_id, action.and_then(|(action, _)| action.wishes.delay_ms));
            }
            let delay_ms = delays.get(&job.action_id).copied().flatten();
            // A time that a client named stays.
            if job::rescheduled(job, delay_ms, now) == RuleOutcome::Unchanged {
                continue;
            }
            let rule = if_exists(move |job| job::rescheduled(job, delay_ms, now));
            answers.push(app.store.decide(&job.job_id, AckLevel::Durable, None, rule));
        }
        for answer in answers {
            answer.await??;
        }
    }
    Ok(())
}

/// Returns the times since which records are kept. A time of 0 keeps all.
fn retention(app: &AppState) -> Retention {
    let (now, settings) = (app.clock.now(), &app.settings);
    let before =
        |keep_ms: u64| if keep_ms == 0 { Timestamp(0) } else { Timestamp(now.0.saturating_sub(keep_ms)) };
    Retention {
        ended_since: before(settings.keep_ended_ms),
        dead_since: before(settings.keep_dead_ms),
        count: settings.keep_ended_count,
    }
}

async fn prune_old_jobs(app: &AppState) -> Result<()> {
    let keep = retention(app);
    if !app.store.is_prunable(keep).await? {
        return Ok(());
    }
    for _step in 0..MAX_PRUNE_STEPS {
        if app.store.prune(keep, PRUNE_STEP).await? < PRUNE_STEP {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Corrections;

    #[test]
    fn reaper_computes_deadlines_again_after_a_start_and_after_the_clock_was_set_back() {
        let mut corrections = Corrections::after_start(true);
        assert!(corrections.needs_deadlines, "the clock may have been set back before the start");
        corrections.needs_deadlines = false;
        corrections.clock_was_set_back();
        assert!(corrections.needs_deadlines);
    }

    #[test]
    fn reaper_begins_as_after_a_start_when_its_node_becomes_the_leader() {
        let mut corrections = Corrections { is_leader: true, needs_deadlines: false };
        assert!(!corrections.observe_leadership(true), "it was the leader before");
        assert!(!corrections.observe_leadership(false));
        assert!(!corrections.needs_deadlines, "only a leader corrects");
        assert!(corrections.observe_leadership(true));
        assert!(corrections.needs_deadlines);
        corrections.needs_deadlines = false;
        assert!(!corrections.observe_leadership(true), "it is the leader for more than one round");
        assert!(!corrections.needs_deadlines);
    }
}
