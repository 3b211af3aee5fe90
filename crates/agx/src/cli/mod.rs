//! The command line. What stands here is the documentation.

mod map;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, QueueName, WorkerId},
    time::Timestamp,
};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::{
    map::MapArgs,
    server::{ServerArgs, server_of},
};

/// agx: submit plans and actions to agq, watch them, bring their results back.
///
/// A plan is a pipeline of ordinary Unix tools. An action runs a plan once for each of its inputs, on whatever workers
/// (agw) there are.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON documents, as docs/agx.md describes them
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Without a command: how everything stands.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const AFTER_HELP: &str = "Try it:\n  agx plan submit examples/word-frequency.json\n  \
find . -name '*.rs' | agx action submit word-frequency --lines - --field file --wait\n\n\
The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag.\n\n\
Exit codes: 0 all jobs completed, 1 a job failed, 2 wrong usage, 3 cannot reach agq or log in, 4 refused by agq, 130 stopped waiting";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start an agq and a worker on this machine, in the background
    Up(UpArgs),
    /// End what `agx up` or `agx join` has started
    Down(DownArgs),
    /// Make this machine a worker of an agq elsewhere, by the line that `agq token` printed there
    Join(JoinArgs),
    /// Print what a job, or the jobs of an action, wrote; with -f what they write, wherever they run
    Logs(LogsArgs),
    /// List the latest actions
    History {
        /// How many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        most: usize,
    },
    /// Show on the whole screen how everything stands, again and again; keys open, cancel, retry, drain, pause
    Top,
    /// Look at everything that has to be right: programs, limits, agq, clocks, workers, tools
    Doctor,
    /// Print what a shell needs to complete commands of agx
    ///
    /// For bash: agx completions bash > /etc/bash_completion.d/agx; for zsh into a directory of $fpath as _agx; for fish:
    /// agx completions fish > ~/.config/fish/completions/agx.fish
    Completions { shell: Shell },
    /// Print the JSON Schema of what --json prints
    JsonSchema,
    /// Write a man page for each command into a directory, as agx-map.1
    Man { directory: PathBuf },
    /// Profiles: which agq is spoken to when nothing is said
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Keep running what a directory says
    #[command(hide = true)]
    Keep { directory: PathBuf },
    /// Run a pipeline on many inputs, as xargs and GNU Parallel do; on its own, or on a cluster
    Map(Box<MapArgs>),
    /// Plans: pipelines that can be run again and again
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Actions: a plan, run once for each input
    #[command(subcommand)]
    Action(ActionCommand),
    /// Jobs: one run of a plan on one input
    #[command(subcommand)]
    Job(JobCommand),
    /// Workers: the machines that run jobs
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Queues: what waits, and for what
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Schedules: actions that are submitted again and again
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Workflows: actions that follow each other, the outputs of one being the inputs of the next
    #[command(subcommand)]
    Workflow(WorkflowCommand),
}

/// How to start.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// How many jobs the worker runs at once [default: the number of processors]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
    /// More options for agq, behind --, as -- --bind 0.0.0.0 --insecure
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) options_of_agq: Vec<String>,
}

/// Whose output.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// A job or an action; before each line of an action's jobs stands the number of the input
    #[arg(value_name = "JOB|ACTION")]
    pub(crate) id: ActionId,
    /// Go on until it has ended
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only of this task, by its number
    #[arg(long, value_name = "N")]
    pub(crate) task: Option<u32>,
}

/// What to end.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// The name that was given to `agx join` [default: local, which is `agx up`]
    pub(crate) name: Option<String>,
}

/// How to join.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The token; - reads it from stdin, so that it is in no history
    pub(crate) token: String,
    /// The name of the profile
    #[arg(long, value_name = "NAME", default_value = "cluster")]
    pub(crate) name: String,
    /// Only make the profile: no worker on this machine
    #[arg(long)]
    pub(crate) no_worker: bool,
    /// How many jobs the worker runs at once [default: the number of processors]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) jobs: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the profiles
    List,
    /// Remember --agq, --session-key-file and the certificates under a name
    Set { name: String },
    /// Speak to this one from now on
    Use { name: String },
    /// Forget a profile
    Remove { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Store a plan in agq
    Submit {
        /// The plan, JSON; - reads stdin
        file: PathBuf,
    },
    /// Print a stored plan
    Get { plan_id: PlanId },
    /// List the stored plans
    List,
    /// Print the plan that a shell pipeline is: 'sort {input.file} | uniq -c'; {} is the field `line`
    From(FromArgs),
    /// Make a plan by answering questions
    New,
    /// Edit a stored plan with $EDITOR; it is stored under another name, for plans do not change
    Edit {
        plan_id: PlanId,
        /// The new name [default: the old one and the next number]
        #[arg(long = "id", value_name = "ID")]
        new_id: Option<PlanId>,
    },
    /// Delete a plan that no job needs any more
    Delete { plan_id: PlanId },
    /// Check a plan without any agq
    Check {
        /// The plan, JSON; - reads stdin
        file: PathBuf,
    },
}

