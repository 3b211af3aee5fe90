//! agw, the worker on each machine.

#![forbid(unsafe_code)]
mod completions;
mod config;
mod exec;
mod jobs;
mod report;
mod stats;
mod worker;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use agenix_client::{ClientError, KEY_HELP, Server};
use agenix_protocol::{
    documents::{PlanCache, WorkerRegistration},
    reserved_keys::SCHEDULED,
};
use anyhow::{anyhow, bail};
use tokio::{runtime::Runtime, sync::Semaphore};
use tracing_subscriber::EnvFilter;

use crate::{
    config::{Cli, Config},
    exec::{
        open_file_limit::OpenFileLimit, output_quota::Quota, programs::Programs, resource_wait::Shortage,
        spawn_threads::SpawnThreads, spool::Spool, start::ExecContext, subreaper,
    },
    jobs::JobPool,
    stats::HostStats,
    worker::{Worker, WorkerEnd, capabilities::CapabilitySearch, lifecycle::Lifecycle, signals::Signals},
};

const USAGE: u8 = 2;
const REFUSED: u8 = 3;
/// How long to wait at the end for what cannot be told to stop.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// Idle time after which tokio ends a blocking thread: long enough to keep the thread for ever.
const KEPT_FOR: Duration = Duration::from_secs(1 << 32);

fn main() -> ExitCode {
    let Cli { command, config } = agenix_cli::parse();
    if let Some(command) = command {
        return match completions::run(&command) {
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
        Ok(WorkerEnd::Drained) => return ExitCode::SUCCESS,
        Ok(WorkerEnd::Forced) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    // Whether anyone reads stderr is not ours to judge.
    let _unread = writeln!(std::io::stderr(), "agw: {error}{}", error.help());
    match error {
        ExitFailure::Usage(_) => ExitCode::from(USAGE),
        ExitFailure::Refused(ClientError::Rejected(_) | ClientError::Unauthenticated { .. }) => {
            ExitCode::from(REFUSED)
        }
        ExitFailure::Refused(_) | ExitFailure::System(_) => ExitCode::FAILURE,
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

/// Gives up the controlling terminal, because otherwise the terminal could stop tasks that read
/// from it, write to it or change its settings.
fn leave_terminal() {
    if let Err(error) = agenix_lease::leave_terminal() {
        tracing::warn!(%error, "tasks may be stopped when they use the terminal; start agw by setsid(1)");
    }
}

/// Elsewhere a process cannot read another's environment, or nothing can be done about it.
#[cfg(not(target_os = "linux"))]
fn hide_environment() {}

/// Why the worker did not work.
#[derive(Debug, thiserror::Error)]
enum ExitFailure {
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

impl ExitFailure {
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

fn run(config: &Config) -> Result<WorkerEnd, ExitFailure> {
    let Prepared { server, registration, context, search, open_file_limit } =
        prepare(config).map_err(ExitFailure::Usage)?;
    let host_stats = HostStats::new(config.spool_dir()).map_err(|error| ExitFailure::System(error.into()))?;
    let host_stats = Arc::new(host_stats);
    // Whoever speaks with agq needs one thread: among several, every word would wake another.
    let runtime = runtime().map_err(|error| few_threads(&error))?;
    subreaper::begin();
    leave_terminal();
    let threads = SpawnThreads::new(open_file_limit.threads).map_err(|error| few_threads(&error))?;
    let ended = runtime.block_on(async {
        let pool = JobPool::new(context, open_file_limit, config.prefetch, threads.handles());
        tokio::spawn(subreaper::watch());
        let signals = Signals::listen(config.end_with_stdin).map_err(|error| few_threads(&error))?;
        let lifecycle = Lifecycle::new(signals, search, Duration::from_secs(config.grace));
        let queues = config.queues.clone();
        let worker = Worker {
            server,
            registration,
            queues,
            pool,
            host_stats,
            lifecycle,
            has_own_id: config.has_own_id(),
            ends_when_starved: config.end_with_stdin,
            outfits: 0,
        };
        worker.run().await.map_err(ExitFailure::Refused)
    });
    // What hangs in a system call does not keep the worker from ending.
    threads.shut_down(LAST_WAIT);
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

/// Builds the runtime that communicates with agq. The runtime starts the one blocking thread now
/// and keeps that thread, because tokio panics if the system refuses the thread later.
fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().thread_keep_alive(KEPT_FOR).build()?;
    // The standard library returns an error if the system refuses a thread; tokio panics.
    let tried = std::thread::Builder::new().spawn(|| ())?;
    drop(tried.join());
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

fn few_threads(error: &std::io::Error) -> ExitFailure {
    ExitFailure::System(anyhow!(
        "the system lets this worker have no threads: {error}; check `ulimit -u` and `ulimit -n`"
    ))
}

/// What the worker works with.
struct Prepared {
    open_file_limit: OpenFileLimit,
    server: Server,
    registration: WorkerRegistration,
    context: ExecContext,
    search: CapabilitySearch,
}

/// Puts it together, and finds mistakes before anything is begun.
fn prepare(config: &Config) -> anyhow::Result<Prepared> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = Programs::find(&path, config.tools.as_deref());
    if programs.len() == 0 {
        bail!("there is no program to offer: PATH is '{}'; check --tools", path.display());
    }
    if let Some(wrong) = config.queues.iter().find(|queue| queue.as_str() == SCHEDULED) {
        bail!("'{wrong}' is no queue that jobs are taken from; check --queues");
    }
    let (tools, units) = programs.split();
    let spool = Spool::new(&config.spool_dir());
    if let Err(error) = spool.file() {
        bail!("cannot make files in {}: {error}; choose another --spool-dir", config.spool_dir().display());
    }
    let search = CapabilitySearch { path, allowed: config.tools.clone() };
    let kill_grace = Duration::from_secs(config.kill_grace);
    let plans = PlanCache::default();
    let mut registration = config.registration(tools, units)?;
    let open_file_limit =
        OpenFileLimit::claim(registration.max_concurrent_jobs).map_err(anyhow::Error::msg)?;
    registration.max_concurrent_jobs = open_file_limit.slots;
    let context = ExecContext {
        programs,
        plans,
        spool,
        kept_bytes: config.kept_bytes,
        kill_grace,
        files: Arc::new(Semaphore::new(open_file_limit.job_files as usize)),
        most_files: open_file_limit.job_files,
        shortage: Arc::new(Shortage::default()),
        quota: Quota { of_job: config.spool_quota, reserve: config.spool_reserve },
    };
    Ok(Prepared { open_file_limit, server: config.server()?, registration, context, search })
}

/// Logs go to stderr; `AGW_LOG` takes what `RUST_LOG` takes.
fn start_logging() {
    let asked = std::env::var("AGW_LOG").ok().filter(|filter| !filter.trim().is_empty());
    let filter = asked.and_then(|filter| EnvFilter::try_new(filter).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new("info"));
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let colour = std::io::stderr().is_terminal() && !is_set("NO_COLOR");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        // The subscriber would report internal errors on stderr, and panic if stderr cannot be
        // written.
        .log_internal_errors(false)
        .init();
}
