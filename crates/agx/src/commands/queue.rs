//! `agx queue stats`

use agenix_protocol::documents::QueueStats;

use crate::{cli::ServerArgs, failure::Failure, output::Output};

pub(super) async fn stats(server: &ServerArgs, output: Output) -> Result<(), Failure> {
    let stats = server.connect().await?.queue_stats().await?;
    output.show("queue.stats", &stats, text)
}

fn text(stats: &QueueStats) -> String {
    let oldest =
        stats.ready.oldest_job_age_seconds.map(|age| format!(", the oldest for {age} s")).unwrap_or_default();
    let next = stats
        .scheduled
        .next_job_due_in_seconds
        .map(|due| format!(", the next in {due} s"))
        .unwrap_or_default();
    let mut text = format!("ready      {} jobs{oldest}\n", stats.ready.length);
    for demand in &stats.ready.needs {
        let who = if demand.workers == 0 {
            "no live worker has them".into()
        } else {
            format!("{} workers", demand.workers)
        };
        text += &format!("           {} need {} ({who})\n", demand.length, demand.tools.join(", "));
    }
    text += &format!("scheduled  {} jobs{next}\n", stats.scheduled.length);
    let workers = &stats.workers;
    text + &format!("workers    {} active, {} idle, {} known\n", workers.active, workers.idle, workers.total)
}
