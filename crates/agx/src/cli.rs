//! The command line: options of all commands, the commands, and their dispatch.
//! The doc comments of the arguments are the text of `--help` and of the man pages.

#[cfg(test)]
mod tests;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    background::supervisor,
    commands::{
        action::{self, ActionCommand},
        approve::{self, ApproveArgs, RejectArgs},
        audit::{self, AuditCommand},
        budget::{self, BudgetArgs},
        doctor,
        job::{self, JobCommand},
        key::{self, SigningKeyCommand},
        logs::{self, LogsArgs},
        map,
        map_args::MapArgs,
        mcp::{self, GuideArgs, McpArgs},
        overview,
        plan::{self, PlanCommand},
        policy::{self, PolicyCommand},
        profile::{self, ProfileCommand},
        provenance::{self, ProvenanceCommand},
        queue::{self, QueueCommand},
        run::{self, RunArgs},
        scale::{self, ScaleArgs},
        schedule::{self, ScheduleCommand},
        suggest,
        up::{self, DownArgs, JoinArgs, UpArgs},
        worker::{self, WorkerCommand},
        workflow::{self, WorkflowCommand},
    },
    connection_args::ConnectionArgs,
    docs_url::docs_url,
    error::{CliError, Result},
    json_schema,
    output::OutputFormat,
    top,
    util::atomic_file::cannot_write,
};

/// agx: submit plans and actions to agq, watch them, fetch their results
///
/// A plan is a pipeline of ordinary Unix tools. An action runs a plan once for each of its inputs,
/// on any number of workers (agw).
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: ConnectionArgs,
    #[arg(long, global = true, help = concat!("Print JSON documents, as described in ", docs_url!("agx.md")))]
    pub(crate) json: bool,
    /// Without a command: an overview of workers, queues and actions
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const AFTER_HELP: &str = "Try it:\n  agx plan from 'sort {input.file} | uniq -c' --id repeated --submit\n  \
ls *.txt | agx action submit repeated --lines - --field file --wait\n\n\
The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag.\n\n\
Exit codes: 0 all jobs completed, 1 a job failed or a policy does not allow it, 2 wrong usage, 3 cannot reach agq or the model, or log in, 4 refused by agq, 130 stopped waiting";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start agq and a worker on this machine, in the background
    Up(UpArgs),
    /// Stop the processes that `agx up` or `agx join` started
    Down(DownArgs),
    /// Make this machine a worker of a remote agq, with the token that `agq token` printed there
    Join(JoinArgs),
    /// Print the output of a job, or of all jobs of an action; -f follows it on any worker
    Logs(LogsArgs),
    /// List the latest actions
    History {
        /// Maximum number of actions
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        most: usize,
    },
    /// Show workers, queues and actions full-screen; keys open, cancel, retry, drain and pause them
    Top,
    /// Check programs, limits, agq, clocks, workers and tools
    Doctor,
    /// Print the shell completion of agx
    ///
    /// For bash: agx completions bash > /etc/bash_completion.d/agx; for zsh into a directory of
    /// $fpath as _agx; for fish: agx completions fish > ~/.config/fish/completions/agx.fish
    Completions { shell: Shell },
    /// Print the JSON Schema of the output of --json
    JsonSchema,
    /// Write a man page for each command into a directory, as agx-map.1
    Man { directory: PathBuf },
    /// Manage profiles: the agq and session key that agx uses by default
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Supervise the processes that a directory describes
    #[command(hide = true)]
    Supervise { directory: PathBuf },
    /// Run a pipeline on many inputs, like xargs and GNU Parallel; on this machine or on a cluster
    Map(Box<MapArgs>),
    /// Run one command as a job: its output live, its exit code, Ctrl-C; here or on a cluster
    Run(RunArgs),
    /// Manage plans: stored pipelines
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Manage keys that sign plans
    #[command(subcommand)]
    Key(SigningKeyCommand),
    /// Check policies: which tools plans may run, with which arguments and files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// List the plans that wait for approval; with PLAN, show what will run, and approve the plan
    ///
    /// A policy of agq can demand that a person approves a plan. Jobs of the plan wait until then.
    /// The key has to be an admin's, and not the one that submitted the plan. Without a terminal,
    /// give the digest that `agx approve PLAN` shows.
    Approve(ApproveArgs),
    /// Reject a plan that waits for approval: its jobs are cancelled
    Reject(RejectArgs),
    /// Verify the audit log of agq
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Manage actions: runs of a plan on a list of inputs
    #[command(subcommand)]
    Action(ActionCommand),
    /// Manage jobs: runs of a plan on one input
    #[command(subcommand)]
    Job(JobCommand),
    /// Show and verify what workers have signed about the tasks of a job
    #[command(subcommand)]
    Provenance(ProvenanceCommand),
    /// Manage workers: the machines that run jobs
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Start and end workers as the jobs need them, by your commands: an autoscaler for any cloud
    ///
    /// agx looks at agq in intervals. If jobs wait for room for --up-after, --up runs; if a worker
    /// has been idle for --down-after, agx drains it, and --down runs. Ctrl-C ends agx, and no
    /// worker.
    Scale(ScaleArgs),
    /// Manage queues: waiting jobs and the capabilities that they need
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Show how much of the budgets of keys is used, and when it comes back
    Budget(BudgetArgs),
    /// Serve agents over the Model Context Protocol (MCP): an MCP client starts this command
    Mcp(McpArgs),
    /// Print a page for agents about the tools of `agx mcp` and the command line
    AgentGuide(GuideArgs),
    /// Manage schedules: actions that agq submits at set times
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Manage workflows: actions that run after each other, and pass outputs on as inputs
    #[command(subcommand)]
    Workflow(WorkflowCommand),
}

