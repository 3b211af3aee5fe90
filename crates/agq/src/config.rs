//! What agq is told: flags, then `AGQ_*` variables, then a TOML file, then the defaults.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use agenix_protocol::limits::{DEFAULT_JOB_TIMEOUT_SECS, Limits};
use anyhow::{Context, bail};
use clap::{Args, Parser};
use serde::Deserialize;

use crate::{house::Settings, key::SessionKey};

/// agq, the queue: keeps plans and jobs, hands jobs to workers, and loses nothing that it acknowledged.
///
/// It speaks RESP, so any Redis client works. Without flags it listens on 127.0.0.1:6380 and keeps its data in ~/.agq.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// A TOML file with any of the options below as `name = value`; flags and variables win over it
    #[arg(long, env = "AGQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "The session key is read from AGQ_SESSION_KEY or --session-key-file and never from a flag, which \
everyone on the machine could see. Make one with `openssl rand -hex 32`. Without one, agq makes a random key for this run \
and prints it on a terminal.\n\nLogs go to stderr; AGQ_LOG=debug shows more.\n\nExit codes: 0 stopped by SIGINT or SIGTERM, \
1 could not start or go on, 2 wrong usage.";

/// Every option; in the TOML file they bear the same names.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Options {
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, env = "AGQ_BIND", value_name = "IP")]
    bind: Option<IpAddr>,
    /// The port to listen on; 0 takes a free one and says which [default: 6380]
    #[arg(long, env = "AGQ_PORT")]
    port: Option<u16>,
    /// Where the database is kept; made when missing [default: ~/.agq]
    #[arg(long, env = "AGQ_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// A file that holds the session key; agq only reads it
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE")]
    session_key_file: Option<PathBuf>,
    /// How often a worker should be heard of, in seconds; fractions are fine [default: 30]
    #[arg(long, env = "AGQ_HEARTBEAT_INTERVAL", value_name = "SECONDS")]
    heartbeat_interval: Option<f64>,
    /// After how many intervals of silence a worker is dead and its jobs go to others [default: 3]
    #[arg(long, env = "AGQ_HEARTBEAT_FACTOR", value_name = "N")]
    heartbeat_factor: Option<u32>,
    /// How long one attempt of a job may take, in seconds; 0 = no limit [default: 3600]
    #[arg(long, env = "AGQ_JOB_TIMEOUT", value_name = "SECONDS")]
    job_timeout: Option<u64>,
    /// Most bytes in one command; 0 = no limit [default: 10485760]
    #[arg(long, env = "AGQ_MAX_MESSAGE_BYTES", value_name = "N")]
    max_message_bytes: Option<usize>,
    /// Most arguments in one command; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_ELEMENTS", value_name = "N")]
    max_elements: Option<usize>,
    /// Most bytes in a plan; 0 = no limit [default: 1048576]
    #[arg(long, env = "AGQ_MAX_PLAN_BYTES", value_name = "N")]
    max_plan_bytes: Option<usize>,
    /// Most tasks in a plan; 0 = no limit [default: 100]
    #[arg(long, env = "AGQ_MAX_TASKS", value_name = "N")]
    max_tasks: Option<usize>,
    /// Most inputs in an action; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_INPUTS", value_name = "N")]
    max_inputs: Option<usize>,
    /// Most commands of one connection that may wait for their replies; 0 = no limit [default: 1024]
    #[arg(long, env = "AGQ_MAX_PIPELINE", value_name = "N")]
    max_pipeline: Option<usize>,
}

/// What agq works with, after everything was put together.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) address: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) key: SessionKey,
    /// Whether the key was made up for this run.
    pub(crate) is_key_random: bool,
}

