//! Options of the server, each defined once as a flag, a variable and a name in the config file.
//! The doc comments are the texts of `--help`.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum, builder::BoolishValueParser};
use secrecy::SecretString;
use serde::Deserialize;

const LISTENING: &str = "Where it listens";
const FILES: &str = "Files";
const JOBS: &str = "Workers and jobs";
const LIMITS: &str = "Limits";

/// Values of the option `--brpop-reply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReplyShape {
    /// The pair for clients that sent HELLO, CLIENT or AUTH with the user name default, else the value
    Auto,
    /// Always the value
    Bulk,
    /// Always the pair
    Pair,
}

/// Values of the option `--auth-errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AuthTexts {
    /// Those of Redis for clients that sent HELLO, CLIENT or AUTH with the user name default, else plain ones
    Auto,
    /// Always `ERR NOAUTH Authentication required` and `ERR Invalid session key`
    Plain,
    /// Always those of Redis, which begin with `NOAUTH` and `WRONGPASS`
    Redis,
}

/// Values of the option `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DurabilityOption {
    /// Everything that a user would miss: submissions, ends of jobs, keys. A claim that a crash forgets is made again
    Promised,
    /// Every write, claims and heartbeats too
    Always,
    /// Nothing: it follows within half a second. If the machine loses its power, what was answered last is lost
    Interval,
}

