//! Statistics of queues: ready and scheduled jobs, the capabilities that they require, and the
//! number of workers that have them (AGQ API spec §6).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::{
    documents::{Demand, QueueStats, ReadyStats, ScheduledStats, WorkerCounts},
    reserved_keys::READY,
    time::Timestamp,
};
use agenix_rules::{
    capability::Abilities,
    worker::{Liveness, Worker},
};

use crate::{app::AppState, error::Result, store::LaneSummary};

pub(crate) static EMPTY: ReadyStats = ReadyStats {
    length: 0,
    oldest_job_age_seconds: None,
    newest_job_age_seconds: None,
    paused: false,
    needs: Vec::new(),
};

pub(crate) async fn all(app: &AppState) -> Result<QueueStats> {
    let (lanes, paused, now) = (app.store.lanes().await?, app.store.paused().await?, app.clock.now());
    let workers = app.store.workers().await?;
    let mut abilities = Vec::new();
    for (worker, _) in workers.iter().filter(|(worker, _)| worker.wants_jobs()) {
        abilities.push(app.capabilities.of(&*app.store, worker).await?);
    }
    let names: BTreeSet<&str> =
        lanes.iter().map(|lane| &lane.queue).chain(&paused).map(String::as_str).collect();
    let ready = |name: &str| {
        let own: Vec<&LaneSummary> = lanes.iter().filter(|lane| lane.queue == name).collect();
        ready_stats(&own, &abilities, paused.iter().any(|paused| paused == name), now)
    };
    let others = names.iter().filter(|name| **name != READY);
    let others: BTreeMap<String, ReadyStats> =
        others.map(|name| (format!("queue:{name}"), ready(name))).collect();
    let (ready, scheduled, workers) = (ready(READY), scheduled(app).await?, counts(&workers));
    Ok(QueueStats { ready, scheduled, workers, others })
}

fn ready_stats(
    lanes: &[&LaneSummary],
    abilities: &[Arc<Abilities>],
    paused: bool,
    now: Timestamp,
) -> ReadyStats {
    let spans = || lanes.iter().map(|lane| lane.span);
    let age = |at: Timestamp| now.ms_since(at) / 1000;
    ReadyStats {
        length: lanes.iter().map(|lane| lane.length).sum(),
        oldest_job_age_seconds: spans().map(|(first, _)| first).min().map(age),
        newest_job_age_seconds: spans().map(|(_, last)| last).max().map(age),
        paused,
        needs: lanes.iter().map(|lane| demand(lane, abilities)).collect(),
    }
}

fn demand(lane: &LaneSummary, abilities: &[Arc<Abilities>]) -> Demand {
    let workers = abilities.iter().filter(|abilities| abilities.cover(&lane.needs)).count() as u64;
    let (profile, tags) = lane.needs.profile_and_tags();
    Demand {
        tools: lane.needs.tools.clone(),
        tags,
        labels: lane.needs.labels.clone(),
        sandbox: profile.map(str::to_owned),
        resources: lane.needs.resources.as_deref().cloned().unwrap_or_default(),
        length: lane.length,
        workers,
    }
}

async fn scheduled(app: &AppState) -> Result<ScheduledStats> {
    let (length, first) = app.store.scheduled().await?;
    let now = app.clock.now();
    Ok(ScheduledStats { length, next_job_due_in_seconds: first.map(|at| at.ms_since(now) / 1000) })
}

fn counts(workers: &[(Worker, u64)]) -> WorkerCounts {
    let active = || workers.iter().filter(|(worker, _)| worker.standing == Liveness::Active);
    WorkerCounts {
        total: workers.len() as u64,
        active: active().count() as u64,
        idle: active().filter(|(worker, jobs)| worker.wants_jobs() && *jobs == 0).count() as u64,
    }
}
