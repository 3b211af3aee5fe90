//! The janitor: notices what nobody reports. Workers that fell silent, jobs whose time has come.

use std::{sync::Arc, time::Duration};

use agenix_rules::{
    job::{self, Job, Outcome},
    worker::{self, Standing, Worker},
};
use tracing::{error, info, warn};

use crate::{
    error::CommandError,
    house::House,
    store::{JobRule, Promise},
};

/// Longest time between two rounds: how late a retry or a lost worker may be noticed, and how much a crash may forget
/// of claims and heartbeats.
const LONGEST_ROUND_MS: u64 = 500;
/// Most due jobs that one round takes, so that it never keeps the writer to itself.
const MAX_DUE: usize = 1000;

/// Makes its rounds until it is dropped.
pub(crate) async fn run(house: Arc<House>) {
    let round = LONGEST_ROUND_MS.min(house.settings.heartbeat_interval_ms / 4).max(10);
    let mut ticks = tokio::time::interval(Duration::from_millis(round));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = make_round(&house).await {
            error!(%error, "a round of the reaper failed; the next one tries again");
        }
    }
}

async fn make_round(house: &House) -> Result<(), CommandError> {
    bury_silent_workers(house).await?;
    wake_due_jobs(house).await?;
    // Claims and heartbeats of the last moments reach the disk, when there were any.
    house.store.sync().await?;
    Ok(())
}

/// Workers that were not heard of in time are dead; their jobs go to others (seed 000 §5.3).
async fn bury_silent_workers(house: &House) -> Result<(), CommandError> {
    let silence_ms = house.settings.silence_ms();
    for (worker, held) in house.store.workers().await? {
        let now = house.clock.now();
        let is_silent = worker::is_silent(&worker, now, silence_ms);
        if is_silent {
            let silent_ms = now.ms_since(worker.last_seen_at);
            warn!(worker_id = %worker.worker_id, silent_ms, jobs = held, "a worker fell silent and is taken for dead");
            // It may have been heard of since it was read.
            let rule = move |known: Option<&Worker>| {
                Ok(known.filter(|worker| worker::is_silent(worker, now, silence_ms)).map(worker::dead))
            };
            house.store.decide_worker(&worker.worker_id, Promise::Durable, Box::new(rule)).await??;
        }
        // A crash may come between a death and what follows from it: whoever is dead and still holds jobs loses them.
        if held > 0 && (is_silent || worker.standing == Standing::Dead) {
            take_jobs_of_dead(house, &worker).await?;
        }
    }
    Ok(())
}

async fn take_jobs_of_dead(house: &House, worker: &Worker) -> Result<(), CommandError> {
    let known = house.store.worker(&worker.worker_id).await?;
    if known.is_none_or(|known| known.standing != Standing::Dead) {
        return Ok(());
    }
    let holder = worker.worker_id.as_str();
    for job_id in house.store.held_by(holder).await? {
        let (now, from) = (house.clock.now(), holder.to_owned());
        let rule: JobRule =
            Box::new(move |job| Ok(job.map_or(Outcome::Unchanged, |job| job::abandoned(job, &from, now))));
        house.store.decide(&job_id, Promise::Durable, None, rule).await??;
        info!(%job_id, holder, "the job of a dead worker was taken from it");
    }
    Ok(())
}

async fn wake_due_jobs(house: &House) -> Result<(), CommandError> {
    let now = house.clock.now();
    let due = house.store.due(now, MAX_DUE).await?;
    let mut answers = Vec::with_capacity(due.len());
    for job_id in due {
        let jitter = house.clock.chance();
        let rule: JobRule = Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(Outcome::Unchanged, |job| job::due(job, now, jitter)))
        });
        answers.push(house.store.decide(&job_id, Promise::Durable, None, rule));
    }
    for answer in answers {
        answer.await??;
    }
    Ok(())
}
