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

use crate::{
    app::{House, is_connection, node_of},
    commands::{Abandoned, detach, halting, hand_back_all, limits, schedule, take_all, wake_due, workflow},
    error::CommandError,
    herald::tell_of_worker,
    redis,
    store::{JobRule, Keep, Promise, Unused},
    unseen::Watch,
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
pub(crate) async fn run(house: Arc<House>) {
    let round = LONGEST_ROUND_MS.min(house.settings.heartbeat_interval_ms / 4).max(10);
    let watch = Watch::new(house.clock.now(), house.settings.heartbeat_interval_ms);
    let watching = async {
        loop {
            house.clock.sleep(Duration::from_millis(round)).await;
            watch.look(house.clock.now());
        }
    };
    join(make_rounds(&house, &watch, round), watching).await;
}

async fn make_rounds(house: &House, watch: &Watch, round: u64) {
    // It may have been set back while agq was away.
    let mut was_set_back = true;
    let mut leads = house.store.leads();
    let mut abandoned = Abandoned::default();
    loop {
        // Between two rounds the clock may have gone forward and back again.
        let (latest, now) = house.clock.latest_and_now();
        watch.look(now);
        if now < latest {
            warn!(
                ms = latest.ms_since(now),
                "the clock was set back; the silence of workers and what jobs wait for count from now"
            );
            watch.listen_from(now);
            was_set_back = true;
        }
        house.backups.forget_unread(now);
        if !house.store.leads() {
            // Another agq sees to it.
            leads = false;
            house.clock.sleep(Duration::from_millis(round)).await;
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
            match excuse(house, unseen_ms).await {
                Ok(()) => watch.excused(unseen_ms),
                Err(error) => error!(%error, "attempts could not be excused; the next round tries again"),
            }
        }
        if was_set_back {
            match reckon_anew(house).await {
                Ok(()) => was_set_back = false,
                Err(error) => {
                    error!(%error, "what jobs wait for could not be reckoned anew; the next round tries again");
                }
            }
        }
        if let Err(error) = make_round(house, watch, &mut abandoned).await {
            error!(%error, "a round of the reaper failed; the next one tries again");
        }
        house.clock.sleep(Duration::from_millis(round)).await;
    }
}

async fn make_round(house: &House, watch: &Watch, abandoned: &mut Abandoned) -> Result<(), CommandError> {
    // Jobs whose time has come must not wait for the rest of the round.
    for _step in 0..MAX_DUE_STEPS {
        if wake_due(house, MAX_DUE).await? < MAX_DUE {
            break;
        }
    }
    bury_silent_workers(house, watch).await?;
    take_jobs_of_the_gone(house).await?;
    limits::wake_waiting(house).await?;
    halting::advance_all(house).await?;
    abandoned.look_after(house).await?;
    schedule::run_due(house).await?;
    workflow::advance_all(house).await?;
    forget_old_jobs(house).await?;
    if house.pace.is_due(house.clock.now()) {
        house.pace.note(house.clock.now(), &house.store.totals().await?);
        forget_old_workflows(house).await?;
        house.store.forget_limits(house.clock.now()).await?;
        let unused = house.store.unused(house.clock.now()).await?;
        if unused != Unused::default() {
            house.store.forget_unused(unused).await?;
        }
    }
    for _step in 0..MAX_DUE_STEPS {
        if redis::expire(&*house.store, house.clock.now(), MAX_DUE).await? < MAX_DUE {
            break;
        }
    }
    // Claims and heartbeats of the last moments reach the disk, when there were any.
    house.store.sync().await?;
    Ok(())
}

/// Workers that were not heard of in time are dead; their jobs go to others (worker spec §5.3).
async fn bury_silent_workers(house: &House, watch: &Watch) -> Result<(), CommandError> {
    let silence_ms = house.settings.silence_ms();
    for worker in house.store.worker_records().await? {
        let now = house.clock.now();
        let listening_since = watch.look(now);
        if worker.standing == Liveness::Dead {
            forget_dead_worker(house, &worker, now).await?;
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
        house.store.decide_worker(worker_id, Promise::Durable, None, Box::new(rule)).await??;
        let after = house.store.worker(worker_id).await?;
        if after.is_some_and(|worker| worker.standing == Liveness::Dead) {
            let jobs = house.store.held_by(worker_id.as_str()).await?.len();
            house.reputation.forget(worker_id);
            warn!(%worker_id, silent_ms, jobs, "a worker fell silent and is taken for dead");
            house.matchmaker.dismiss(worker_id.as_str());
            tell_of_worker(house, worker_id, "dead");
        }
    }
    Ok(())
}

/// A dead worker is kept for whoever looks for what happened, as long as dead jobs are.
async fn forget_dead_worker(house: &House, worker: &Worker, now: Timestamp) -> Result<(), CommandError> {
    let keep_ms = house.settings.keep_dead_ms;
    if keep_ms == 0 || now.ms_since(worker.last_seen_at) <= keep_ms {
        return Ok(());
    }
    if house.store.forget_worker(&worker.worker_id, Timestamp(now.0.saturating_sub(keep_ms))).await? {
        house.abilities.forget(&worker.worker_id);
        house.reputation.forget(&worker.worker_id);
    }
    Ok(())
}

/// Jobs in the name of workers that are dead or gone go to others. A crash may have come between a death and this.
async fn take_jobs_of_the_gone(house: &House) -> Result<(), CommandError> {
    // The nodes are read last, so that a node that comes meanwhile is among the live nodes.
    let workers = if house.store.node().is_some() { house.store.worker_records().await? } else { Vec::new() };
    let holders = house.store.holders().await?;
    let nodes = house.store.nodes().await?;
    for worker in workers {
        let connection = worker.connection.filter(|connection| is_at_a_gone_node(connection, nodes.as_ref()));
        if let Some(connection) = connection {
            detach(house, &worker.worker_id, &connection).await?;
        }
    }
    for holder in holders {
        if is_connection(&holder) {
            if is_at_a_gone_node(&holder, nodes.as_ref()) {
                hand_back_all(house, &holder).await?;
                info!(holder, "the jobs of a connection to an agq that is gone were taken from it");
            }
            continue;
        }
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        match house.store.worker(&worker_id).await? {
            Some(worker) if worker.standing == Liveness::Active => continue,
            Some(_dead) => take_all(house, &holder).await?,
            None => hand_back_all(house, &holder).await?,
        }
        house.matchmaker.dismiss(&holder);
        info!(holder, "the jobs of a worker that is gone were taken from it");
    }
    Ok(())
}

/// Whether a connection was to one of several agq, and that one is no more.
fn is_at_a_gone_node(connection: &str, nodes: Option<&HashSet<String>>) -> bool {
    node_of(connection).zip(nodes).is_some_and(|(node, nodes)| !nodes.contains(node))
}

/// Time has passed that nobody saw: attempts that are under way get it back.
async fn excuse(house: &House, unseen_ms: u64) -> Result<(), CommandError> {
    house.store.settled().await?;
    let now = house.clock.now();
    let is_active = |job: &Job| job.state == JobState::Active;
    for job in house.store.waits(Timestamp(0), Box::new(is_active)).await? {
        // One that was claimed since saw all of its time.
        let attempt = job.attempt;
        let rule = move |job: Option<&Job>| {
            let same = job.filter(|job| job.attempt == attempt);
            Ok(same.map_or(RuleOutcome::Unchanged, |job| job::extended_after_pause(job, unseen_ms, now)))
        };
        house.store.decide(&job.job_id, Promise::Visible, None, Box::new(rule)).await??;
    }
    Ok(())
}

/// Corrects waits after the clock was set back, because jobs, schedules and limits wait for times
/// that were calculated from a later time, and would wait for too long.
async fn reckon_anew(house: &House) -> Result<(), CommandError> {
    // What is on its way to the store was reckoned from the clock before.
    house.store.settled().await?;
    let now = house.clock.now();
    let ahead = house.store.waits(now, Box::new(move |job| job::is_reckoned_ahead(job, now))).await?;
    let mut delays = BTreeMap::new();
    schedule::reckon_anew(house).await?;
    limits::reckon_anew(house).await?;
    for step in ahead.chunks(MAX_DUE) {
        let mut answers = Vec::with_capacity(step.len());
        for job in step {
            if !delays.contains_key(&job.action_id) {
                let action = house.store.action(&job.action_id).await?;
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
            answers.push(house.store.decide(&job.job_id, Promise::Durable, None, rule));
        }
        for answer in answers {
            answer.await??;
        }
    }
    Ok(())
}

/// Workflows that ended are kept as long as jobs are.
async fn forget_old_workflows(house: &House) -> Result<(), CommandError> {
    match house.settings.keep_ended_ms {
        0 => Ok(()),
        keep_ms => {
            workflow::forget_ended(house, Timestamp(house.clock.now().0.saturating_sub(keep_ms))).await
        }
    }
}

/// Ended jobs that need not be kept any more are forgotten, a few at a time.
async fn forget_old_jobs(house: &House) -> Result<(), CommandError> {
    let (now, settings) = (house.clock.now(), &house.settings);
    let before =
        |keep_ms: u64| if keep_ms == 0 { Timestamp(0) } else { Timestamp(now.0.saturating_sub(keep_ms)) };
    let keep = Keep {
        ended_since: before(settings.keep_ended_ms),
        dead_since: before(settings.keep_dead_ms),
        count: settings.keep_ended_count,
    };
    if !house.store.is_prunable(keep).await? {
        return Ok(());
    }
    for _step in 0..MAX_PRUNE_STEPS {
        if house.store.prune(keep, PRUNE_STEP).await? < PRUNE_STEP {
            break;
        }
    }
    Ok(())
}