/// A pipeline that becomes a plan.
#[derive(Debug, Args, Default)]
pub(crate) struct FromArgs {
    /// The pipeline, in quotes
    pub(crate) pipeline: String,
    /// The plan's id [default: agq gives one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<PlanId>,
    /// The pipeline fails when any of its commands fails; without it, when the last one does, as in a shell
    #[arg(long)]
    pub(crate) pipefail: bool,
    /// How often a failed job is tried again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// How long a task may take: seconds, or with s, m, h or d behind it [default: 300]
    #[arg(long, value_name = "TIME", value_parser = map::parse_secs)]
    pub(crate) timeout: Option<u64>,
    /// Store it, instead of printing it
    #[arg(long)]
    pub(crate) submit: bool,
    /// Allow inputs within program texts, such as the script of `sh -c`: they run as code
    #[arg(long)]
    pub(crate) inputs_may_be_code: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ActionCommand {
    /// Run a plan on many inputs
    Submit(SubmitArgs),
    /// Show how an action gets on
    Status {
        action_id: ActionId,
        /// Go on showing it until it has ended; the exit code then tells whether all jobs completed
        #[arg(long)]
        watch: bool,
    },
    /// Show how an action gets on until it has ended; the exit code then tells whether all jobs completed
    Watch { action_id: ActionId },
    /// Cancel all jobs of an action that have not ended
    Cancel { action_id: ActionId },
    /// Try the failed and dead jobs of an action again
    Retry { action_id: ActionId },
    /// Compare two actions: whose inputs came out differently; the exit code is 1 if any did
    Diff { before: ActionId, after: ActionId },
    /// Print what the last task of each completed job wrote; failed jobs are named on stderr
    Results {
        action_id: ActionId,
        /// In the order of the inputs, rather than as they come
        #[arg(long)]
        ordered: bool,
        /// Write files DIR/<input number>.out (and .err for failed jobs) instead of printing
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("source").required(true)))]
pub(crate) struct SubmitArgs {
    /// The plan to run
    pub(crate) plan_id: PlanId,
    /// A JSON array of objects, one a job; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) inputs: Option<PathBuf>,
    /// Lines of text: each becomes {"line": …}, one a job; - reads stdin
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) lines: Option<PathBuf>,
    /// The field that a line becomes
    #[arg(long, value_name = "NAME", default_value = "line", requires = "lines")]
    pub(crate) field: String,
    /// The action's id; submitting the same again under it is harmless [default: a new one]
    #[arg(long = "id", value_name = "ID")]
    pub(crate) action_id: Option<ActionId>,
    /// The queue its jobs wait in; a worker takes jobs of the queues it was started with [default: ready]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// -100 to 100: jobs of a higher one run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Run its jobs at this time or later, as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    pub(crate) run_at: Option<Timestamp>,
    /// Run its jobs this many seconds from now or later; fractions are fine
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_delay)]
    pub(crate) delay: Option<f64>,
    /// Wait until the action has ended; the exit code then tells whether all jobs completed
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Say why a job is not running, and which worker comes nearest
    Explain { job_id: JobId },
    /// Cancel a job
    Cancel { job_id: JobId },
    /// Try a failed job again
    Retry {
        job_id: JobId,
        /// One that is dead or cancelled, too
        #[arg(long)]
        force: bool,
    },
    /// Show a job and what its tasks wrote
    Status { job_id: JobId },
    /// List the jobs of an action
    List {
        action_id: ActionId,
        /// Only those of this status: pending, running, completed, failed, dead or cancelled
        #[arg(long, value_parser = parse_status)]
        status: Option<Status>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers and what they do
    List,
    /// Let a worker take no more jobs; it finishes those it has
    Drain { worker_id: WorkerId },
    /// Let a drained or quarantined worker take jobs again
    Resume { worker_id: WorkerId },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Make a schedule, or replace the one of its name
    Set {
        /// The schedule, JSON: name, expression (minute hour day month weekday, or @daily …), timezone, action; - reads stdin
        file: PathBuf,
    },
    /// Print a schedule: when it submits next, and what it submitted last
    Get { name: String },
    /// List the schedules
    List,
    /// Delete a schedule; what it has submitted stays
    Delete { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Begin a workflow
    Submit {
        /// The workflow, JSON: steps, each of them an action; - reads stdin
        file: PathBuf,
    },
    /// Show how a workflow and its steps stand
    Status { workflow_id: String },
    /// List the workflows
    List,
    /// Let no step begin any more, and cancel those under way
    Cancel { workflow_id: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show what waits, and for what
    Stats,
    /// Let no job of a queue begin
    Pause { queue: QueueName },
    /// Let a paused queue go on
    Resume { queue: QueueName },
}

fn parse_delay(text: &str) -> Result<f64, String> {
    let delay = text.parse().ok().filter(|delay: &f64| delay.is_finite() && *delay >= 0.0);
    delay.ok_or_else(|| "give a number of seconds from 0, as 0.5".into())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "give an RFC 3339 time, as 2026-01-31T08:00:00Z".into())
}

fn parse_status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| "use pending, running, completed, failed, dead or cancelled".into())
}
