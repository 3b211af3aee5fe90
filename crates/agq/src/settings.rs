//! Settings of a running server as plain data. `config` fills them in from flags, variables and the config file.

use std::{net::SocketAddr, path::PathBuf};

use agenix_protocol::limits::Limits;

/// What the rules are told from outside.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Number of inputs of an action that one write of the store makes jobs of.
    pub(crate) inputs_at_once: usize,
    /// How often a worker should be heard of, in milliseconds.
    pub(crate) heartbeat_interval_ms: u64,
    /// After how many intervals of silence it is dead.
    pub(crate) heartbeat_factor: u32,
    /// How long one attempt of a job may take when its plan does not say, in milliseconds; 0 for no bound.
    pub(crate) job_timeout_ms: u64,
    /// How long a claimed job may go unreported before it goes back, in milliseconds; 0 for no bound.
    pub(crate) start_timeout_ms: u64,
    /// How long a connection may be there without having logged in, in milliseconds; 0 for no bound.
    pub(crate) login_timeout_ms: u64,
    /// How long a command may take from its first byte to its last, in milliseconds; 0 for no bound.
    pub(crate) frame_timeout_ms: u64,
    /// How long a client may take nothing of what is sent to it, in milliseconds; 0 for no bound.
    pub(crate) send_timeout_ms: u64,
    /// How long jobs that ended well, failed or were cancelled are kept, in milliseconds; 0 for ever.
    pub(crate) keep_ended_ms: u64,
    /// How long dead jobs are kept, in milliseconds; 0 for ever.
    pub(crate) keep_dead_ms: u64,
    /// How many ended jobs are kept at most, the dead apart; 0 for no bound.
    pub(crate) keep_ended_count: u64,
    /// Whether workers that fail far more often than others are quarantined.
    pub(crate) quarantine: bool,
    /// The shape of BRPOP's reply.
    pub(crate) brpop_reply: PopReply,
    /// Choice between the texts of authentication errors.
    pub(crate) auth_errors: AuthErrors,
}

/// Choice between the texts of authentication errors: those of the RESP specification, or those of
/// Redis, which client libraries recognise by the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AuthErrors {
    /// The texts of Redis for clients that introduced themselves (HELLO, CLIENT, AUTH with the user
    /// name `default`), else the texts of the specification.
    #[default]
    Auto,
    /// Always the texts of the specification.
    Plain,
    /// Always the texts of Redis.
    Redis,
}

/// The shape of BRPOP's reply for one key: the seed's bare value, or Redis' pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PopReply {
    /// The pair for clients that introduced themselves (HELLO, CLIENT, AUTH with the user name
    /// `default`), else the value.
    #[default]
    Auto,
    /// Always the value.
    Bulk,
    /// Always the pair.
    Pair,
}

impl Settings {
    /// Returns the settings that must be the same at all nodes, because the nodes share jobs and
    /// workers. Names are those of the command line, and times are in seconds.
    pub(crate) fn shared_by_nodes(&self) -> String {
        let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
        format!(
            "heartbeat-interval={} heartbeat-factor={} job-timeout={} start-timeout={} keep-ended={} keep-dead={} keep-ended-count={}",
            seconds(self.heartbeat_interval_ms),
            self.heartbeat_factor,
            seconds(self.job_timeout_ms),
            seconds(self.start_timeout_ms),
            seconds(self.keep_ended_ms),
            seconds(self.keep_dead_ms),
            self.keep_ended_count,
        )
    }

    /// How long a worker may be silent, in milliseconds.
    pub(crate) fn silence_ms(&self) -> u64 {
        self.heartbeat_interval_ms.saturating_mul(u64::from(self.heartbeat_factor))
    }
}

/// Where agq listens.
#[derive(Debug, Clone)]
pub(crate) struct ListenAddresses {
    pub(crate) tcp: Option<SocketAddr>,
    /// The Unix socket.
    pub(crate) socket: Option<PathBuf>,
    /// With it, TCP is TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// Where HTTP is spoken, in the same way.
    pub(crate) http: Option<SocketAddr>,
}

/// Where the certificates are; all are PEM files.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    /// Our certificate, and those between it and its CA.
    pub(crate) cert: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// The CAs of clients. With it, who has no certificate of theirs gets no further than the handshake.
    pub(crate) client_ca: Option<PathBuf>,
}
