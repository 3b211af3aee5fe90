//! `agx` alone, and `agx history`: how everything stands, and what there was.

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{ActionStatus, QueueStats, WorkerStatus},
    ids::PlanId,
    names::queue_of,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use std::collections::BTreeMap;

use crate::{
    cli::ServerArgs,
    failure::Failure,
    output::{Output, table},
};

/// How many are asked for at once.
const AT_ONCE: usize = 64;
/// How many actions that have ended `agx` alone shows.
const RECENT: usize = 5;
/// Widest text of a plan, in characters.
const WIDEST: usize = 60;

/// `agx` alone.
pub(super) async fn overview(server: &ServerArgs, output: Output) -> Result<(), Failure> {
    let Some(given) = server.given()? else {
        let document = json!({"agq": null});
        return output.show("overview", &document, |_| NOTHING.into());
    };
    let address = given.address();
    let mut connection = Connection::open(&given).await?;
    let (workers, queues) = (connection.workers().await?, connection.queue_stats().await?);
    let actions = actions(&connection).await?;
    let (live, ended): (Vec<_>, Vec<_>) =
        actions.into_iter().partition(|action| action.completed_jobs_at.is_none());
    let shown: Vec<ActionStatus> = live.into_iter().chain(ended.into_iter().take(RECENT)).collect();
    let plans = descriptions(&connection, &shown).await?;
    let document = json!({"agq": address, "workers": workers, "queues": queues, "actions": shown});
    output.show("overview", &document, |_| {
        format!(
            "agq      {address}\n{}{}{}",
            workers_text(&workers),
            queues_text(&queues),
            actions_text(&shown, &plans)
        )
    })
}

const NOTHING: &str = "No agq is named: nothing is running for agx.\n\n  \
find . -name '*.log' | agx map -- 'grep -c ERROR {}'   # works without one\n  \
agx up                                               # an agq and a worker in the background\n  \
agx --help                                           # all that there is";

/// `agx history`
pub(super) async fn history(server: &ServerArgs, most: usize, output: Output) -> Result<(), Failure> {
    let connection = server.connect().await?;
    let mut latest = actions(&connection).await?;
    latest.truncate(most);
    let plans = descriptions(&connection, &latest).await?;
    output.show("history", &latest, |latest| {
        if latest.is_empty() { "there was no action yet".into() } else { actions_text(latest, &plans) }
    })
}

/// All actions, the latest first.
async fn actions(connection: &Connection) -> Result<Vec<ActionStatus>, ClientError> {
    let ids = connection.clone().actions().await?;
    let asked = ids.into_iter().map(|id| {
        let mut connection = connection.clone();
        async move { connection.action(&id).await }
    });
    let found: Vec<Option<ActionStatus>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut actions: Vec<ActionStatus> = found.into_iter().flatten().collect();
    actions.sort_by_key(|action| std::cmp::Reverse(action.created_at));
    Ok(actions)
}

/// What the plans of these actions are for.
async fn descriptions(
    connection: &Connection,
    actions: &[ActionStatus],
) -> Result<BTreeMap<PlanId, String>, ClientError> {
    let mut found = BTreeMap::new();
    for action in actions {
        if !found.contains_key(&action.plan_id) {
            let plan = connection.clone().plan(&action.plan_id).await?;
            let text =
                plan.and_then(|plan| plan.plan_description).unwrap_or_else(|| action.plan_id.to_string());
            found.insert(action.plan_id.clone(), text);
        }
    }
    Ok(found)
}

fn workers_text(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "workers  none: start one with `agw`, or on this machine with `agx up`\n".into();
    }
    let in_state = |state: &str| workers.iter().filter(|worker| worker.state == state).count();
    let states = ["active", "quiet", "draining", "terminating", "quarantined", "dead"];
    let counts: Vec<String> = states
        .iter()
        .map(|state| (in_state(state), state))
        .filter(|(n, _)| *n > 0)
        .map(|(n, state)| format!("{n} {state}"))
        .collect();
    let (busy, slots) =
        workers.iter().filter(|worker| worker.state == "active").fold((0, 0), |(busy, slots), worker| {
            (busy + worker.active_jobs, slots + u64::from(worker.max_concurrent_jobs))
        });
    format!("workers  {}; {busy} of {slots} slots are busy\n", counts.join(", "))
}

fn queues_text(stats: &QueueStats) -> String {
    let queues = std::iter::once(("ready", &stats.ready))
        .chain(stats.others.iter().map(|(key, other)| (queue_of(key), other)));
    let mut text: String = queues
        .map(|(name, queue)| {
            let paused = if queue.paused { ", paused" } else { "" };
            let oldest = queue
                .oldest_job_age_seconds
                .map(|age| format!(", the oldest for {age} s"))
                .unwrap_or_default();
            let lacking = queue.needs.iter().filter(|demand| demand.workers == 0);
            let lacking: String = lacking
                .map(|demand| {
                    format!(
                        "\n         {} of them: no worker has {}",
                        demand.length,
                        demand.wants().join(", ")
                    )
                })
                .collect();
            format!("queue    {name}: {} jobs wait{oldest}{paused}{lacking}\n", queue.length)
        })
        .collect();
    if stats.scheduled.length > 0 {
        text += &format!("         {} jobs wait for a time\n", stats.scheduled.length);
    }
    text
}

fn actions_text(actions: &[ActionStatus], plans: &BTreeMap<PlanId, String>) -> String {
    if actions.is_empty() {
        return "actions  none yet\n".into();
    }
    let row = |action: &ActionStatus| {
        let what = plans.get(&action.plan_id).cloned().unwrap_or_default();
        let what = if what.chars().count() > WIDEST {
            what.chars().take(WIDEST - 1).chain(['…']).collect()
        } else {
            what
        };
        vec![
            action.action_id.to_string(),
            state(action).into(),
            format!("{}/{}", action.completed, action.total_jobs),
            action.unsuccessful().to_string(),
            took(action),
            action.created_at.to_string().chars().take(19).collect(),
            what,
        ]
    };
    let rows: Vec<_> = actions.iter().map(row).collect();
    table(&["ACTION", "STATE", "DONE", "FAILED", "TOOK", "SUBMITTED", "PLAN"], &rows)
}

fn state(action: &ActionStatus) -> &'static str {
    match action {
        _ if action.completed_jobs_at.is_none() && action.running > 0 => "running",
        _ if action.completed_jobs_at.is_none() => "waiting",
        _ if action.cancelled > 0 && action.cancelled == action.unsuccessful() => "cancelled",
        _ if action.unsuccessful() > 0 => "failed",
        _ => "completed",
    }
}

fn took(action: &ActionStatus) -> String {
    let Some(ended) = action.completed_jobs_at else { return String::new() };
    let ms = ended.ms_since(action.created_at);
    match ms / 1000 {
        0..60 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        secs @ 60..3600 => format!("{} m {} s", secs / 60, secs % 60),
        secs => format!("{} h {} m", secs / 3600, secs % 3600 / 60),
    }
}
