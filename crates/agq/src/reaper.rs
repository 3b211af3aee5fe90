//! The janitor: notices what nobody reports. Workers that fell silent, jobs whose time has come.

use std::{sync::Arc, time::Duration};

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::{
    job::{self, Job, Outcome},
    worker::{self, Standing, Worker},
};
use tracing::{error, info, warn};

use crate::{
    commands::{hand_back_all, take_all},
    error::CommandError,
    house::{House, is_connection},
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
    let mut listening_since = house.clock.now();
    let mut ticks = tokio::time::interval(Duration::from_millis(round));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_round = listening_since;
    loop {
        ticks.tick().await;
        let now = house.clock.now();
        if now.ms_since(last_round) > house.settings.heartbeat_interval_ms.max(LONGEST_ROUND_MS * 2) {
            // The machine slept, or the clock was set: nobody could be heard meanwhile.
            info!(
                ms = now.ms_since(last_round),
                "time has passed unseen; the silence of workers counts from now"
            );
            listening_since = now;
        }
        last_round = now;
        if let Err(error) = make_round(&house, listening_since).await {
            error!(%error, "a round of the reaper failed; the next one tries again");
        }
    }
}

async fn make_round(house: &House, listening_since: Timestamp) -> Result<(), CommandError> {
    bury_silent_workers(house, listening_since).await?;
    take_jobs_of_the_gone(house).await?;
    wake_due_jobs(house).await?;
    // Claims and heartbeats of the last moments reach the disk, when there were any.
    house.store.sync().await?;
    Ok(())
}

/// Workers that were not heard of in time are dead; their jobs go to others (seed 000 §5.3).
async fn bury_silent_workers(house: &House, listening_since: Timestamp) -> Result<(), CommandError> {
    let silence_ms = house.settings.silence_ms();
    for (worker, held) in house.store.workers().await? {
        let now = house.clock.now();
        if !worker::is_silent(&worker, now, listening_since, silence_ms) {
            continue;
        }
        let silent_ms = now.ms_since(worker.last_seen_at);
        warn!(worker_id = %worker.worker_id, silent_ms, jobs = held, "a worker fell silent and is taken for dead");
        // It may have been heard of since it was read.
        let rule = move |known: Option<&Worker>| {
            let silent = |worker: &&Worker| worker::is_silent(worker, now, listening_since, silence_ms);
            Ok(known.filter(silent).map(worker::dead))
        };
        house.store.decide_worker(&worker.worker_id, Promise::Durable, Box::new(rule)).await??;
    }
    Ok(())
}

/// Jobs in the name of workers that are dead or gone go to others. A crash may have come between a death and this.
async fn take_jobs_of_the_gone(house: &House) -> Result<(), CommandError> {
    for holder in house.store.holders().await?.into_iter().filter(|holder| !is_connection(holder)) {
        let Ok(worker_id) = WorkerId::new(holder.as_str()) else { continue };
        match house.store.worker(&worker_id).await? {
            Some(worker) if worker.standing == Standing::Active => continue,
            Some(_dead) => take_all(house, &holder).await?,
            None => hand_back_all(house, &holder).await?,
        }
        house.matchmaker.dismiss(&holder);
        info!(holder, "the jobs of a worker that is gone were taken from it");
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
