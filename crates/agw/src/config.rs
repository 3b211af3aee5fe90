//! Settings of the worker, from command-line flags and environment variables.

use std::{collections::BTreeMap, path::PathBuf};

use agenix_client::{Address, KEY_HELP, Server, SessionKeyError, Tls, is_key_in_variable, session_key};
use agenix_protocol::{
    documents::{PROGRAM_PATHS, Quantities, WorkerRegistration, secret_of_tag},
    ids::{QueueName, WorkerId},
    limits::DEFAULT_KEPT_BYTES,
    reserved_keys::READY,
};
use anyhow::{anyhow, bail};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::{Map, Value};
use tracing::warn;

use crate::resources::{DeclaredResource, ResourceList, parse_all};

/// Tag with the public key that signs provenance.
pub(crate) const PROVENANCE_KEY: &str = "provenance-key";
/// Maximum grace period in seconds: one year.
const MAX_GRACE_SECS: u64 = 31_536_000;

/// Worker of AGEniX: claims jobs from agq, runs their tasks on this machine, and reports the
/// results.
///
/// The worker offers the programs on PATH and gets only jobs that it can run. SIGTERM or Ctrl-C
/// drains the worker: it claims no more jobs, finishes the running ones, and exits. A second signal
/// ends the running jobs at once. SIGTSTP pauses claiming until SIGCONT. SIGHUP searches PATH
/// again, and reads the policy and the trust file again.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) config: Config,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the completion script for a shell
    Completions { shell: Shell },
    /// Write a man page into a directory
    Man { directory: PathBuf },
    /// Show which guarantees about untrusted tasks this machine can enforce
    ///
    /// The command starts a sandbox, attacks it from inside, and prints what has stopped each
    /// attack. As root, it examines the sandbox of the user 65534 (nobody). The exit code is 1 if
    /// this machine cannot enforce the profile reader, which untrusted jobs need.
    Sandbox {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// Address of agq: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH. Give several addresses
    /// of one database with commas between them: the worker uses the next one when one cannot be
    /// reached
    #[arg(long, env = "AGQ_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    agq: String,
    /// File with the session key; AGQ_SESSION_KEY wins over it
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// CA of agq's certificate, PEM [default: those of the system]
    #[arg(long, env = "AGQ_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate, PEM, if agq asks for one. A certificate with the worker's id as its DNS
    /// name may replace the session key
    #[arg(long, env = "AGQ_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM
    #[arg(long, env = "AGQ_KEY_FILE", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Id of this worker, unique among live workers [default: worker-HOSTNAME-PID]
    #[arg(long, env = "AGW_WORKER_ID", value_name = "ID")]
    worker_id: Option<WorkerId>,
    /// Maximum number of jobs that run at the same time, 1 to 10,000 [default: the number of CPUs]
    #[arg(long, env = "AGW_MAX_CONCURRENT_JOBS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_concurrent_jobs: Option<u32>,
    /// Resource that jobs may want a quantity of: cpus=3.5, memory=16G, gpus=2, gpus=0,1 with the
    /// indices or UUIDs of GPUs, or any other name, as licences=3; 0 withdraws a resource. May be
    /// given several times, or with blanks between [default: the CPUs, the memory and the GPUs of
    /// this machine]
    #[arg(long = "resource", env = "AGW_RESOURCES", value_name = "NAME=AMOUNT", value_parser = parse_all)]
    resources: Vec<ResourceList>,
    /// Maximum number of jobs to claim ahead for each slot, 0 to 100. The worker claims one ahead
    /// while jobs take less than 200 ms on average, and as many as take 40 ms together while jobs
    /// are shorter. 0 claims only jobs that can start at once
    #[arg(long, env = "AGW_PREFETCH", value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) prefetch: u32,
    /// Offer only these programs, of those on PATH
    #[arg(long, env = "AGW_TOOLS", value_name = "NAME,NAME…", value_delimiter = ',', value_parser = member)]
    pub(crate) tools: Option<Vec<String>>,
    /// Also run programs by path, as ./script.sh, for plans that ask for it: who may submit plans
    /// can then run every program that this user can run. The worker has the tag program-paths
    /// then. Has no effect together with --tools
    #[arg(long)]
    program_paths: bool,
    /// Give tasks only these of the worker's environment variables, and PATH; a plan may set others
    /// [default: all but the session key]
    #[arg(long, env = "AGW_TASK_ENV", value_name = "NAME,NAME…", value_delimiter = ',', value_parser = member)]
    pub(crate) task_env: Option<Vec<String>>,
    /// File with the decisions of the owner of this worker, TOML: which jobs run in a sandbox, what
    /// its profiles permit, the policy, the trust file, and which secrets which tools get
    #[arg(long, env = "AGW_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File with the policy of this worker, TOML: the worker refuses jobs that the policy does not
    /// allow. `agx policy check FILE` checks the file
    #[arg(long, env = "AGW_POLICY", value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Run every job in the sandbox with this profile: reader, builder, network, or one that the
    /// file of --config defines
    #[arg(long, env = "AGW_SANDBOX", value_name = "PROFILE")]
    pub(crate) sandbox: Option<String>,
    /// Let tasks of the profile of --sandbox also read this file or directory; may be given several
    /// times
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) sandbox_read: Vec<PathBuf>,
    /// Claim jobs from these queues; each claim takes from the first queue that has a job
    #[arg(long, env = "AGW_QUEUES", value_name = "NAME,NAME…", value_delimiter = ',', value_parser = queue,
        default_value = READY)]
    pub(crate) queues: Vec<QueueName>,
    /// Tag of this worker: NAME for a pool, or NAME=VALUE for any other fact; may be given several
    /// times, or with commas between
    #[arg(long = "tag", env = "AGW_TAGS", value_name = "NAME[=VALUE]", value_delimiter = ',',
        value_parser = member)]
    tags: Vec<String>,
    /// Maximum time for running jobs while the worker drains, in seconds, up to a year
    #[arg(long, env = "AGW_GRACE", value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(..=MAX_GRACE_SECS))]
    pub(crate) grace: u64,
    /// Time between SIGTERM and SIGKILL for a task that exceeds a time limit of its own, in
    /// seconds, up to a year; a cancelled job has at most 0.8 s of it
    #[arg(long, env = "AGW_KILL_GRACE", value_name = "SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(..=MAX_GRACE_SECS))]
    pub(crate) kill_grace: u64,
    /// Maximum number of bytes of a task's stdout, and of its stderr, that a report has; agw sends
    /// a longer stream to agq in chunks
    #[arg(long, env = "AGW_KEPT_BYTES", value_name = "N", default_value_t = DEFAULT_KEPT_BYTES)]
    pub(crate) kept_bytes: usize,
    /// Directory for the output of tasks, in files without a name; agw creates it if it is missing
    /// [default: the system's temporary directory]
    #[arg(long, env = "AGW_SPOOL_DIR", value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    /// Maximum number of bytes that the output of a job may take in the spool; a job that takes
    /// more is ended, and fails
    #[arg(long, env = "AGW_SPOOL_QUOTA", value_name = "BYTES", default_value_t = 17_179_869_184)]
    pub(crate) spool_quota: u64,
    /// Number of bytes to keep free on the disk of the spool, at most a tenth of the disk. If less
    /// is free, a job whose output takes more than the free bytes is ended, and fails. An input
    /// that would leave less, and less than its own bytes, waits before it is stored
    #[arg(long, env = "AGW_SPOOL_RESERVE", value_name = "BYTES", default_value_t = 1_073_741_824)]
    pub(crate) spool_reserve: u64,
    /// End at once when stdin ends, so that the worker does not outlive the process that started it
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    /// Keep the first bytes only of an output that agq cannot store for five minutes, because
    /// nobody frees the disk of a private agq
    #[arg(long, hide = true)]
    pub(crate) give_up_outputs: bool,
    /// Let tasks inherit the files that the worker has inherited open, as xargs does
    #[arg(long, hide = true)]
    pub(crate) inherit_files: bool,
    /// Leave the session of the parent, which has this process id, and end with it
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) leave_session_of: Option<i32>,
}

