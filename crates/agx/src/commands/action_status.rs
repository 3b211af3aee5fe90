//! `agx action status`

use agenix_protocol::{
    documents::{ActionStatus, ConcurrencyKey},
    ids::ActionId,
};

use super::{labels::labels_of, verdict};
use crate::{
    connection_args::ConnectionArgs,
    error::Result,
    output::{OutputFormat, jobs},
    remote::retrying_client::RetryingClient,
    watch::progress,
};

pub(super) async fn run(
    server: &ConnectionArgs,
    id: &ActionId,
    watch: bool,
    output: OutputFormat,
) -> Result<()> {
    let mut connection = server.connect().await?;
    if watch {
        let mut agq = RetryingClient::new(server.server()?, connection, output);
        let status = progress::watch(&mut agq, id, output).await?;
        output.show("action.status", &status, text)?;
        return verdict(&status);
    }
    let status = connection.action(id).await?.ok_or_else(|| progress::not_found(id))?;
    output.show("action.status", &status, text)
}

fn text(status: &ActionStatus) -> String {
    let counts = [
        ("pending", status.pending),
        ("running", status.running),
        ("completed", status.completed),
        ("failed", status.failed),
        ("dead", status.dead),
        ("cancelled", status.cancelled),
    ];
    let head = format!("action {} of plan {}: {}", status.action_id, status.plan_id, jobs(status.total_jobs));
    let counts = counts.iter().map(|(name, count)| format!("\n  {name:<10} {count}"));
    let owner = status.owner.as_ref().map(|owner| format!("\n  owner      {owner}")).unwrap_or_default();
    let times = format!("\n  submitted  {}", status.created_at);
    let labels: Vec<String> = labels_of(status);
    let labels =
        if labels.is_empty() { String::new() } else { format!("\n  labels     {}", labels.join(", ")) };
    let at_once = status.max_running.map(|most| format!("\n  at once    at most {most}")).unwrap_or_default();
    let rate = status.rate.map(|rate| format!("\n  rate       at most {rate}")).unwrap_or_default();
    let share = status.share.as_ref().map(|share| format!("\n  share      {share}")).unwrap_or_default();
    let concurrency = status.concurrency.as_ref().map(|ConcurrencyKey { key, max_running }| {
        format!("\n  at once    at most {max_running} with the same key {key}")
    });
    let unique = if status.unique.is_some() { "\n  unique     no two jobs with one key" } else { "" };
    let open = if status.open { "\n  open       takes more inputs" } else { "" };
    let halted = status.halted.as_ref();
    let halted = halted
        .map(|halted| format!("\n  halted     {}, by {}", halted.at, halted.reason))
        .unwrap_or_default();
    let ended = status.completed_jobs_at.map(|at| format!("\n  ended      {at}")).unwrap_or_default();
    head + &counts.collect::<String>()
        + &labels
        + &owner
        + &times
        + &at_once
        + &rate
        + &share
        + &concurrency.unwrap_or_default()
        + unique
        + open
        + &halted
        + &ended
}
