//! `agx action submit`

use std::time::Duration;

use agenix_protocol::{
    documents::{ActionSubmission, StartRate},
    ids::{ActionId, PlanId, QueueName, ShareName},
    time::Timestamp,
};
use clap::Args;

use super::{
    action_inputs::InputFiles,
    concurrency_args::ConcurrencyArgs,
    labels::{Label, labels, parse_label},
    new_id,
    quantity_args::{QuantityArgs, note_workers_of_action},
    unique_args::UniqueArgs,
    verdict,
};
use crate::{
    connection_args::ConnectionArgs,
    documents::ActionSubmitted,
    error::{CliError, Result},
    output::{OutputFormat, jobs},
    remote::{chunked_submit, retrying_client::RetryingClient},
    util::duration::parse_duration,
    watch::progress,
};

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The plan to run
    pub(crate) plan_id: PlanId,
    #[command(flatten)]
    pub(crate) inputs: InputFiles,
    /// Keep the action open for `agx action add`, until `agx action close`
    #[arg(long, conflicts_with = "wait")]
    pub(crate) open: bool,
    /// Action id; repeating the same submission with the same id is safe [default: a new id]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) action_id: Option<ActionId>,
    /// Queue of the jobs; a worker takes jobs of the queues it was started with [default: ready]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// -100 to 100: jobs with a higher priority run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Maximum number of jobs that run at once, on all workers together [default: no maximum]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_running: Option<u64>,
    /// Maximum rate at which the jobs start, as 10/s, 100/m or 3/10s [default: no maximum]
    #[arg(long, value_name = "JOBS/TIME")]
    pub(crate) rate: Option<StartRate>,
    /// Share of the queue that the jobs belong to [default: that of your key]
    #[arg(long, value_name = "NAME")]
    pub(crate) share: Option<ShareName>,
    #[command(flatten)]
    pub(crate) concurrency: ConcurrencyArgs,
    #[command(flatten)]
    pub(crate) unique: UniqueArgs,
    /// Do not start the jobs before this time, as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    pub(crate) run_at: Option<Timestamp>,
    /// Start the jobs TIME after the submission or later: seconds, as 0.5, or a number with s, m, h
    /// or d
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = parse_duration)]
    pub(crate) delay: Option<Duration>,
    #[command(flatten)]
    pub(crate) quantities: QuantityArgs,
    /// Label of the action, which `agx action list --label` finds; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<Label>,
    /// Wait until the action ends; the exit code is 1 if a job did not complete
    #[arg(long)]
    pub(crate) wait: bool,
}

pub(super) async fn run(server: &ConnectionArgs, args: SubmitArgs, output: OutputFormat) -> Result<()> {
    let inputs = match args.inputs.read_all(output)? {
        Some(inputs) => inputs,
        None if args.open => Vec::new(),
        None => {
            return Err(CliError::usage(
                "there are no inputs",
                "give --inputs FILE or --lines FILE, or --open to add them later",
            ));
        }
    };
    let action_id = args.action_id.map_or_else(new_id, Ok)?;
    let action = ActionSubmission {
        action_id: Some(action_id),
        queue: args.queue,
        priority: args.priority,
        max_running: args.max_running,
        rate: args.rate,
        share: args.share,
        concurrency: args.concurrency.given().map(|key| args.concurrency.with(key.to_owned())),
        unique: args.unique.read(),
        run_at: args.run_at,
        delay_secs: args.delay.map(|delay| delay.as_secs_f64()),
        open: args.open,
        labels: labels(args.labels)?,
        resources: args.quantities.quantities()?,
        retry_memory_factor: args.quantities.retry_memory_factor(),
        ..ActionSubmission::new(args.plan_id, inputs)
    };
    let (plan_id, quantities) = (action.plan_id.clone(), action.resources.clone());
    let mut agq = RetryingClient::new(server.server()?, server.connect().await?, output);
    let submitted = chunked_submit::submit(&mut agq, action, output).await?;
    let (action_id, count) = (submitted.action_id, submitted.jobs_created);
    let is_left_out = count == 0 && !args.open;
    if !is_left_out && let Some(mut agq) = agq.connection() {
        // The action is stored, so a failure of the note is no failure of the submission.
        let _unknown = note_workers_of_action(&mut agq, &plan_id, &quantities, output).await;
    }
    if !args.wait || is_left_out {
        let data = ActionSubmitted { action_id: action_id.clone(), jobs_created: count };
        return output.show("action.submit", &data, |_| {
            if is_left_out {
                return "another job stands for each input, so agq has stored no action".into();
            }
            if args.open {
                return format!(
                    "action {action_id} has {} and is open: `agx action add {action_id}` adds inputs, and \
                     `agx action close {action_id}` ends them",
                    jobs(count)
                );
            }
            format!("action {action_id} has {}; watch it with `agx action watch {action_id}`", jobs(count))
        });
    }
    if !output.is_json {
        output.note(&format!("action {action_id} has {}", jobs(count)));
    }
    let status = progress::watch(&mut agq, &action_id, output).await?;
    output.show("action.status", &status, |status| format!("{}", status.action_id))?;
    verdict(&status)
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "give an RFC 3339 time, as 2026-01-31T08:00:00Z".into())
}