const AFTER_HELP: &str = "The session key is read from AGQ_SESSION_KEY or --session-key-file, never from a flag.\n\n\
Logs go to stderr; AGW_LOG=debug shows more.\n\n\
Exit codes: 0 drained, 1 failed, 2 wrong usage, 3 refused by agq, 4 ended with jobs unfinished.";

/// Parses one member of a list and removes the blanks around the member.
fn member(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => {
            Err("a member of the list is empty: separate names with single commas, without one at the end"
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
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        if let Some(file) = self.session_key_file.as_ref().filter(|_| is_key_in_variable()) {
            warn!("AGQ_SESSION_KEY is set, so the key in {} is not used", file.display());
        }
        let key = match session_key(self.session_key_file.as_deref()) {
            Ok(key) => Some(key),
            // The certificate may identify the worker instead of a key.
            Err(SessionKeyError::Missing) if self.tls_cert.is_some() => None,
            Err(error) => return Err(anyhow!("{error}: {KEY_HELP}")),
        };
        let tls = Tls { ca: self.tls_ca.clone(), cert: self.tls_cert.clone(), key: self.tls_key.clone() };
        let addresses = Address::parse_all(&self.agq).map_err(anyhow::Error::msg)?;
        Server::with_tls(addresses, tls, key).map_err(anyhow::Error::msg)
    }

    /// Returns true if a task may name any program by its path. A list of tools excludes paths.
    pub(crate) fn has_paths(&self) -> bool {
        self.program_paths && self.tools.is_none()
    }

    pub(crate) fn spool_dir(&self) -> PathBuf {
        self.spool_dir.clone().unwrap_or_else(agenix_cli::temp_dir)
    }

    /// Returns the resources that the owner of the worker declares.
    pub(crate) fn declared_resources(&self) -> Vec<DeclaredResource> {
        self.resources.iter().flat_map(|list| list.0.clone()).collect()
    }

    /// Returns true if the user gave the worker its id. Any other id may be replaced.
    pub(crate) fn has_own_id(&self) -> bool {
        self.worker_id.is_some()
    }

    /// Returns the registration that the worker sends to agq, with these capabilities.
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
            tags: self.all_tags()?,
            // The worker asks the agentic units for their descriptions later, before it registers.
            descriptions: BTreeMap::new(),
            instance: Some(uuid::Uuid::new_v4().to_string()),
            active_job_ids: None,
            sandbox: None,
            resources: Quantities::default(),
        })
    }

    /// Returns the tags that the user gave, and the one for programs by path.
    fn all_tags(&self) -> anyhow::Result<Map<String, Value>> {
        let mut tags: Map<_, _> = self.tags.iter().map(|text| tag(text)).collect::<anyhow::Result<_>>()?;
        if let Some(tag) = tags.keys().find(|tag| secret_of_tag(tag).is_some()) {
            bail!("--tag {tag} is the tag of a secret: name the secret in the file of --config instead");
        }
        if tags.contains_key(PROGRAM_PATHS) {
            bail!("--tag {PROGRAM_PATHS} is the tag of --program-paths: give that option instead");
        }
        if tags.contains_key(PROVENANCE_KEY) {
            bail!("--tag {PROVENANCE_KEY} is the tag of [provenance] in the file of --config");
        }
        if self.has_paths() {
            tags.insert(PROGRAM_PATHS.to_owned(), true.into());
        }
        Ok(tags)
    }
}

