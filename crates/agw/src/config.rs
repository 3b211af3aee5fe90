//! What agw is told, by flags and variables.

use std::{collections::BTreeMap, path::PathBuf};

use agenix_client::{Address, KEY_HELP, Server, SessionKeyError, Tls, session_key};
use agenix_protocol::{
    documents::WorkerRegistration,
    ids::{QueueName, WorkerId},
    limits::DEFAULT_KEPT_BYTES,
    reserved_keys::READY,
};
use anyhow::{anyhow, bail};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::Value;

/// Longest time of grace, in seconds: a year.
const MOST_GRACE_SECS: u64 = 31_536_000;

/// agw, the worker: takes jobs from agq, runs their tasks on this machine, reports what became of them.
///
/// It offers the programs on PATH and gets only jobs that it can run. SIGTERM or Ctrl-C drains it: it takes no more jobs,
/// finishes those it has, and goes; a second one ends them at once. SIGTSTP: it takes no more jobs until SIGCONT. SIGHUP: it
/// looks at PATH again.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What to do instead of working.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) config: Config,
}

/// What agw does besides working.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what a shell needs to complete options of agw
    Completions { shell: Shell },
    /// Write a man page into a directory
    Man { directory: PathBuf },
}

/// How to work.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// Where agq is: HOST:PORT, or rediss://HOST:PORT for TLS, or unix:/PATH; several with commas between them, where they
    /// share a database: when one is gone, the next is gone to
    #[arg(long, env = "AGQ_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    agq: String,
    /// A file that holds the session key
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// The CA of agq's certificate, PEM [default: those of the system]
    #[arg(long, env = "AGQ_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A certificate of ours, where agq asks for one, PEM; one with the worker's id as its DNS name may do without a key
    #[arg(long, env = "AGQ_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, PEM
    #[arg(long, env = "AGQ_KEY_FILE", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// This worker's id, unique among the living [default: worker-HOSTNAME-PID]
    #[arg(long, env = "AGW_WORKER_ID", value_name = "ID")]
    worker_id: Option<WorkerId>,
    /// How many jobs to run at once [default: the number of CPUs]
    #[arg(long, env = "AGW_MAX_CONCURRENT_JOBS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_concurrent_jobs: Option<u32>,
    /// How many jobs to claim ahead for each slot at the most: one where jobs take less than 200 ms, more where they take less
    /// than 40 ms together; 0 claims none that cannot start at once
    #[arg(long, env = "AGW_PREFETCH", value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) prefetch: u32,
    /// Offer only these programs, of those that are on PATH
    #[arg(long, env = "AGW_TOOLS", value_name = "NAME,NAME…", value_delimiter = ',', value_parser = member)]
    pub(crate) tools: Option<Vec<String>>,
    /// Take jobs from these queues: each time from the first of them that has one
    #[arg(long, env = "AGW_QUEUES", value_name = "NAME,NAME…", value_delimiter = ',', value_parser = queue,
        default_value = READY)]
    pub(crate) queues: Vec<QueueName>,
    /// A pool that this worker is in (NAME), or something else to know about it (NAME=VALUE); may be given several times
    #[arg(long = "tag", value_name = "NAME[=VALUE]")]
    tags: Vec<String>,
    /// How long to wait for running jobs when draining, in seconds
    #[arg(long, env = "AGW_GRACE", value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(..=MOST_GRACE_SECS))]
    pub(crate) grace: u64,
    /// Time between SIGTERM and SIGKILL for a task that has to end, in seconds
    #[arg(long, env = "AGW_KILL_GRACE", value_name = "SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(..=MOST_GRACE_SECS))]
    pub(crate) kill_grace: u64,
    /// Most bytes of a task's stdout and of its stderr that are kept for the result
    #[arg(long, env = "AGW_KEPT_BYTES", value_name = "N", default_value_t = DEFAULT_KEPT_BYTES)]
    pub(crate) kept_bytes: usize,
    /// Where output between tasks is spooled [default: the system's temporary directory]
    #[arg(long, env = "AGW_SPOOL_DIR", value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    /// Most bytes of the spool's disk that the output of a job may take; a job that takes more is
    /// ended, and fails
    #[arg(long, env = "AGW_SPOOL_QUOTA", value_name = "BYTES", default_value_t = 17_179_869_184)]
    pub(crate) spool_quota: u64,
    /// Bytes of the spool's disk that are to stay free, at most a tenth of it: where less is, a job
    /// whose output takes more than what is left is ended, and fails
    #[arg(long, env = "AGW_SPOOL_RESERVE", value_name = "BYTES", default_value_t = 1_073_741_824)]
    pub(crate) spool_reserve: u64,
    /// End at once when stdin ends: for whoever starts agw and holds the other end, and may be killed
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
}

const AFTER_HELP: &str = "The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag.\n\n\
Logs go to stderr; AGW_LOG=debug shows more.\n\n\
Exit codes: 0 drained, 1 ended with jobs unfinished or failed, 2 wrong usage, 3 refused by agq.";

/// Parses one member of a list and removes the blanks around the member.
fn member(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => {
            Err("a member of the list is empty; write names with one comma between them, and none at the end"
                .into())
        }
        name => Ok(name.to_owned()),
    }
}

