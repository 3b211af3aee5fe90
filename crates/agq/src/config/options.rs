//! Options of the server, each defined once as a flag, a variable and a name in the config file.
//! The doc comments are the texts of `--help`.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum, builder::BoolishValueParser};
use secrecy::SecretString;
use serde::Deserialize;

use super::agents::AgentEntry;
use super::clients::ClientEntry;
use crate::settings::{AuthErrors, PopReply};

const LISTENING: &str = "Listening";
const FILES: &str = "Files";
const JOBS: &str = "Workers and jobs";
const LIMITS: &str = "Limits";

/// Values of the option `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DurabilityOption {
    /// Everything that a user would miss: submissions, ends of jobs, keys. A claim that is lost in
    /// a crash is made again
    Promised,
    /// Every write, also claims and heartbeats
    Always,
    /// Nothing: data is synced within half a second. A power failure loses the latest acknowledged
    /// writes
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
            /// Keys of clients by name, with their budgets; in the config file only.
            #[arg(skip)]
            pub(super) clients: BTreeMap<String, ClientEntry>,
            /// Keys of agents by name, with their terms; in the config file only.
            #[arg(skip)]
            pub(super) agents: BTreeMap<String, AgentEntry>,
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
                    agents: file.agents,
                    workers: file.workers,
                }
            }
        }
    };
}