/// Parses `NAME`, a pool, or `NAME=VALUE`: true, false, null and numbers keep their JSON types.
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

/// Returns `worker-<hostname>-<pid>`, with `-` for illegal characters, the host name cut to 40.
fn default_id(hostname: &str, pid: u32) -> anyhow::Result<WorkerId> {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let host: String = hostname.chars().take(40).map(legal).collect();
    Ok(WorkerId::new(format!("worker-{host}-{pid}"))?)
}

/// Returns another id for a default id that is `taken`: hosts may share their name and a pid.
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
    fn list_options_trim_blanks_and_reject_empty_members() {
        let config = read(&["--tools", "echo, sort", "--queues", " ready ,night"]).unwrap().config;
        assert_eq!(config.tools.unwrap(), ["echo", "sort"]);
        assert_eq!(config.queues.iter().map(|queue| queue.as_str()).collect::<Vec<_>>(), ["ready", "night"]);
        for args in [["--tools", "echo,"], ["--queues", "ready,,night"], ["--tools", " "]] {
            assert!(read(&args).unwrap_err().contains("a member of the list is empty"), "{args:?}");
        }
        assert!(member("\t").is_err() && queue("a b").is_err());
    }

    #[test]
    fn resources_may_have_any_blanks_between() {
        let declared = |args: &[&str]| read(args).unwrap().config.declared_resources();
        let two = declared(&["--resource", "cpus=2", "--resource", "licences=3"]);
        assert_eq!(two.len(), 2);
        for text in ["cpus=2 licences=3", " cpus=2  licences=3 ", "cpus=2\n\tlicences=3\n"] {
            assert_eq!(declared(&["--resource", text]), two, "{text:?}");
        }
        assert!(read(&["--resource", " "]).unwrap_err().contains("write NAME=AMOUNT"));
    }

    #[test]
    fn worker_offers_programs_by_path_only_when_told_and_without_a_list() {
        let tags = |args: &[&str]| {
            let config = read(args).unwrap().config;
            config.registration(Vec::new(), Vec::new()).map(|worker| worker.tags).map_err(|e| e.to_string())
        };
        assert_eq!(tags(&["--program-paths"]).unwrap()["program-paths"], true);
        assert!(!tags(&[]).unwrap().contains_key("program-paths"));
        assert!(!tags(&["--program-paths", "--tools", "sort"]).unwrap().contains_key("program-paths"));
        for tag in ["program-paths", "program-paths=false"] {
            assert!(tags(&["--tag", tag]).unwrap_err().contains("give that option instead"), "{tag}");
        }
        assert!(tags(&["--tag", "provenance-key=x"]).unwrap_err().contains("is the tag of [provenance]"));
        assert!(tags(&["--tag", "secret:A:curl"]).unwrap_err().contains("is the tag of a secret"));
    }

    #[test]
    fn tags_may_be_given_several_times_or_with_commas_between() {
        let tags = |args: &[&str]| read(args).unwrap().config.all_tags().unwrap();
        let one_by_one = tags(&["--tag", "spot", "--tag", "zone=eu", "--tag", "slots=4"]);
        assert_eq!(one_by_one["spot"], true);
        assert_eq!(one_by_one["zone"], "eu");
        assert_eq!(one_by_one["slots"], 4);
        assert_eq!(tags(&["--tag", "spot, zone=eu,slots=4"]), one_by_one);
        assert!(read(&["--tag", "spot,"]).unwrap_err().contains("a member of the list is empty"));
    }

    #[test]
    fn replacement_id_is_legal_and_starts_with_the_taken_one() {
        let taken = default_id(&"x".repeat(300), u32::MAX).unwrap();
        let [one, other] = [(); 2].map(|()| other_id(&taken, uuid::Uuid::new_v4()).unwrap());
        assert!(one != other && one.as_str().starts_with(taken.as_str()));
    }

    #[test]
    fn command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn default_id_is_legal_on_every_host() {
        assert_eq!(default_id("macbook-pro.local", 7).unwrap().as_str(), "worker-macbook-pro-local-7");
        assert!(default_id(&"x".repeat(300), u32::MAX).is_ok());
    }
}
