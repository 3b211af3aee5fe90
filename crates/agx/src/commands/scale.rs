//! `agx scale`: an autoscaler for any way to start and end workers.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use crate::{
    connection_args::ConnectionArgs,
    documents::{ScaleDirection, ScaleOutcome, ScaleStep},
    error::{CliError, Result},
    output::{OutputFormat, counted},
    remote::retrying_client::RetryingClient,
    scale::{Hook, ScaleDecision, ScaleSelection, ScaleTerms, Scaler, pause},
    util::{
        duration::parse_duration,
        signals::{self, FirstSignal},
    },
};
use agenix_protocol::ids::QueueName;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ScaleArgs {
    /// Command that starts AGX_SCALE_COUNT workers, or sets their number to AGX_SCALE_WANTED
    #[arg(long, value_name = "CMD", required_unless_present = "down")]
    up: Option<String>,
    /// Command that ends the worker AGX_SCALE_WORKER_ID on the host AGX_SCALE_WORKER_HOST; needs
    /// the key of an admin
    ///
    /// The worker is drained and holds no job. If the command fails, the worker takes jobs again.
    #[arg(long, value_name = "CMD")]
    down: Option<String>,
    /// Minimum number of workers
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_WORKERS))]
    min: u64,
    /// Maximum number of workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS))]
    max: u64,
    /// Look only at jobs of this queue; can be repeated [default: all queues; with --tag, the jobs
    /// that need the tags]
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<QueueName>,
    /// Look only at workers with this tag; can be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Time between two looks at agq: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_interval)]
    interval: Duration,
    /// Start workers after jobs have lacked them for TIME
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration, conflicts_with = "once")]
    up_after: Duration,
    /// End a worker after it has been idle for TIME
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration, conflicts_with = "once")]
    down_after: Duration,
    /// Expect a started worker to register within this time; after that, start another one
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    start_timeout: Duration,
    /// Kill a command that takes longer
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    command_timeout: Duration,
    /// Decide once, without the delays, and end: for cron
    #[arg(long)]
    once: bool,
    /// Print the decisions, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Maximum of `--min` and `--max`.
const MAX_WORKERS: u64 = 100_000;

const AFTER_HELP: &str = "Examples:\n  agx scale --max 20 --up 'cloud-cli set-size workers $AGX_SCALE_WANTED' \
--down 'cloud-cli delete-machine \"$AGX_SCALE_WORKER_HOST\"'\n  agx scale --max 4 --once --dry-run --up true\n\n\
sh -c runs the commands, with these variables: AGX_SCALE_WORKERS, workers that take jobs or are starting; AGX_SCALE_WANTED, workers \
after the command; AGX_SCALE_WAITING, jobs that wait; AGX_SCALE_REASON; for --up AGX_SCALE_COUNT; for --down AGX_SCALE_WORKER_ID \
and AGX_SCALE_WORKER_HOST. They write to stderr.\n\
Exit codes: 0 ended by Ctrl-C or SIGTERM, or, with --once, nothing to do or done; 1 with --once, a command failed";

pub(crate) async fn run(server: &ConnectionArgs, args: ScaleArgs, output: OutputFormat) -> Result<()> {
    if args.min > args.max {
        return Err(CliError::usage(
            format!("--min {} is more than --max {}", args.min, args.max),
            "give a larger --max",
        ));
    }
    let mut signal = signals::listen();
    let agq = RetryingClient::new(server.server()?, server.connect().await?, output);
    let hook = |option, command: &Option<String>| {
        command.clone().map(|command| Hook { option, command, timeout: args.command_timeout })
    };
    let hooks = (hook("--up", &args.up), hook("--down", &args.down));
    let mut scaler = Scaler::new((agq, output), (args.terms(), args.selection()), hooks, args.dry_run);
    if args.once {
        return once(&mut scaler, &mut signal).await;
    }
    until_signal(&mut scaler, args.interval, &mut signal).await
}

impl ScaleArgs {
    fn terms(&self) -> ScaleTerms {
        let delay = |delay| if self.once { Duration::ZERO } else { delay };
        ScaleTerms {
            can_start: self.up.is_some(),
            can_end: self.down.is_some(),
            min: self.min,
            max: self.max,
            up_after: delay(self.up_after),
            down_after: delay(self.down_after),
            start_timeout: self.start_timeout,
            command_timeout: self.command_timeout,
        }
    }

