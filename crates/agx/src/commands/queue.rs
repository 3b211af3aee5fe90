//! `agx queue stats`

use agenix_protocol::{
    documents::{QueueStats, ReadyStats},
    reserved_keys::queue_of,
};

use crate::{
    cli::ServerArgs,
    error::CliError,
    output::{Output, jobs},
};

pub(super) async fn stats(server: &ServerArgs, output: Output) -> Result<(), CliError> {
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
    text + &format!(
        "{:<10} {} active, {} idle, {} known\n",
        "workers", workers.active, workers.idle, workers.total
    )
}

fn queue(name: &str, stats: &ReadyStats) -> String {
    let oldest =
        stats.oldest_job_age_seconds.map(|age| format!(", the oldest for {age} s")).unwrap_or_default();
    let paused = if stats.paused { ", paused" } else { "" };
    let mut text = format!("{name:<10} {}{oldest}{paused}\n", jobs(stats.length));
    for demand in &stats.needs {
        let who = if demand.workers == 0 {
            "no live worker has them".into()
        } else {
            format!("{} workers", demand.workers)
        };
        text += &format!("{:<10} {} need {} ({who})\n", "", demand.length, demand.wants().join(", "));
    }
    text
}
