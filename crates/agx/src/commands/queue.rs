//! `agx queue`

use agenix_protocol::{
    documents::{QueueStats, ReadyStats},
    ids::QueueName,
    reserved_keys::{READY, queue_of},
};
use clap::Subcommand;

use crate::{
    connection_args::ConnectionArgs,
    documents::QueueRef,
    error::Result,
    output::{OutputFormat, jobs},
    util::path_lookup::nearest,
};

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show waiting jobs, and the capabilities that they need
    Stats,
    /// Pause a queue: no new jobs start
    Pause { queue: QueueName },
    /// Resume a paused queue
    Resume { queue: QueueName },
}

pub(crate) async fn run(server: &ConnectionArgs, command: QueueCommand, output: OutputFormat) -> Result<()> {
    match command {
        QueueCommand::Stats => stats(server, output).await,
        QueueCommand::Pause { queue } => set_paused(server, &queue, true, output).await,
        QueueCommand::Resume { queue } => set_paused(server, &queue, false, output).await,
    }
}

async fn stats(server: &ConnectionArgs, output: OutputFormat) -> Result<()> {
    let stats = server.connect().await?.queue_stats().await?;
    output.show("queue.stats", &stats, text)
}

fn text(stats: &QueueStats) -> String {
    let mut text = queue("ready", &stats.ready);
    for (key, other) in &stats.others {
        text += &queue(queue_of(key), other);
    }
    let due = stats.scheduled.next_job_due_in_seconds;
    let next = due.map(|due| format!(", the next in {due} s")).unwrap_or_default();
    text += &format!("{:<10} {}{next}\n", "scheduled", jobs(stats.scheduled.length));
    let workers = &stats.workers;
    text + &format!("workers    {} active, {} idle, {} known\n", workers.active, workers.idle, workers.total)
}

/// Returns the age of the oldest job of a queue as the end of a sentence.
pub(super) fn oldest(queue: &ReadyStats) -> String {
    queue.oldest_job_age_seconds.map(|age| format!(", the oldest for {age} s")).unwrap_or_default()
}

/// Returns the number of jobs that wait for a limit or a budget as the end of a sentence.
fn held_back(queue: &ReadyStats) -> String {
    let text = |count| format!(", {count} held back by limits or budgets");
    Some(queue.held_back).filter(|count| *count > 0).map(text).unwrap_or_default()
}

fn queue(name: &str, stats: &ReadyStats) -> String {
    let oldest = oldest(stats);
    let paused = if stats.paused { ", paused" } else { "" };
    let held_back = held_back(stats);
    let mut text = format!("{name:<10} {}{oldest}{held_back}{paused}\n", jobs(stats.length));
    for demand in &stats.needs {
        let workers = if demand.workers == 0 {
            "no live worker has them".into()
        } else {
            format!("{} workers", demand.workers)
        };
        text += &format!("{:<10} {} need {} ({workers})\n", "", demand.length, demand.wants().join(", "));
    }
    text
}

async fn set_paused(
    server: &ConnectionArgs,
    queue: &QueueName,
    pauses: bool,
    output: OutputFormat,
) -> Result<()> {
    let mut connection = server.connect().await?;
    let stats = connection.queue_stats().await?;
    if pauses && stats.ready_of(queue.as_str()).is_none() {
        // A job creates its queue, so an unknown name is allowed, but may be a typo.
        let names = stats.others.keys().map(|key| queue_of(key)).chain([READY]);
        let meant = nearest(queue.as_str(), names).map(|name| format!("; did you mean '{name}'?"));
        output.note(&format!("agx: no job waits in the queue {queue}{}", meant.unwrap_or_default()));
    }
    connection.pause_queue(queue, pauses).await?;
    let (kind, effect) = if pauses {
        ("queue.pause", "is paused: no new jobs start; running jobs continue")
    } else {
        ("queue.resume", "is resumed")
    };
    output.show(kind, &QueueRef { queue: queue.clone() }, |_| format!("the queue {queue} {effect}"))
}