/// Runs the command. If an id is not found, the error suggests the closest existing id.
pub(crate) async fn run(cli: Cli, output: OutputFormat) -> Result<()> {
    let Cli { server, command, .. } = cli;
    match dispatch(&server, command, output).await {
        Err(failure @ CliError::NotThere { .. }) => Err(suggest::with_suggestion(&server, failure).await),
        done => done,
    }
}

async fn dispatch(server: &ConnectionArgs, command: Option<Command>, output: OutputFormat) -> Result<()> {
    let Some(command) = command else { return overview::overview(server, output).await };
    match command {
        Command::Up(args) => up::up(&args, server, output).await,
        Command::Down(args) => up::down(&args, output).await,
        Command::Join(args) => up::join(&args, output).await,
        Command::Supervise { directory } => supervisor::run(&directory).await,
        Command::Profile(command) => profile::run(server, command, output),
        Command::Logs(args) => logs::run(server, &args, output).await,
        Command::History { most } => overview::history(server, most, output).await,
        Command::Top => top(server).await,
        Command::Doctor => doctor::run(server, output).await,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agx", &mut text);
            output.raw(&text)?;
            output.flush()
        }
        Command::JsonSchema => {
            let schema = serde_json::to_string_pretty(&json_schema::document()).unwrap_or_default();
            output.raw(schema.as_bytes())?;
            output.raw(b"\n")?;
            output.flush()
        }
        Command::Man { directory } => man(&directory),
        Command::Map(args) => map::run(server, *args, output).await,
        Command::Run(args) => run::run(server, args, output).await,
        Command::Plan(command) => plan::run(server, command, output).await,
        Command::Policy(command) => policy::run(&command, output),
        Command::Key(command) => key::run(&command, output),
        Command::Approve(args) => approve::approve(server, args, output).await,
        Command::Reject(args) => approve::reject(server, args, output).await,
        Command::Audit(command) => audit::run(&command, output),
        Command::Action(command) => action::run(server, command, output).await,
        Command::Job(command) => job::run(server, command, output).await,
        Command::Provenance(command) => provenance::run(server, command, output).await,
        Command::Worker(command) => worker::run(server, command, output).await,
        Command::Scale(args) => scale::run(server, args, output).await,
        Command::Budget(args) => budget::run(server, &args, output).await,
        Command::Mcp(args) => mcp::run(server, args, output).await,
        Command::AgentGuide(args) => mcp::guide(&args, output),
        Command::Queue(command) => queue::run(server, command, output).await,
        Command::Schedule(command) => schedule::run(server, command, output).await,
        Command::Workflow(command) => workflow::run(server, command, output).await,
    }
}

fn man(directory: &Path) -> Result<()> {
    let written =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| cannot_write(directory, &error))
}

async fn top(server: &ConnectionArgs) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        return Err(CliError::usage("there is no terminal for it", "for a script there is `agx --json`"));
    }
    top::show(&server.server()?).await
}
