//! `agx` without a command, and `agx history`.

use std::collections::BTreeMap;

use super::{labels::labels_of, queue::oldest};
use crate::{
    connection_args::ConnectionArgs,
    documents::OverviewDocument,
    error::Result,
    output::{OutputFormat, counted, table},
    remote::overview::{self, ClusterOverview, NOT_SHOWN, actions, descriptions, state, took},
};
use agenix_protocol::{
    documents::{ActionStatus, QueueStats, WorkerStatus},
    ids::PlanId,
    reserved_keys::queue_of,
};

/// Number of ended actions in the overview.
const RECENT: usize = 5;
/// Maximum width of a plan's text, in characters.
const WIDEST: usize = 60;

pub(crate) async fn overview(server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let Some((mut connection, address)) = server.connect_if_any().await? else {
        return output.show("overview", &OverviewDocument::default(), |_| NOTHING.into());
    };
    let found = overview::fetch(&mut connection, address.clone()).await?;
    let cluster = cluster_text(&found);
    let ClusterOverview { sees_workers, workers, queues, actions, plans, .. } = found;
    let (live, ended): (Vec<_>, Vec<_>) =
        actions.into_iter().partition(|action| action.completed_jobs_at.is_none());
    let shown: Vec<ActionStatus> = live.into_iter().chain(ended.into_iter().take(RECENT)).collect();
    let document = OverviewDocument {
        agq: Some(address.clone()),
        workers: sees_workers.then_some(workers),
        queues: sees_workers.then_some(queues),
        actions: Some(shown.clone()),
    };
    let actions = actions_text(&shown, &plans);
    output.show("overview", &document, |_| format!("agq      {address}\n{cluster}{actions}"))
}

const NOTHING: &str = "No agq is configured: no --agq, AGQ_ADDR or profile names one.\n\n  \
find . -name '*.log' | agx map -- 'grep -c ERROR {}'   # works without one\n  \
agx up                                               # an agq and a worker in the background\n  \
agx --help                                           # all commands";

pub(crate) async fn history(server: &ConnectionArgs, most: usize, output: OutputFormat) -> Result<()> {
    let connection = server.connect().await?;
    let mut latest = actions(&connection).await?;
    let found = latest.len();
    latest.truncate(most);
    let plans = descriptions(&connection, &latest).await?;
    output.show("history", &latest, |latest| list_text(latest, found, &plans, "there are no actions yet"))
}

/// Returns a table of the `latest` ones of the `found` actions. `none` says that there is none.
pub(super) fn list_text(
    latest: &[ActionStatus],
    found: usize,
    plans: &BTreeMap<PlanId, String>,
    none: &str,
) -> String {
    match found {
        0 => none.into(),
        found if latest.is_empty() => {
            format!("-n is 0: {} not shown", counted(found as u64, "action is", "actions are"))
        }
        _ => actions_text(latest, plans),
    }
}

/// Returns lines about the workers and the queues.
fn cluster_text(found: &ClusterOverview) -> String {
    if found.sees_workers {
        workers_text(&found.workers) + &queues_text(&found.queues)
    } else {
        format!("workers  {NOT_SHOWN}\n")
    }
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
            let unmet = queue.needs.iter().filter(|need| need.workers == 0);
            let unmet: String = unmet
                .map(|need| {
                    format!("\n         {} of them: no worker has {}", need.length, need.wants().join(", "))
                })
                .collect();
            let wait = counted(queue.length, "job waits", "jobs wait");
            format!("queue    {name}: {wait}{}{paused}{unmet}\n", oldest(queue))
        })
        .collect();
    if stats.scheduled.length > 0 {
        let wait = counted(stats.scheduled.length, "job waits", "jobs wait");
        text += &format!("         {wait} for a time\n");
    }
    text
}

/// Returns a table of actions, with a column of labels if any action has one.
fn actions_text(actions: &[ActionStatus], plans: &BTreeMap<PlanId, String>) -> String {
    if actions.is_empty() {
        return "actions  none yet\n".into();
    }
    let has_labels = actions.iter().any(|action| !action.labels.is_empty());
    let row = |action: &ActionStatus| {
        let description = plans.get(&action.plan_id).cloned().unwrap_or_default();
        let description = if description.chars().count() > WIDEST {
            description.chars().take(WIDEST - 1).chain(['…']).collect()
        } else {
            description
        };
        let mut row = vec![
            action.action_id.to_string(),
            state(action).into(),
            format!("{}/{}", action.completed, action.total_jobs),
            action.unsuccessful().to_string(),
            took(action),
            action.created_at.to_string().chars().take(19).collect(),
        ];
        if has_labels {
            row.push(labels_of(action).join(","));
        }
        row.push(description);
        row
    };
    let rows: Vec<_> = actions.iter().map(row).collect();
    let mut head = vec!["ACTION", "STATE", "DONE", "FAILED", "TOOK", "SUBMITTED"];
    head.extend(has_labels.then_some("LABELS"));
    head.push("PLAN");
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::list_text;

    #[test]
    fn list_without_an_action_says_whether_there_is_one() {
        let text = |found| list_text(&[], found, &BTreeMap::new(), "there are no actions yet");
        assert_eq!(text(0), "there are no actions yet");
        assert_eq!(text(3), "-n is 0: 3 actions are not shown");
    }
}