    fn selection(&self) -> ScaleSelection {
        let queues = self.queue.iter().map(ToString::to_string).collect();
        ScaleSelection { queues, tags: self.tag.clone() }
    }
}

/// Decides once. A command that fails is an error.
async fn once(scaler: &mut Scaler, signal: &mut FirstSignal) -> Result<()> {
    let looked = tokio::select! {
        polled = scaler.poll() => polled?,
        () = signal.arrived() => return Ok(()),
    };
    let step = finished(scaler, looked, signal).await?;
    show(&step, scaler.output)?;
    match step.error {
        None => Ok(()),
        Some(problem) => Err(CliError::HookFailed {
            problem,
            help: "see above what the command has written; workers that it has started are counted when they register".into(),
        }),
    }
}

/// Decides again and again until a signal asks this process to end.
async fn until_signal(scaler: &mut Scaler, interval: Duration, signal: &mut FirstSignal) -> Result<()> {
    let (mut failures, mut shown) = (0, None);
    loop {
        let looked = tokio::select! {
            polled = scaler.poll() => polled?,
            () = signal.arrived() => return Ok(()),
        };
        let step = finished(scaler, looked, signal).await?;
        failures = if step.outcome == ScaleOutcome::Failed { failures + 1 } else { 0 };
        let wait = pause(interval, failures);
        // A decision that is not carried out is the same at the next poll.
        let is_news = step.outcome != ScaleOutcome::NotRun || shown.as_ref() != Some(&step);
        if step.decision != ScaleDirection::None && is_news {
            show(&step, scaler.output)?;
        }
        if let Some(error) = &step.error {
            scaler.output.note(&format!(
                "agx: {error}; see above what the command has written; agx looks again in {} s",
                wait.as_secs_f32()
            ));
        }
        shown = Some(step);
        tokio::select! {
            () = sleep(wait) => {}
            () = signal.arrived() => return Ok(()),
        }
    }
}

/// Carries out a decision. A signal does not interrupt the command, which may have started half of
/// its machines.
async fn finished(
    scaler: &mut Scaler,
    (decision, step): (ScaleDecision, ScaleStep),
    signal: &mut FirstSignal,
) -> Result<ScaleStep> {
    let output = scaler.output;
    let acted = scaler.act(decision, step);
    tokio::pin!(acted);
    tokio::select! {
        step = &mut acted => return step,
        () = signal.arrived() => output.note("agx: waiting for the end of the command; a second signal does not wait"),
    }
    acted.await
}

fn show(step: &ScaleStep, output: OutputFormat) -> Result<()> {
    output.show("scale", step, text)
}

/// Returns a line about a step.
fn text(step: &ScaleStep) -> String {
    let ScaleStep { workers, wanted, reason, .. } = step;
    let worker = step.worker_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let host = step.hostname.as_deref().unwrap_or_default();
    let count = counted(wanted.saturating_sub(*workers), "worker", "workers");
    match (step.decision, step.outcome) {
        (ScaleDirection::None, _) => {
            format!("nothing to do with {}: {reason}", counted(*workers, "worker", "workers"))
        }
        (ScaleDirection::Up, ScaleOutcome::Done) => format!("started {count}, {wanted} in all: {reason}"),
        (ScaleDirection::Up, ScaleOutcome::Failed) => format!("failed to start {count}: {reason}"),
        (ScaleDirection::Up, _) => format!("would start {count}, {wanted} in all: {reason}"),
        (ScaleDirection::Down, ScaleOutcome::Done) => {
            format!("ended {worker} on {host}, {wanted} left: {reason}")
        }
        (ScaleDirection::Down, ScaleOutcome::Failed) => {
            format!("failed to end {worker} on {host}: it takes jobs again")
        }
        (ScaleDirection::Down, ScaleOutcome::Spared) => {
            format!(
                "did not end {worker} on {host}: it has got a job, has ended by itself, or an operator has drained it"
            )
        }
        (ScaleDirection::Down, ScaleOutcome::NotRun) => format!("would end {worker} on {host}: {reason}"),
        (ScaleDirection::Resume, ScaleOutcome::NotRun) => {
            format!("would resume {worker} on {host}: {reason}")
        }
        (ScaleDirection::Resume, ScaleOutcome::Done) => format!("resumed {worker} on {host}: {reason}"),
        (ScaleDirection::Resume, _) => format!("did not resume {worker} on {host}: it has ended by itself"),
    }
}

/// Parses a duration that is not 0.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval.is_zero() { Err("give more than 0".into()) } else { Ok(interval) }
}
