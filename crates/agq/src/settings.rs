//! Settings of a running server as plain data. `config` fills them in from flags, variables and the
//! config file.

use std::{net::SocketAddr, path::PathBuf};

use agenix_protocol::limits::Limits;
use agenix_rules::fair_share::ShareTerms;
use clap::ValueEnum;
use serde::Deserialize;

/// Settings of the server that the commands and rules use.
#[derive(Debug, Clone)]
pub(crate) struct ServiceSettings {
    pub(crate) limits: Limits,
    /// Number of inputs of an action that one write of the store makes jobs of.
    pub(crate) inputs_at_once: usize,
    /// Interval in which a worker should send a heartbeat, in milliseconds.
    pub(crate) heartbeat_interval_ms: u64,
    /// Number of intervals without a heartbeat after which a worker is dead.
    pub(crate) heartbeat_factor: u32,
    /// Time limit of one attempt of a job whose plan has none, in milliseconds; 0 for no limit.
    pub(crate) job_timeout_ms: u64,
    /// Time within which a plan has to be approved, in milliseconds; 0 for no limit.
    pub(crate) approval_timeout_ms: u64,
    /// Time after which an unreported claim goes back to its queue, in milliseconds; 0 for never.
    pub(crate) start_timeout_ms: u64,
    /// Time within which a connection must log in, in milliseconds; 0 for no limit.
    pub(crate) login_timeout_ms: u64,
    /// Time limit from the first to the last byte of a command, in milliseconds; 0 for no limit.
    pub(crate) frame_timeout_ms: u64,
    /// Time for which a client may read none of its replies, in milliseconds; 0 for no limit.
    pub(crate) send_timeout_ms: u64,
    /// Retention of completed, failed and cancelled jobs, in milliseconds; 0 for ever.
    pub(crate) keep_ended_ms: u64,
    /// Retention of dead jobs, in milliseconds; 0 for ever.
    pub(crate) keep_dead_ms: u64,
    /// Maximum number of ended jobs that are kept, without the dead ones; 0 for no limit.
    pub(crate) keep_ended_count: u64,
    /// Maximum number of bytes of all blobs; 0 for no limit.
    pub(crate) keep_blob_bytes: u64,
    /// Weights of named shares, and queues in which priorities decide before shares.
    pub(crate) share_terms: ShareTerms,
    /// Set if workers that fail far more often than others are quarantined.
    pub(crate) quarantine: bool,
    /// Set if no worker will come that offers more than those that are registered.
    pub(crate) has_fixed_workers: bool,
    pub(crate) brpop_reply: PopReply,
    pub(crate) auth_errors: AuthErrors,
}

/// Texts of authentication errors: those of the RESP specification, or those of Redis, which client
/// libraries recognise by the first word. The comments of the variants are texts of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthErrors {
    /// Those of Redis for clients that sent HELLO, CLIENT or AUTH with the user name default,
    /// otherwise plain ones
    #[default]
    Auto,
    /// Always `ERR NOAUTH Authentication required` and `ERR Invalid session key`
    Plain,
    /// Always those of Redis, which begin with `NOAUTH` and `WRONGPASS`
    Redis,
}

/// Shape of BRPOP's reply for one key: the value alone, or the pair of key and value as in Redis.
/// The comments of the variants are texts of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PopReply {
    /// The pair for clients that sent HELLO, CLIENT or AUTH with the user name default, otherwise
    /// the value
    #[default]
    Auto,
    /// Always the value
    Bulk,
    /// Always the pair
    Pair,
}

impl ServiceSettings {
    /// Returns the settings that must be the same at all nodes, because the nodes share jobs and
    /// workers. Names are those of the command line, and times are in seconds.
    pub(crate) fn shared_by_nodes(&self) -> String {
        let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
        let ShareTerms { weights, priority_queues, .. } = &self.share_terms;
        format!(
            "heartbeat-interval={} heartbeat-factor={} job-timeout={} start-timeout={} keep-ended={} keep-dead={} keep-ended-count={} keep-blob-bytes={} \
             approval-timeout={} no-quarantine={} share-weights={} priority-queues={}",
            seconds(self.heartbeat_interval_ms),
            self.heartbeat_factor,
            seconds(self.job_timeout_ms),
            seconds(self.start_timeout_ms),
            seconds(self.keep_ended_ms),
            seconds(self.keep_dead_ms),
            self.keep_ended_count,
            self.keep_blob_bytes,
            seconds(self.approval_timeout_ms),
            !self.quarantine,
            listed(weights.iter().map(|(share, weight)| format!("{share}={weight}"))),
            listed(priority_queues.iter().cloned()),
        )
    }

    /// Returns the time without a heartbeat after which a worker is dead, in milliseconds.
    pub(crate) fn silence_ms(&self) -> u64 {
        self.heartbeat_interval_ms.saturating_mul(u64::from(self.heartbeat_factor))
    }
}

/// Returns words, which have no spaces, as one.
fn listed(words: impl Iterator<Item = String>) -> String {
    let text = words.collect::<Vec<_>>().join(",");
    if text.is_empty() { "none".into() } else { text }
}

#[derive(Debug, Clone)]
pub(crate) struct ListenAddresses {
    pub(crate) tcp: Option<SocketAddr>,
    pub(crate) socket: Option<PathBuf>,
    /// Certificates. With certificates, connections over TCP use TLS, and so do those for HTTP.
    pub(crate) tls: Option<TlsFiles>,
    /// Address for HTTP.
    pub(crate) http: Option<SocketAddr>,
}

/// Paths of the certificates and the private key, all PEM files.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    /// Certificate of the server, followed by the intermediate certificates.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// CAs of client certificates. The handshake fails without a certificate of one of them.
    pub(crate) client_ca: Option<PathBuf>,
}
