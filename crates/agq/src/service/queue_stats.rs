//! Statistics of queues: ready and scheduled jobs, the capabilities that they require, and the
//! number of workers that have them (AGQ API spec §6).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use agenix_protocol::{
    documents::{Demand, QueueStats, ReadyStats, ScheduledStats, WorkerCounts},
    reserved_keys::READY,
    time::Timestamp,
};
use agenix_rules::{
    capability::{ClaimantCapabilities, Needs},
    worker::{Liveness, Worker},
};

use crate::{
    app::AppState,
    error::Result,
    store::{LaneSummary, held_back},
};

pub(crate) static EMPTY: ReadyStats = ReadyStats {
    length: 0,
    oldest_job_age_seconds: None,
    newest_job_age_seconds: None,
    paused: false,
    needs: Vec::new(),
    held_back: 0,
};

pub(crate) async fn all(app: &AppState) -> Result<QueueStats> {
    let (lanes, paused, now) = (app.store.lanes().await?, app.store.paused().await?, app.clock.now());
    let workers = app.store.workers().await?;
    let mut capabilities = Vec::new();
    for (worker, _) in workers.iter().filter(|(worker, _)| worker.wants_jobs()) {
        capabilities.push(app.capabilities.of(&*app.store, worker).await?);
    }
    let names: BTreeSet<&str> =
        lanes.iter().map(|lane| &lane.queue).chain(&paused).map(String::as_str).collect();
    let is_paused = |name: &str| paused.iter().any(|paused| paused == name);
    let held_back = held_back::of_lanes(&*app.store, &lanes, &paused, now).await?;
    let lanes: Vec<(&LaneSummary, u64)> = lanes.iter().zip(held_back).collect();
    let ready = |name: &str| {
        let own: Vec<_> = lanes.iter().filter(|(lane, _)| lane.queue == name).copied().collect();
        ready_stats(&own, &capabilities, is_paused(name), now)
    };
    let others = names.iter().filter(|name| **name != READY);
    let others: BTreeMap<String, ReadyStats> =
        others.map(|name| (format!("queue:{name}"), ready(name))).collect();
    let (ready, scheduled, workers) = (ready(READY), scheduled(app).await?, counts(&workers));
    Ok(QueueStats { ready, scheduled, workers, others })
}

fn ready_stats(
    lanes: &[(&LaneSummary, u64)],
    capabilities: &[Arc<ClaimantCapabilities>],
    paused: bool,
    now: Timestamp,
) -> ReadyStats {
    let spans = || lanes.iter().map(|(lane, _)| lane.span);
    let age = |at: Timestamp| now.ms_since(at) / 1000;
    ReadyStats {
        length: lanes.iter().map(|(lane, _)| lane.length).sum(),
        oldest_job_age_seconds: spans().map(|(first, _)| first).min().map(age),
        newest_job_age_seconds: spans().map(|(_, last)| last).max().map(age),
        paused,
        needs: demands(lanes, capabilities),
        held_back: lanes.iter().map(|(_, held_back)| held_back).sum(),
    }
}

/// Returns the requirements of lanes, each with the number of jobs that are held back. Lanes that
/// differ only in the share have one entry, at the place of the first lane.
fn demands(lanes: &[(&LaneSummary, u64)], capabilities: &[Arc<ClaimantCapabilities>]) -> Vec<Demand> {
    let mut places: HashMap<Needs, usize> = HashMap::new();
    let mut demands: Vec<Demand> = Vec::new();
    for (lane, held_back) in lanes {
        let needs = Needs { share: None, ..lane.needs.clone() };
        if let Some(known) = places.get(&needs).and_then(|place| demands.get_mut(*place)) {
            known.length += lane.length;
            known.held_back += held_back;
        } else {
            demands.push(Demand { held_back: *held_back, ..demand(&needs, lane.length, capabilities) });
            places.insert(needs, demands.len() - 1);
        }
    }
    demands
}

fn demand(needs: &Needs, length: u64, capabilities: &[Arc<ClaimantCapabilities>]) -> Demand {
    let workers = capabilities.iter().filter(|capabilities| capabilities.cover(needs)).count() as u64;
    let (profile, tags) = needs.profile_and_tags();
    Demand {
        tools: needs.tools.clone(),
        tags,
        labels: needs.labels.clone(),
        sandbox: profile.map(str::to_owned),
        resources: needs.resources.as_deref().cloned().unwrap_or_default(),
        length,
        workers,
        held_back: 0,
    }
}

async fn scheduled(app: &AppState) -> Result<ScheduledStats> {
    let (length, first) = app.store.scheduled().await?;
    let now = app.clock.now();
    Ok(ScheduledStats { length, next_job_due_in_seconds: first.map(|at| at.ms_since(now) / 1000) })
}

fn counts(workers: &[(Worker, u64)]) -> WorkerCounts {
    let active = || workers.iter().filter(|(worker, _)| worker.liveness == Liveness::Active);
    WorkerCounts {
        total: workers.len() as u64,
        active: active().count() as u64,
        idle: active().filter(|(worker, jobs)| worker.wants_jobs() && *jobs == 0).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::capability::Needs;

    use super::{LaneSummary, demands};

    #[test]
    fn requirements_of_all_shares_are_one() {
        let lane = |tool: &str, share: Option<&str>, length| LaneSummary {
            queue: "ready".to_owned(),
            needs: Needs {
                tools: vec![tool.to_owned()],
                share: share.map(str::to_owned),
                ..Needs::default()
            },
            length,
            span: (Timestamp(1), Timestamp(2)),
        };
        let lanes = [lane("a", None, 1), lane("b", Some("client:x"), 2), lane("a", Some("client:x"), 4)];
        let lengths = |demands: Vec<super::Demand>| -> Vec<(String, u64)> {
            demands.into_iter().map(|demand| (demand.tools[0].clone(), demand.length)).collect()
        };
        let found = lengths(demands(&lanes.iter().map(|lane| (lane, 0)).collect::<Vec<_>>(), &[]));
        assert_eq!(found, [("a".to_owned(), 5), ("b".to_owned(), 2)]);
    }
}
