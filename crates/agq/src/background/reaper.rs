//! The janitor: notices what nobody reports. Workers that fell silent, jobs whose time has come.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::{
    job::{self, Job, JobState, RuleOutcome},
    worker::{self, Liveness, Worker},
};
use futures_util::future::join;
use tracing::{error, info, warn};

use super::pause_detector::PauseDetector;
use crate::{
    app::{AppState, is_connection, node_of},
    error::CommandError,
    redis,
    service::{
        chunked_submission::StalledSubmissions, halting, job_changes::release_all, jobs::requeue_lost,
        limits, schedules, timers::fire_due_jobs, worker_messages::publish_worker_event, workers::detach,
        workflow,
    },
    store::{AckLevel, JobRule, Retention, UnusedRecords},
};

/// Longest time between two rounds: how late a retry or a lost worker may be noticed, and how much a crash may forget
/// of claims and heartbeats.
const LONGEST_ROUND_MS: u64 = 500;
/// Most due jobs that are taken at once, so that the writer is never kept for long.
const MAX_DUE: usize = 1000;
/// How often that is done in a round at most.
const MAX_DUE_STEPS: usize = 50;
/// How many ended jobs are forgotten in one write: others get their turn between two.
const PRUNE_STEP: usize = 100;
/// How many such writes a round has at most.
const MAX_PRUNE_STEPS: usize = 20;

/// Makes its rounds until it is dropped.
pub(crate) async fn run(app: Arc<AppState>) {
    let round = LONGEST_ROUND_MS.min(app.settings.heartbeat_interval_ms / 4).max(10);
    let watch = PauseDetector::new(app.clock.now(), app.settings.heartbeat_interval_ms);
    let watching = async {
        loop {
            app.clock.sleep(Duration::from_millis(round)).await;
            watch.observe(app.clock.now());
        }
    };
    join(make_rounds(&app, &watch, round), watching).await;
}

async fn make_rounds(app: &AppState, watch: &PauseDetector, round: u64) {
    // It may have been set back while agq was away.
    let mut was_set_back = true;
    let mut leads = app.store.leads();
    let mut abandoned = StalledSubmissions::default();
    loop {
        // Between two rounds the clock may have gone forward and back again.
        let (latest, now) = app.clock.latest_and_now();
        watch.observe(now);
        if now < latest {
            warn!(
                ms = latest.ms_since(now),
                "the clock was set back; the silence of workers and what jobs wait for count from now"
            );
            watch.listen_from(now);
            was_set_back = true;
        }
        app.backups.expire(now);
        if !app.store.leads() {
            // Another agq sees to it.
            leads = false;
            app.clock.sleep(Duration::from_millis(round)).await;
            continue;
        }
        if !leads {
            // What the one before knew is not known here: it is as if agq had just started.
            watch.excused(u64::MAX);
            watch.listen_from(now);
            (leads, was_set_back) = (true, true);
        }
        let unseen_ms = watch.unseen_ms();
        if unseen_ms > 0 {
            match extend_after_pause(app, unseen_ms).await {
                Ok(()) => watch.excused(unseen_ms),
                Err(error) => error!(%error, "attempts could not be excused; the next round tries again"),
            }
        }
        if was_set_back {
            match recompute_deadlines(app).await {
                Ok(()) => was_set_back = false,
                Err(error) => {
                    error!(%error, "what jobs wait for could not be reckoned anew; the next round tries again");
                }
            }
        }
        if let Err(error) = make_round(app, watch, &mut abandoned).await {
            error!(%error, "a round of the reaper failed; the next one tries again");
        }
        app.clock.sleep(Duration::from_millis(round)).await;
    }
}

async fn make_round(
    app: &AppState,
    watch: &PauseDetector,
    abandoned: &mut StalledSubmissions,
) -> Result<(), CommandError> {
    // Jobs whose time has come must not wait for the rest of the round.
    for _step in 0..MAX_DUE_STEPS {
        if fire_due_jobs(app, MAX_DUE).await? < MAX_DUE {
            break;
        }
    }
    expire_silent_workers(app, watch).await?;
    requeue_orphaned_jobs(app).await?;
    limits::wake_waiting(app).await?;
    halting::advance_all(app).await?;
    abandoned.look_after(app).await?;
    schedules::run_due(app).await?;
    workflow::advance_all(app).await?;
    prune_old_jobs(app).await?;
    if app.pace.is_due(app.clock.now()) {
        app.pace.note(app.clock.now(), &app.store.totals().await?);
        prune_old_workflows(app).await?;
        app.store.forget_limits(app.clock.now()).await?;
        let unused = app.store.unused(app.clock.now()).await?;
        if unused != UnusedRecords::default() {
            app.store.forget_unused(unused).await?;
        }
    }
    for _step in 0..MAX_DUE_STEPS {
        if redis::expire(&*app.store, app.clock.now(), MAX_DUE).await? < MAX_DUE {
            break;
        }
    }
    // Claims and heartbeats of the last moments reach the disk, when there were any.
    app.store.sync().await?;
    Ok(())
}