options! {
    /// Address to listen on; any but a loopback address needs TLS [default: 127.0.0.1]
    #[arg(long, env = "AGQ_BIND", value_name = "IP", help_heading = LISTENING)]
    bind: IpAddr,
    /// Port to listen on; 0 takes a free port and prints it [default: 6380]
    #[arg(long, env = "AGQ_PORT", help_heading = LISTENING)]
    port: u16,
    /// Address for HTTP (Open Job Spec, /health, /metrics), or `off` [default: 127.0.0.1:6381, or a
    /// free port if --port is not 6380]
    #[arg(long, env = "AGQ_HTTP", value_name = "ADDRESS", help_heading = LISTENING)]
    http: String,
    /// Also listen on this Unix socket; only the user who runs agq may open it
    #[arg(long, env = "AGQ_SOCKET", value_name = "PATH", help_heading = LISTENING)]
    socket: PathBuf,
    /// Listen on the Unix socket only, and for HTTP on --http ADDRESS if it is given
    #[arg(long, env = "AGQ_NO_TCP", value_name = "BOOL", help_heading = LISTENING, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    no_tcp: bool,
    /// Use TLS 1.3 over TCP with this certificate and its intermediate certificates; PEM
    #[arg(long, env = "AGQ_TLS_CERT", value_name = "FILE", help_heading = LISTENING)]
    tls_cert: PathBuf,
    /// Private key of --tls-cert; PEM
    #[arg(long, env = "AGQ_TLS_KEY", value_name = "FILE", help_heading = LISTENING)]
    tls_key: PathBuf,
    /// Accept only clients with a certificate of these CAs. A certificate whose DNS name is that of
    /// a worker or client in the config file replaces its key; PEM
    #[arg(long, env = "AGQ_TLS_CLIENT_CA", value_name = "FILE", help_heading = LISTENING)]
    tls_client_ca: PathBuf,
    /// Listen without TLS on a network that is trusted as a whole
    #[arg(long, env = "AGQ_INSECURE", value_name = "BOOL", help_heading = LISTENING, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    insecure: bool,

    /// Directory of the database; created if it is missing [default: ~/.agq]
    #[arg(long, env = "AGQ_DATA_DIR", value_name = "DIR", help_heading = FILES)]
    data_dir: PathBuf,
    /// Directory of large outputs, or `off`, so that agq keeps their first bytes only; several agq
    /// that share a PostgreSQL database share this directory, too [default: blobs in the data
    /// directory; with --store, off]
    #[arg(long, env = "AGQ_BLOB_DIR", value_name = "DIR", help_heading = FILES)]
    blob_dir: PathBuf,
    /// Location of large outputs, instead of --blob-dir: s3://BUCKET/PREFIX for a bucket with
    /// credentials and address in the variables AWS_…, file:///DIR, or `off`
    #[arg(long, env = "AGQ_BLOBS", value_name = "WHERE", hide_env_values = true, help_heading = FILES)]
    blobs: String,
    /// Keep all data in this PostgreSQL database, which several agq may share:
    /// postgres://USER@HOST/DATABASE. The password is read from ~/.pgpass or PGPASSWORD [default: a
    /// database in the data directory]
    #[arg(long, env = "AGQ_STORE", value_name = "URL", hide_env_values = true, help_heading = FILES)]
    store: String,
    /// Maximum number of connections to PostgreSQL [default: 8]
    #[arg(long, env = "AGQ_STORE_CONNECTIONS", value_name = "N", help_heading = FILES)]
    store_connections: u32,
    /// Time limit of a statement in PostgreSQL, in seconds; fractions are fine. The database counts
    /// as unreachable if there is no answer five seconds later [default: 60]
    #[arg(long, env = "AGQ_STORE_TIMEOUT", value_name = "SECONDS", help_heading = FILES)]
    store_timeout: f64,
    /// Interval in which to look in PostgreSQL for changes of other agq that were not notified, in
    /// seconds [default: 1]
    #[arg(long, env = "AGQ_STORE_POLL_INTERVAL", value_name = "SECONDS", help_heading = FILES)]
    store_poll_interval: f64,
    /// Time after which another agq takes over the background tasks of a silent one, in seconds. An
    /// agq that is silent for twice as long counts as gone [default: 30]
    #[arg(long, env = "AGQ_STORE_LEASE", value_name = "SECONDS", help_heading = FILES)]
    store_lease: f64,
    /// Do not use LISTEN in PostgreSQL, because some connection poolers do not support it: poll for
    /// changes of other agq
    #[arg(long, env = "AGQ_STORE_NO_LISTEN", value_name = "BOOL", help_heading = FILES, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    store_no_listen: bool,
    /// Writes that are synced to disk before they are acknowledged [default: promised]
    #[arg(long, env = "AGQ_DURABILITY", value_name = "WHAT", value_enum, help_heading = FILES)]
    durability: DurabilityOption,
    /// Size of the largest database whose pages are all compared with their checksums at the start,
    /// in bytes; for a larger one use `agq check`; 0 = no limit [default: 268435456]
    #[arg(long, env = "AGQ_MAX_CHECKED_BYTES", value_name = "N", help_heading = FILES)]
    max_checked_bytes: u64,
    /// File with the session key, or `sha256:` and its hash; agq only reads it
    #[arg(long, env = "AGQ_SESSION_KEY_FILE", value_name = "FILE", help_heading = FILES)]
    session_key_file: PathBuf,
    /// Append to this file the author of each backup and of each change of plans, actions, jobs by
    /// hand, workers, queues, schedules and workflows, one JSON document per line. Changes of
    /// users' keys are not recorded
    #[arg(long, env = "AGQ_AUDIT_LOG", value_name = "FILE", help_heading = FILES)]
    audit_log: PathBuf,
    /// Refuse plans that the policy in this file does not allow, TOML; `agx policy check FILE`
    /// checks the file
    #[arg(long, env = "AGQ_POLICY", value_name = "FILE", help_heading = FILES)]
    policy: PathBuf,

    /// Interval of the heartbeats of a worker, in seconds; fractions are fine [default: 30]
    #[arg(long, env = "AGQ_HEARTBEAT_INTERVAL", value_name = "SECONDS", help_heading = JOBS)]
    heartbeat_interval: f64,
    /// Number of silent intervals after which a worker is dead, and other workers get its jobs
    /// [default: 3]
    #[arg(long, env = "AGQ_HEARTBEAT_FACTOR", value_name = "N", help_heading = JOBS)]
    heartbeat_factor: u32,
    /// Time limit of one attempt of a job whose plan has none, in seconds; 0 = no limit [default:
    /// 3600]
    #[arg(long, env = "AGQ_JOB_TIMEOUT", value_name = "SECONDS", help_heading = JOBS)]
    job_timeout: u64,
    /// Time within which a plan that needs an approval has to be approved, in seconds; then its
    /// jobs are cancelled; 0 = no limit [default: 86400, a day]
    #[arg(long, env = "AGQ_APPROVAL_TIMEOUT", value_name = "SECONDS", help_heading = JOBS)]
    approval_timeout: f64,
    /// Time within which a claimed job must be reported, in seconds; after that other workers get
    /// it; fractions are fine, 0 = no limit [default: 60]
    #[arg(long, env = "AGQ_START_TIMEOUT", value_name = "SECONDS", help_heading = JOBS)]
    start_timeout: f64,
    /// Time for which completed, failed and cancelled jobs are kept, in seconds; 0 = for ever
    /// [default: 604800, a week]
    #[arg(long, env = "AGQ_KEEP_ENDED", value_name = "SECONDS", help_heading = JOBS)]
    keep_ended: f64,
    /// Time for which dead jobs and dead workers are kept, in seconds; 0 = for ever [default:
    /// 2592000, thirty days]
    #[arg(long, env = "AGQ_KEEP_DEAD", value_name = "SECONDS", help_heading = JOBS)]
    keep_dead: f64,
    /// Maximum number of ended jobs, without dead ones; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_KEEP_ENDED_COUNT", value_name = "N", help_heading = JOBS)]
    keep_ended_count: u64,
    /// Maximum number of bytes of large outputs; beyond it, the jobs with large outputs that ended
    /// first are removed; 0 = no limit [default: 0]
    #[arg(long, env = "AGQ_KEEP_BLOB_BYTES", value_name = "N", help_heading = JOBS)]
    keep_blob_bytes: u64,
    /// Also give jobs to workers that fail far more often than others
    #[arg(long, env = "AGQ_NO_QUARANTINE", value_name = "BOOL", help_heading = JOBS, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
        hide_possible_values = true)]
    no_quarantine: bool,
    /// Weights of named shares, as night=3,ci=1: a share of weight 3 gets three times the claims of
    /// one of weight 1, which is the weight of all others
    #[arg(long, env = "AGQ_SHARE_WEIGHTS", value_name = "NAME=WEIGHT,…", help_heading = JOBS)]
    share_weights: String,
    /// Queues in which priorities decide before shares, with commas between their names
    #[arg(long, env = "AGQ_PRIORITY_QUEUES", value_name = "QUEUE,…", help_heading = JOBS)]
    priority_queues: String,
    /// Reply of BRPOP for one key: the value alone, or the pair of key and value as in Redis
    /// [default: auto]
    #[arg(long, env = "AGQ_BRPOP_REPLY", value_name = "SHAPE", value_enum, help_heading = JOBS)]
    brpop_reply: PopReply,
    /// Texts of authentication errors: client libraries recognise those of Redis by their first
    /// word [default: auto]
    #[arg(long, env = "AGQ_AUTH_ERRORS", value_name = "TEXTS", value_enum, help_heading = LISTENING)]
    auth_errors: AuthErrors,

    /// Maximum bytes of one command; 0 = no limit [default: 10485760]
    #[arg(long, env = "AGQ_MAX_MESSAGE_BYTES", value_name = "N", help_heading = LIMITS)]
    max_message_bytes: usize,
    /// Maximum arguments of one command; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_ELEMENTS", value_name = "N", help_heading = LIMITS)]
    max_elements: usize,
    /// Maximum bytes of a plan; 0 = no limit [default: 1048576]
    #[arg(long, env = "AGQ_MAX_PLAN_BYTES", value_name = "N", help_heading = LIMITS)]
    max_plan_bytes: usize,
    /// Maximum tasks of a plan; 0 = no limit [default: 100]
    #[arg(long, env = "AGQ_MAX_TASKS", value_name = "N", help_heading = LIMITS)]
    max_tasks: usize,
    /// Maximum inputs of one submission; 0 = no limit [default: 1000000]
    #[arg(long, env = "AGQ_MAX_INPUTS", value_name = "N", help_heading = LIMITS)]
    max_inputs: usize,
    /// Maximum different concurrency keys of the inputs of one submission; 0 = no limit [default:
    /// 10000]
    #[arg(long, env = "AGQ_MAX_CONCURRENCY_KEYS", value_name = "N", help_heading = LIMITS)]
    max_concurrency_keys: usize,
    /// Maximum commands of one connection that wait for their replies; 0 = no limit [default: 1024]
    #[arg(long, env = "AGQ_MAX_PIPELINE", value_name = "N", help_heading = LIMITS)]
    max_pipeline: usize,
    /// Maximum connections from one IP address at a time; 0 = no limit [default: 100]
    #[arg(long, env = "AGQ_MAX_CONNECTIONS_PER_IP", value_name = "N", help_heading = LIMITS)]
    max_connections_per_ip: usize,
    /// Maximum commands per second on one connection: excess commands are delayed, and rejected if
    /// that continues; 0 = no limit [default: 10000]
    #[arg(long, env = "AGQ_MAX_COMMANDS_PER_SECOND", value_name = "N", help_heading = LIMITS)]
    max_commands_per_second: usize,
    /// Time within which a connection must send AUTH, in seconds; fractions are fine, 0 = no limit
    /// [default: 10]
    #[arg(long, env = "AGQ_LOGIN_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    login_timeout: f64,
    /// Time limit of a command from its first byte to its last, in seconds; fractions are fine, 0 =
    /// no limit [default: 60]
    #[arg(long, env = "AGQ_FRAME_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    frame_timeout: f64,
    /// Time after which a client is disconnected that reads none of its replies, in seconds;
    /// fractions are fine, 0 = no limit [default: 60]
    #[arg(long, env = "AGQ_SEND_TIMEOUT", value_name = "SECONDS", help_heading = LIMITS)]
    send_timeout: f64,
    /// Wrong keys per minute from one IP address that are answered without a delay; 0 = no limit
    /// [default: 5]
    #[arg(long, env = "AGQ_MAX_AUTH_FAILURES", value_name = "N", help_heading = LIMITS)]
    max_auth_failures: usize,
}