impl Cli {
    /// Puts flags, variables, file and defaults together.
    pub(crate) fn resolve(self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let options = self.options.or(file);
        let given = given_key(&options)?;
        let is_key_random = given.is_none();
        Ok(Config {
            address: SocketAddr::new(
                options.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                options.port.unwrap_or(6380),
            ),
            data_dir: options.data_dir.clone().map_or_else(default_data_dir, Ok)?,
            settings: options.settings()?,
            key: given.map_or_else(SessionKey::random, Ok)?,
            is_key_random,
        })
    }
}

impl Options {
    /// These options, and `other` where they say nothing.
    fn or(self, other: Self) -> Self {
        Self {
            bind: self.bind.or(other.bind),
            port: self.port.or(other.port),
            data_dir: self.data_dir.or(other.data_dir),
            session_key_file: self.session_key_file.or(other.session_key_file),
            heartbeat_interval: self.heartbeat_interval.or(other.heartbeat_interval),
            heartbeat_factor: self.heartbeat_factor.or(other.heartbeat_factor),
            job_timeout: self.job_timeout.or(other.job_timeout),
            max_message_bytes: self.max_message_bytes.or(other.max_message_bytes),
            max_elements: self.max_elements.or(other.max_elements),
            max_plan_bytes: self.max_plan_bytes.or(other.max_plan_bytes),
            max_tasks: self.max_tasks.or(other.max_tasks),
            max_inputs: self.max_inputs.or(other.max_inputs),
            max_pipeline: self.max_pipeline.or(other.max_pipeline),
        }
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let interval = self.heartbeat_interval.unwrap_or(30.0);
        if !(0.001..=86_400.0).contains(&interval) {
            bail!("heartbeat-interval is {interval}: give seconds between 0.001 and 86400");
        }
        let factor = self.heartbeat_factor.unwrap_or(3);
        if factor == 0 {
            bail!("heartbeat-factor is 0: every worker would be dead at once, give at least 1");
        }
        let defaults = Limits::default();
        let limits = Limits {
            max_message_bytes: self.max_message_bytes.unwrap_or(defaults.max_message_bytes),
            max_elements: self.max_elements.unwrap_or(defaults.max_elements),
            max_plan_bytes: self.max_plan_bytes.unwrap_or(defaults.max_plan_bytes),
            max_tasks: self.max_tasks.unwrap_or(defaults.max_tasks),
            max_inputs: self.max_inputs.unwrap_or(defaults.max_inputs),
            max_pipeline: self.max_pipeline.unwrap_or(defaults.max_pipeline),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        let heartbeat_interval_ms = (interval * 1000.0).round() as u64;
        let job_timeout_ms = self.job_timeout.unwrap_or(DEFAULT_JOB_TIMEOUT_SECS).saturating_mul(1000);
        Ok(Settings { limits, heartbeat_interval_ms, heartbeat_factor: factor, job_timeout_ms })
    }
}

fn read_file(path: &Path) -> anyhow::Result<Options> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the config file {shown}"))?;
    toml::from_str(&text).with_context(|| format!("the config file {shown} is wrong"))
}

fn given_key(options: &Options) -> anyhow::Result<Option<SessionKey>> {
    match std::env::var("AGQ_SESSION_KEY") {
        Ok(text) if !text.is_empty() => return SessionKey::new(&text, "AGQ_SESSION_KEY").map(Some),
        _ => {}
    }
    options.session_key_file.as_deref().map(SessionKey::from_file).transpose()
}

fn default_data_dir() -> anyhow::Result<PathBuf> {
    let home = std::env::home_dir()
        .context("there is no home directory: say where the data goes with --data-dir")?;
    Ok(home.join(".agq"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Cli, Options};

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_said_first_wins_and_zero_is_no_limit() {
        let file: Options = toml::from_str("port = 1\nmax-tasks = 0").unwrap();
        let options = Options { port: Some(2), ..Options::default() }.or(file);
        assert_eq!((options.port, options.settings().unwrap().limits.max_tasks), (Some(2), 0));
        let error = toml::from_str::<Options>("prot = 1").unwrap_err().to_string();
        assert!(error.contains("unknown field `prot`"), "{error}");
    }
}