/// Parses one member of a list of queues.
fn queue(text: &str) -> Result<QueueName, String> {
    QueueName::new(member(text)?).map_err(|error| error.to_string())
}

impl Config {
    /// Where agq is and how to log in.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        let key = match session_key(self.session_key_file.as_deref()) {
            Ok(key) => Some(key),
            // The certificate may say who we are.
            Err(SessionKeyError::Missing) if self.tls_cert.is_some() => None,
            Err(error) => return Err(anyhow!("{error}: {KEY_HELP}")),
        };
        let tls = Tls { ca: self.tls_ca.clone(), cert: self.tls_cert.clone(), key: self.tls_key.clone() };
        let addresses = Address::parse_all(&self.agq).map_err(anyhow::Error::msg)?;
        Server::with_tls(addresses, tls, key).map_err(anyhow::Error::msg)
    }

    pub(crate) fn spool_dir(&self) -> PathBuf {
        self.spool_dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Tells whether the user gave the worker an id. A worker without a given id may take another
    /// one.
    pub(crate) fn has_own_id(&self) -> bool {
        self.worker_id.is_some()
    }

    /// How the worker introduces itself.
    pub(crate) fn registration(
        &self,
        tools: Vec<String>,
        agentic_units: Vec<String>,
    ) -> anyhow::Result<WorkerRegistration> {
        let hostname = sysinfo::System::host_name().unwrap_or_else(|_| "unknown".into());
        let worker_id =
            self.worker_id.clone().map_or_else(|| default_id(&hostname, std::process::id()), Ok)?;
        let cpus = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        Ok(WorkerRegistration {
            worker_id,
            hostname,
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            agw_version: env!("CARGO_PKG_VERSION").into(),
            capabilities: agenix_protocol::documents::Capabilities { tools, agentic_units },
            max_concurrent_jobs: self.max_concurrent_jobs.unwrap_or(cpus),
            tags: self.tags.iter().map(|text| tag(text)).collect::<anyhow::Result<_>>()?,
            // The agentic units are asked when everything else is ready.
            descriptions: BTreeMap::new(),
            instance: Some(uuid::Uuid::new_v4().to_string()),
            active_job_ids: None,
        })
    }
}

/// `NAME=VALUE`, or `NAME` alone for a pool; true, false, null and numbers are what they are in JSON.
fn tag(text: &str) -> anyhow::Result<(String, Value)> {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    if name.is_empty() {
        bail!("--tag '{text}' has no name: write NAME=VALUE, or NAME alone");
    }
    let scalar = serde_json::from_str::<Value>(value).ok();
    let scalar =
        scalar.filter(|value| !matches!(value, Value::Array(_) | Value::Object(_) | Value::String(_)));
    Ok((name.to_owned(), scalar.unwrap_or_else(|| Value::from(value))))
}

/// `worker-<hostname>-<pid>`, with what an id may not hold replaced by `-`, and cut where the name is long.
fn default_id(hostname: &str, pid: u32) -> anyhow::Result<WorkerId> {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let host: String = hostname.chars().take(40).map(legal).collect();
    Ok(WorkerId::new(format!("worker-{host}-{pid}"))?)
}

/// Returns another id for a worker whose default id `taken` belongs to another worker, because two
/// hosts of one name may have workers with the same process id.
pub(crate) fn other_id(taken: &WorkerId, random: uuid::Uuid) -> Option<WorkerId> {
    let random = random.simple().to_string();
    WorkerId::new(format!("{taken}-{}", &random[..5])).ok()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::{Cli, default_id, member, other_id, queue};

    fn read(args: &[&str]) -> Result<Cli, String> {
        let matches = Cli::command().try_get_matches_from([&["agw"], args].concat());
        matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| error.to_string())
    }

    #[test]
    fn blanks_in_lists_do_not_count_and_empty_members_are_refused() {
        let config = read(&["--tools", "echo, sort", "--queues", " ready ,night"]).unwrap().config;
        assert_eq!(config.tools.unwrap(), ["echo", "sort"]);
        assert_eq!(config.queues.iter().map(|queue| queue.as_str()).collect::<Vec<_>>(), ["ready", "night"]);
        for args in [["--tools", "echo,"], ["--queues", "ready,,night"], ["--tools", " "]] {
            assert!(read(&args).unwrap_err().contains("a member of the list is empty"), "{args:?}");
        }
        assert!(member("\t").is_err() && queue("a b").is_err());
    }

    #[test]
    fn another_id_is_legal_and_begins_with_the_one_that_is_taken() {
        let taken = default_id(&"x".repeat(300), u32::MAX).unwrap();
        let [one, other] = [(); 2].map(|()| other_id(&taken, uuid::Uuid::new_v4()).unwrap());
        assert!(one != other && one.as_str().starts_with(taken.as_str()));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn ids_are_legal_on_every_host() {
        assert_eq!(default_id("macbook-pro.local", 7).unwrap().as_str(), "worker-macbook-pro-local-7");
        assert!(default_id(&"x".repeat(300), u32::MAX).is_ok());
    }
}
