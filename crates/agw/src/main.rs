//! agw, the worker on each machine.

#![forbid(unsafe_code)]

mod challenge;
mod config;
mod crew;
mod departures;
mod errand;
mod followed;
mod heartbeat;
mod helm;
mod job;
mod joint;
mod lanes;
mod link;
mod manual;
mod mover;
mod outbox;
mod outfit;
mod pace;
mod pipeline;
mod process;
mod roster;
mod session;
mod signals;
mod slots;
mod spool;
mod stage;
mod stop;
mod toolbox;
mod transcript;
mod vitals;
mod worker;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use agenix_client::{ClientError, KEY_HELP, Server};
use agenix_protocol::{
    documents::{Plans, WorkerRegistration},
    names::SCHEDULED,
};
use anyhow::bail;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::{
    config::{Cli, Config},
    crew::Crew,
    helm::Helm,
    lanes::Lanes,
    outfit::Search,
    signals::Signals,
    spool::Spool,
    stage::Workshop,
    toolbox::Toolbox,
    vitals::Vitals,
    worker::{End, Worker},
};

const USAGE: u8 = 2;
const REFUSED: u8 = 3;
/// How long to wait at the end for what cannot be told to stop.
const LAST_WAIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let Cli { command, config } = Cli::parse();
    if let Some(command) = command {
        return match manual::run(&command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _unread = writeln!(std::io::stderr(), "agw: it could not be written: {error}");
                ExitCode::FAILURE
            }
        };
    }
    start_logging();
    hide_environment();
    let error = match run(&config) {
        Ok(End::Drained) => return ExitCode::SUCCESS,
        Ok(End::Forced) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    // Whether anyone reads stderr is not ours to judge.
    let _unread = writeln!(std::io::stderr(), "agw: {error}{}", error.help());
    match error {
        Failure::Usage(_) => ExitCode::from(USAGE),
        Failure::Refused(ClientError::Rejected(_) | ClientError::Unauthenticated { .. }) => {
            ExitCode::from(REFUSED)
        }
        Failure::Refused(_) | Failure::System(_) => ExitCode::FAILURE,
    }
}

/// The session key is in our environment: the tasks, which run as the same user, must not read it there.
#[cfg(target_os = "linux")]
fn hide_environment() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "tasks could not be kept from reading this worker's environment");
    }
}

/// Elsewhere a process cannot read another's environment, or nothing can be done about it.
#[cfg(not(target_os = "linux"))]
fn hide_environment() {}

/// Why the worker did not work.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// It was told something that it cannot do.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// agq will not have it.
    #[error("{0}")]
    Refused(ClientError),
    /// The machine does not play along.
    #[error("{0:#}")]
    System(anyhow::Error),
}

impl Failure {
    /// What to do about it, on a line of its own.
    fn help(&self) -> String {
        match self {
            Self::Refused(ClientError::Unauthenticated { .. }) => format!("\n  {KEY_HELP}"),
            Self::Refused(ClientError::Rejected(reason)) if reason.contains("already registered") => {
                "\n  another worker bears this id and lives: choose another --worker-id, or end that one"
                    .into()
            }
            _ => String::new(),
        }
    }
}

fn run(config: &Config) -> Result<End, Failure> {
    let Prepared { server, registration, workshop, search } = prepare(config).map_err(Failure::Usage)?;
    let vitals = Vitals::new(config.spool_dir()).map_err(|error| Failure::System(error.into()))?;
    let vitals = Arc::new(vitals);
    let slots = registration.max_concurrent_jobs;
    let lanes = Lanes::new(slots).map_err(|error| Failure::System(error.into()))?;
    // Whoever speaks with agq needs one thread: among several, every word would wake another.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System(error.into()))?;
    let ended = runtime.block_on(async {
        let crew = Crew::new(workshop, slots, config.prefetch, lanes.handles());
        let signals =
            Signals::listen(config.end_with_stdin).map_err(|error| Failure::System(error.into()))?;
        let helm = Helm::new(signals, search, Duration::from_secs(config.grace));
        let queues = config.queues.clone();
        let worker = Worker { server, registration, queues, crew, vitals, helm, outfits: 0 };
        worker.run().await.map_err(Failure::Refused)
    });
    // What hangs in a system call does not keep the worker from ending.
    lanes.shut_down(LAST_WAIT);
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

/// What the worker works with.
struct Prepared {
    server: Server,
    registration: WorkerRegistration,
    workshop: Workshop,
    search: Search,
}

/// Puts it together, and finds mistakes before anything is begun.
fn prepare(config: &Config) -> anyhow::Result<Prepared> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolbox = Toolbox::find(&path, config.tools.as_deref());
    if toolbox.len() == 0 {
        bail!("there is no program to offer: PATH is '{}'; check --tools", path.display());
    }
    if let Some(wrong) = config.queues.iter().find(|queue| queue.as_str() == SCHEDULED) {
        bail!("'{wrong}' is no queue that jobs are taken from; check --queues");
    }
    let (tools, units) = toolbox.split();
    let spool = Spool::new(&config.spool_dir());
    if let Err(error) = spool.file() {
        bail!("cannot make files in {}: {error}; choose another --spool-dir", config.spool_dir().display());
    }
    let search = Search { path, allowed: config.tools.clone() };
    let kill_grace = Duration::from_secs(config.kill_grace);
    let plans = Plans::default();
    let workshop = Workshop { toolbox, plans, spool, kept_bytes: config.kept_bytes, kill_grace };
    Ok(Prepared {
        server: config.server()?,
        registration: config.registration(tools, units)?,
        workshop,
        search,
    })
}

/// Logs go to stderr; `AGW_LOG` takes what `RUST_LOG` takes.
fn start_logging() {
    let filter = EnvFilter::try_from_env("AGW_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .init();
}
        // It says on stderr that stderr cannot be written, and panics when that fails as well.
        .log_internal_errors(false)