/// Defines the options as fields of [`Options`], and their merge with another set of options.
macro_rules! options {
    ($($(#[$attribute:meta])* $name:ident: $kind:ty,)*) => {
        /// Options of the server. The config file uses the same names.
        #[derive(Debug, Default, Args, Deserialize)]
        #[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
        pub(super) struct Options {
            $($(#[$attribute])* pub(super) $name: Option<$kind>,)*
            /// Keys of admins by name; in the config file only.
            #[arg(skip)]
            pub(super) admins: BTreeMap<String, SecretString>,
            /// Keys of clients by name; in the config file only.
            #[arg(skip)]
            pub(super) clients: BTreeMap<String, SecretString>,
            /// Keys of workers by id; in the config file only.
            #[arg(skip)]
            pub(super) workers: BTreeMap<String, SecretString>,
        }

        impl Options {
            /// Merges two sets of options, where `self` wins over `file`.
            pub(super) fn or(self, file: Self) -> Self {
                Self {
                    $($name: self.$name.or(file.$name),)*
                    admins: file.admins,
                    clients: file.clients,
                    workers: file.workers,
                }
            }
        }
    };
}

options! {
    /// The address to listen on; any but this machine's own needs TLS [default: 127.0.0.1]
    #[arg(long, env = "AGQ_BIND", value_name = "IP", help_heading = LISTENING)]
    bind: IpAddr,
    /// The port to listen on; 0 takes a free one and says which [default: 6380]
    #[arg(long, env = "AGQ_PORT", help_heading = LISTENING)]
    port: u16,
    /// Speak HTTP, too, at this address: the Open Job Spec, /health, /metrics; `off` for not at all [default: 127.0.0.1:6381, or
    /// a free port where --port is not 6380]
    #[arg(long, env = "AGQ_HTTP", value_name = "ADDRESS", help_heading = LISTENING)]
    http: String,
    /// Listen on this Unix socket, too; only the user who runs agq may open it
    #[arg(long, env = "AGQ_SOCKET", value_name = "PATH", help_heading = LISTENING)]
    socket: PathBuf,
    /// Listen on the Unix socket only
    #[arg(long, env = "AGQ_NO_TCP", value_name = "BOOL", help_heading = LISTENING, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    no_tcp: bool,
    /// Speak TLS (1.3) over TCP, with this certificate and those between it and its CA; PEM
    #[arg(long, env = "AGQ_TLS_CERT", value_name = "FILE", help_heading = LISTENING)]
    tls_cert: PathBuf,
    /// The private key of --tls-cert; PEM
    #[arg(long, env = "AGQ_TLS_KEY", value_name = "FILE", help_heading = LISTENING)]
    tls_key: PathBuf,
    /// Let only clients in that show a certificate of these CAs. One whose DNS name is a worker's or a client's in the
    /// config file stands for its key; PEM
    #[arg(long, env = "AGQ_TLS_CLIENT_CA", value_name = "FILE", help_heading = LISTENING)]
    tls_client_ca: PathBuf,
    /// Listen without TLS on a network that is trusted as a whole
    #[arg(long, env = "AGQ_INSECURE", value_name = "BOOL", help_heading = LISTENING, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    insecure: bool,

    /// Where the database is kept; made when missing [default: ~/.agq]
    #[arg(long, env = "AGQ_DATA_DIR", value_name = "DIR", help_heading = FILES)]
    data_dir: PathBuf,
    /// Keep everything in this PostgreSQL, which several agq may share: postgres://USER@HOST/DATABASE. Its password is
    /// read from ~/.pgpass or PGPASSWORD [default: a database in the data directory]
    #[arg(long, env = "AGQ_STORE", value_name = "URL", hide_env_values = true, help_heading = FILES)]
    store: String,
    /// Most connections to that PostgreSQL [default: 8]
    #[arg(long, env = "AGQ_STORE_CONNECTIONS", value_name = "N", help_heading = FILES)]
    store_connections: u32,
    /// How long a statement there may take, in seconds; fractions are fine. One that has no answer five seconds later has failed:
    /// the database cannot be reached [default: 60]
    #[arg(long, env = "AGQ_STORE_TIMEOUT", value_name = "SECONDS", help_heading = FILES)]
    store_timeout: f64,
    /// How often to look in that PostgreSQL for what other agq did and did not get across, in seconds [default: 1]
    #[arg(long, env = "AGQ_STORE_POLL_INTERVAL", value_name = "SECONDS", help_heading = FILES)]
    store_poll_interval: f64,
    /// How long the agq that sees to what nobody reports may be silent there before another does, in seconds. One that is
    /// silent for twice as long is taken for gone [default: 30]
    #[arg(long, env = "AGQ_STORE_LEASE", value_name = "SECONDS", help_heading = FILES)]
    store_lease: f64,
    /// Do not LISTEN there, which not every pooler lets through: what other agq did is looked for
    #[arg(long, env = "AGQ_STORE_NO_LISTEN", value_name = "BOOL", help_heading = FILES, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    store_no_listen: bool,
    /// What is on disk before it is answered [default: promised]
    #[arg(long, env = "AGQ_DURABILITY", value_name = "WHAT", value_enum, help_heading = FILES)]
    durability: DurabilityOption,
    /// The largest database of which every page is compared with its checksum at the start, in bytes; a larger one is
    /// compared by `agq check` alone; 0 = no limit [default: 268435456]
    #[arg(long, env = "AGQ_MAX_CHECKED_BYTES", value_name = "N", help_heading = FILES)]
    max_checked_bytes: u64,
    /// A file that holds the session key, or `sha256:` and its hash; agq only reads it
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE", help_heading = FILES)]
    session_key_file: PathBuf,
    /// Append to this file who changed what, a JSON document a line
    #[arg(long, env = "AGQ_AUDIT_LOG", value_name = "FILE", help_heading = FILES)]
    audit_log: PathBuf,

    /// How often a worker should be heard of, in seconds; fractions are fine [default: 30]
    #[arg(long, env = "AGQ_HEARTBEAT_INTERVAL", value_name = "SECONDS", help_heading = JOBS)]
    heartbeat_interval: f64,
    /// After how many intervals of silence a worker is dead and its jobs go to others [default: 3]
    #[arg(long, env = "AGQ_HEARTBEAT_FACTOR", value_name = "N", help_heading = JOBS)]
    heartbeat_factor: u32,
    /// How long one attempt of a job may take when its plan does not say, in seconds; 0 = no limit [default: 3600]
    #[arg(long, env = "AGQ_JOB_TIMEOUT", value_name = "SECONDS", help_heading = JOBS)]
    job_timeout: u64,
    /// How long a job that was handed out may go unreported before others get it, in seconds; fractions are fine,
    /// 0 = no limit [default: 60]
    #[arg(long, env = "AGQ_START_TIMEOUT", value_name = "SECONDS", help_heading = JOBS)]
    start_timeout: f64,
    /// How long completed, failed and cancelled jobs are kept, in seconds; 0 = for ever [default: 604800, a week]
    #[arg(long, env = "AGQ_KEEP_ENDED", value_name = "SECONDS", help_heading = JOBS)]
    keep_ended: f64,
    /// How long dead jobs and dead workers are kept, in seconds; 0 = for ever [default: 2592000, thirty days]
    #[arg(long, env = "AGQ_KEEP_DEAD", value_name = "SECONDS", help_heading = JOBS)]
    keep_dead: f64,
    /// How many ended jobs are kept at most, the dead apart; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_KEEP_ENDED_COUNT", value_name = "N", help_heading = JOBS)]
    keep_ended_count: u64,
    /// Give jobs to workers that fail far more often than others, too
    #[arg(long, env = "AGQ_NO_QUARANTINE", value_name = "BOOL", help_heading = JOBS, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    no_quarantine: bool,
    /// What BRPOP answers for one key: the value alone, or the pair of key and value as Redis does [default: auto]
    #[arg(long, env = "AGQ_BRPOP_REPLY", value_name = "SHAPE", value_enum, help_heading = JOBS)]
    brpop_reply: ReplyShape,
    /// The texts of authentication errors: client libraries recognise those of Redis by their first word [default: auto]
    #[arg(long, env = "AGQ_AUTH_ERRORS", value_name = "TEXTS", value_enum, help_heading = LISTENING)]
    auth_errors: AuthTexts,

    /// Most bytes in one command; 0 = no limit [default: 10485760]
    #[arg(long, env = "AGQ_MAX_MESSAGE_BYTES", value_name = "N", help_heading = LIMITS)]
    max_message_bytes: usize,
    /// Most arguments in one command; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_ELEMENTS", value_name = "N", help_heading = LIMITS)]
    max_elements: usize,
    /// Most bytes in a plan; 0 = no limit [default: 1048576]
    #[arg(long, env = "AGQ_MAX_PLAN_BYTES", value_name = "N", help_heading = LIMITS)]
    max_plan_bytes: usize,
    /// Most tasks in a plan; 0 = no limit [default: 100]
    #[arg(long, env = "AGQ_MAX_TASKS", value_name = "N", help_heading = LIMITS)]
    max_tasks: usize,
    /// Most inputs in one command that submits or adds; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_INPUTS", value_name = "N", help_heading = LIMITS)]
    max_inputs: usize,
    /// Most commands of one connection that may wait for their replies; 0 = no limit [default: 1024]
    #[arg(long, env = "AGQ_MAX_PIPELINE", value_name = "N", help_heading = LIMITS)]
    max_pipeline: usize,
    /// Most connections from one IP address at a time; 0 = no limit [default: 100]
    #[arg(long, env = "AGQ_MAX_CONNECTIONS_PER_IP", value_name = "N", help_heading = LIMITS)]
    max_connections_per_ip: usize,
    /// Most commands a second on one connection: more are delayed, and refused where that goes on; 0 = no limit
    /// [default: 10000]
    #[arg(long, env = "AGQ_MAX_COMMANDS_PER_SECOND", value_name = "N", help_heading = LIMITS)]
    max_commands_per_second: usize,
    /// How long a connection may be there without AUTH, in seconds; fractions are fine, 0 = no limit [default: 10]
    #[arg(long, env = "AGQ_LOGIN_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    login_timeout: f64,
    /// How long a command may take from its first byte to its last, in seconds; fractions are fine, 0 = no limit
    /// [default: 60]
    #[arg(long, env = "AGQ_FRAME_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    frame_timeout: f64,
    /// How long a client may take nothing of the replies that are sent to it, in seconds; fractions are fine,
    /// 0 = no limit [default: 60]
    #[arg(long, env = "AGQ_SEND_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    send_timeout: f64,
    /// Wrong keys in a minute from one IP address that are answered at once, more are answered later and later;
    /// 0 = no limit [default: 5]
    #[arg(long, env = "AGQ_MAX_AUTH_FAILURES", value_name = "N", help_heading = LIMITS)]
    max_auth_failures: usize,
}
