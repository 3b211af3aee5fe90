//! The command line. What stands here is the documentation.

mod map;

use std::path::PathBuf;

use agenix_client::{Address, Connection, KEY_HELP, KeyError, Server, Tls, session_key};
use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, QueueName},
    time::Timestamp,
};
use clap::{Args, Parser, Subcommand};

pub(crate) use self::map::MapArgs;
use crate::failure::Failure;

/// agx: submit plans and actions to agq, watch them, bring their results back.
///
/// A plan is a pipeline of ordinary Unix tools. An action runs a plan once for each of its inputs, on whatever workers
/// (agw) there are.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON documents, as docs/agx.md describes them
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "Try it:\n  agx plan submit examples/word-frequency.json\n  \
find . -name '*.rs' | agx action submit word-frequency --lines - --field file --wait\n\n\
The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag.\n\n\
Exit codes: 0 all jobs completed, 1 a job failed, 2 wrong usage, 3 cannot reach agq or log in, 4 refused by agq, 130 stopped waiting";

/// Where agq is when nothing is said.
const DEFAULT_ADDRESS: &str = "127.0.0.1:6380";
/// The variable that says it beside AGQ_ADDR.
const URL: &str = "AGQ_URL";

/// Where agq is.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Where agq is: HOST:PORT, or rediss://HOST:PORT for TLS, or unix:/PATH; several with commas between them, where they
    /// share a database: when one is gone, the next is gone to
    ///
    /// [default: 127.0.0.1:6380]
    #[arg(long, global = true, env = "AGQ_ADDR", value_name = "ADDRESS")]
    agq: Option<String>,
    /// A file that holds the session key
    #[arg(long, global = true, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// The CA of agq's certificate, PEM [default: those of the system]
    #[arg(long, global = true, env = "AGQ_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate of ours, where agq asks for one, PEM; one that names a client may do without a key
    #[arg(long, global = true, env = "AGQ_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, PEM
    #[arg(long, global = true, env = "AGQ_KEY_FILE", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    /// Check a plan without any agq
    Check {
        /// The plan, JSON; - reads stdin
        file: PathBuf,
    },
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

impl ServerArgs {
    /// Connects to agq.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        Ok(Connection::open(&self.server()?).await?)
    }

    /// The agq that is named, if one is.
    pub(crate) fn given(&self) -> Result<Option<Server>, Failure> {
        if self.address().is_some() { self.server().map(Some) } else { Ok(None) }
    }

    /// Where agq is, where that is said.
    fn address(&self) -> Option<String> {
        let set = |name| std::env::var(name).ok().filter(|url: &String| !url.trim().is_empty());
        self.agq.clone().or_else(|| set(URL))
    }

    /// Where agq is and how to log in.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let key = match session_key(self.session_key_file.as_deref()) {
            Ok(key) => Some(key),
            // The certificate may say who we are.
            Err(KeyError::Missing) if self.tls_cert.is_some() => None,
            Err(error @ KeyError::Missing) => {
                return Err(Failure::NoServer { what: error.to_string(), help: KEY_HELP.into() });
            }
            Err(error) => return Err(Failure::usage(error.to_string(), KEY_HELP)),
        };
        let help = "say where agq is with --agq or AGQ_ADDR, and for TLS which certificates with --tls-ca, \
                    --tls-cert and --tls-key";
        let wrong = |what| Failure::usage(what, help);
        let tls = Tls { ca: self.tls_ca.clone(), cert: self.tls_cert.clone(), key: self.tls_key.clone() };
        let address = self.address().unwrap_or_else(|| DEFAULT_ADDRESS.into());
        let addresses = Address::parse_all(&address).map_err(wrong)?;
        Server::with_tls(addresses, tls, key).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