/// Workers that were not heard of in time are dead; their jobs go to others (worker spec §5.3).
async fn expire_silent_workers(app: &AppState, watch: &PauseDetector) -> Result<(), CommandError> {
    let silence_ms = app.settings.silence_ms();
    for worker in app.store.worker_records().await? {
        let now = app.clock.now();
        let listening_since = watch.observe(now);
        if worker.standing == Liveness::Dead {
            prune_dead_worker(app, &worker, now).await?;
            continue;
        }
        if !worker::is_silent(&worker, now, listening_since, silence_ms) {
            continue;
        }
        let silent_ms = now.ms_since(worker.last_seen_at);
        // It may have been heard of since it was read.
        let rule = move |known: Option<&Worker>| {
            let silent = |worker: &&Worker| worker::is_silent(worker, now, listening_since, silence_ms);
            Ok(known.filter(silent).map(worker::dead))
        };
        let worker_id = &worker.worker_id;
        app.store.decide_worker(worker_id, AckLevel::Durable, None, Box::new(rule)).await??;
        let after = app.store.worker(worker_id).await?;
        if after.is_some_and(|worker| worker.standing == Liveness::Dead) {
            let jobs = app.store.held_by(worker_id.as_str()).await?.len();
            app.outcomes.forget(worker_id);
            warn!(%worker_id, silent_ms, jobs, "a worker fell silent and is taken for dead");
            app.waiters.evict(worker_id.as_str());
            publish_worker_event(app, worker_id, "dead");
        }
    }
    Ok(())
}

/// A dead worker is kept for whoever looks for what happened, as long as dead jobs are.
async fn prune_dead_worker(app: &AppState, worker: &Worker, now: Timestamp) -> Result<(), CommandError> {
    let keep_ms = app.settings.keep_dead_ms;
    if keep_ms == 0 || now.ms_since(worker.last_seen_at) <= keep_ms {
        return Ok(());
    }
    if app.store.forget_worker(&worker.worker_id, Timestamp(now.0.saturating_sub(keep_ms))).await? {
        app.abilities.forget(&worker.worker_id);
        app.outcomes.forget(&worker.worker_id);
    }
    Ok(())
}

/// Jobs in the name of workers that are dead or gone go to others. A crash may have come between a death and this.
async fn requeue_orphaned_jobs(app: &AppState) -> Result<(), CommandError> {
    // The nodes are read last, so that a node that comes meanwhile is among the live nodes.
    let workers = if app.store.node().is_some() { app.store.worker_records().await? } else { Vec::new() };
    let holders = app.store.holders().await?;
    let nodes = app.store.nodes().await?;
    for worker in workers {
        let connection = worker.connection.filter(|connection| is_at_a_gone_node(connection, nodes.as_ref()));
        if let Some(connection) = connection {
            detach(app, &worker.worker_id, &connection).await?;
        }
    }
    for holder in holders {
        if is_connection(&holder) {
            if is_at_a_gone_node(&holder, nodes.as_ref()) {
                release_all(app, &holder).await?;
                info!(holder, "the jobs of a connection to an agq that is gone were taken from it");
            }
            continue;
        }
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        match app.store.worker(&worker_id).await? {
            Some(worker) if worker.standing == Liveness::Active => continue,
            Some(_dead) => requeue_lost(app, &holder).await?,
            None => release_all(app, &holder).await?,
        }
        app.waiters.evict(&holder);
        info!(holder, "the jobs of a worker that is gone were taken from it");
    }
    Ok(())
}

/// Whether a connection was to one of several agq, and that one is no more.
fn is_at_a_gone_node(connection: &str, nodes: Option<&HashSet<String>>) -> bool {
    node_of(connection).zip(nodes).is_some_and(|(node, nodes)| !nodes.contains(node))
}

/// Time has passed that nobody saw: attempts that are under way get it back.
async fn extend_after_pause(app: &AppState, unseen_ms: u64) -> Result<(), CommandError> {
    app.store.wait_until_applied().await?;
    let now = app.clock.now();
    let is_active = |job: &Job| job.state == JobState::Active;
    for job in app.store.pending_timers(Timestamp(0), Box::new(is_active)).await? {
        // One that was claimed since saw all of its time.
        let attempt = job.attempt;
        let rule = move |job: Option<&Job>| {
            let same = job.filter(|job| job.attempt == attempt);
            Ok(same.map_or(RuleOutcome::Unchanged, |job| job::extended_after_pause(job, unseen_ms, now)))
        };
        app.store.decide(&job.job_id, AckLevel::Visible, None, Box::new(rule)).await??;
    }
    Ok(())
}

/// Corrects waits after the clock was set back, because jobs, schedules and limits wait for times
/// that were calculated from a later time, and would wait for too long.
async fn recompute_deadlines(app: &AppState) -> Result<(), CommandError> {
    // What is on its way to the store was reckoned from the clock before.
    app.store.wait_until_applied().await?;
    let now = app.clock.now();
    let ahead = app.store.pending_timers(now, Box::new(move |job| job::is_reckoned_ahead(job, now))).await?;
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
            // A time of day that somebody named stays.
            if job::rescheduled(job, delay_ms, now) == RuleOutcome::Unchanged {
                continue;
            }
            let rule: JobRule = Box::new(move |job: Option<&Job>| {
                Ok(job.map_or(RuleOutcome::Unchanged, |job| job::rescheduled(job, delay_ms, now)))
            });
            answers.push(app.store.decide(&job.job_id, AckLevel::Durable, None, rule));
        }
        for answer in answers {
            answer.await??;
        }
    }
    Ok(())
}

/// Workflows that ended are kept as long as jobs are.
async fn prune_old_workflows(app: &AppState) -> Result<(), CommandError> {
    match app.settings.keep_ended_ms {
        0 => Ok(()),
        keep_ms => workflow::forget_ended(app, Timestamp(app.clock.now().0.saturating_sub(keep_ms))).await,
    }
}

/// Ended jobs that need not be kept any more are forgotten, a few at a time.
async fn prune_old_jobs(app: &AppState) -> Result<(), CommandError> {
    let (now, settings) = (app.clock.now(), &app.settings);
    let before =
        |keep_ms: u64| if keep_ms == 0 { Timestamp(0) } else { Timestamp(now.0.saturating_sub(keep_ms)) };
    let keep = Retention {
        ended_since: before(settings.keep_ended_ms),
        dead_since: before(settings.keep_dead_ms),
        count: settings.keep_ended_count,
    };
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
