//! The agw worker: claims jobs from agq, runs their tasks on this machine, and reports the results.
//!
//! # Threads
//!
//! | Thread | Number | Work | May block |
//! |---|---|---|---|
//! | `main` | 1 | Protocol: connections, claims, heartbeats, reports, signals | No (1) |
//! | tokio blocking | ≥ 1 | PATH scan, host statistics, live output, DNS, strays | Disk, DNS |
//! | `lane` | ≤ 32, ≤ slots | Jobs of its slots: start, wait, end, spool, quota | Briefly (2) |
//! | `relay` | 1 per pipe of a task | Relays the bytes of one pipe | Pipe, spool (3) |
//! | `capture` | 2 per helper command | Reads stdout or stderr of the command | Pipe |
//! | `stdin` | 1 | Waits for the end of stdin (`--end-with-stdin`) | Stdin |
//!
//! 1. `main` has a current-thread tokio runtime (`worker/`, `report/`). Heartbeats and reports of
//!    all jobs depend on this thread, so file access and name lookups belong in `spawn_blocking`.
//!    The exceptions are short: the start of a helper command and of its sandbox, the reaping of
//!    adopted processes, and the release of the spool files of a finished job.
//! 2. Each `lane` has a current-thread runtime of its own (`exec/spawn_threads`). The jobs of slot
//!    `n` run on lane `n % lanes`. A lane blocks in fork, exec, and calls on spool files and files
//!    of the user, and for at most 10 s in a message to a sandbox supervisor that does not read. A
//!    call that hangs delays only jobs of the same lane. Lanes send progress through handles of the
//!    connections, which `main` drives.
//! 3. Pipes are between two tasks, and between a task of a job with secrets and its spool files.
//!    Relay threads (`exec/relay_pool`) run at lower priority than tasks. Up to 16 relay threads
//!    stay idle for the next pipe. The number of relay threads has no bound, because a full pool
//!    would deadlock pipes that wait for each other.
//!
//! A std mutex guards the jobs that `main` and the lanes share (`jobs::JobPool`). No code awaits
//! while it holds this mutex. At the end, the lanes and then the runtime get `LAST_WAIT` each to
//! leave their system calls.
//!
//! On Linux, a second process of this program ends the tasks if this one is killed
//! (`task_watcher`).

#![forbid(unsafe_code)]
mod clock;
mod config;
mod config_file;
mod exec;
mod jobs;
mod report;
mod resources;
mod runtime;
mod sandbox_check;
mod stats;
mod subcommands;
mod task_watcher;
mod terminal;
mod worker;

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use agenix_cli::log::{OneLineFields, filter, has_colours};
use agenix_client::{ClientError, KEY_HELP, Server};
use agenix_protocol::{
    documents::{PlanCache, PlanSandbox, WorkerRegistration},
    printable::one_line,
    reserved_keys::SCHEDULED,
};
use agenix_sandbox::supervisor;
use anyhow::{anyhow, bail};
use tokio::sync::Semaphore;

use crate::{
    config::{Cli, Config, PROVENANCE_KEY},
    config_file::ConfigFile,
    exec::{
        admission::AdmissionControl,
        inherited_limit,
        input_space::UnwrittenInputs,
        memory_bound::MemoryBounds,
        open_file_limit::{OpenFileLimit, open_files},
        output_quota::Quota,
        programs::OfferedPrograms,
        provenance::ProvenanceSigner,
        resource_wait::Shortage,
        sandbox,
        sandbox::{sandboxes::Sandboxes, settings::SandboxSettings},
        secrets::Secrets,
        spawn_threads::SpawnThreads,
        spool::Spool,
        start::ExecContext,
        stray_sweep, subreaper, task_environment,
    },
    jobs::JobPool,
    resources::{MachineResources, Offer},
    stats::HostStats,
    worker::{WorkerEnd, WorkerLoop, capabilities::CapabilitySearch, lifecycle::Lifecycle, signals::Signals},
};

const USAGE: u8 = 2;
const REFUSED: u8 = 3;
/// Exit code of a worker that has ended as it was told, with jobs unfinished. Its unit does not
/// start it again.
const UNFINISHED: u8 = 4;
/// Maximum wait at the end for threads that hang in a system call.
const LAST_WAIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if supervisor::is_requested(std::env::args_os()) {
        return supervisor::main();
    }
    if task_watcher::is_asked_for() {
        return task_watcher::run();
    }
    let Cli { command, config } = agenix_cli::parse();
    if let Some(command) = command {
        return subcommands::run(&command).unwrap_or_else(|error| {
            let _unread = writeln!(std::io::stderr(), "agw: {}", one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        });
    }
    start_logging();
    match terminal::leave_session(config.leave_session_of) {
        Ok(None) => {}
        Ok(Some(code)) => return code,
        Err(error) => {
            let _unread =
                writeln!(std::io::stderr(), "agw: the session of the terminal cannot be left: {error}");
            return ExitCode::FAILURE;
        }
    }
    task_environment::inherit_files(config.inherit_files);
    if let Some(names) = &config.task_env {
        task_environment::restrict_to(names);
    }
    hide_environment();
    let error = match run(&config) {
        Ok(WorkerEnd::Drained) => return ExitCode::SUCCESS,
        Ok(WorkerEnd::Forced) => return ExitCode::from(UNFINISHED),
        Err(error) => error,
    };
    // The exit code is right even if stderr cannot be written.
    let _unread = writeln!(std::io::stderr(), "agw: {}{}", one_line(&error.to_string()), error.help());
    match error {
        ExitFailure::Usage(_) => ExitCode::from(USAGE),
        ExitFailure::Refused(ClientError::Rejected(_) | ClientError::Unauthenticated { .. }) => {
            ExitCode::from(REFUSED)
        }
        ExitFailure::Refused(_) | ExitFailure::System(_) => ExitCode::FAILURE,
    }
}

/// Hides the environment from tasks, which run as the same user, because it has the session key.
/// The memory and the open files of other jobs are hidden, too, and agq cannot open these files
/// either (`OUTPUT.COPY`), unless agq has `CAP_SYS_PTRACE`.
#[cfg(target_os = "linux")]
fn hide_environment() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "tasks may be able to read the environment of this worker, and the session key in it");
    }
}

/// Does nothing: other systems do not show the environment to other processes, or cannot hide it.
#[cfg(not(target_os = "linux"))]
fn hide_environment() {}

#[derive(Debug, thiserror::Error)]
enum ExitFailure {
    /// The settings are wrong.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// agq refused the worker, or its first connection.
    #[error("{0}")]
    Refused(ClientError),
    /// The operating system refused a resource.
    #[error("{0:#}")]
    System(anyhow::Error),
}

impl ExitFailure {
    /// Returns advice for the user as a further line, or an empty string.
    fn help(&self) -> String {
        match self {
            Self::Refused(ClientError::Unauthenticated { .. }) => format!("\n  {KEY_HELP}"),
            Self::Refused(ClientError::Rejected(reason)) if reason.contains("already registered") => {
                "\n  a live worker already uses this id: choose another --worker-id, or end that worker"
                    .into()
            }
            Self::Refused(ClientError::Rejected(reason)) if reason.contains("may not act for") => {
                "\n  the key is that of one worker: give its name in [workers] of agq's config file with --worker-id".into()
            }
            _ => String::new(),
        }
    }
}

fn run(config: &Config) -> Result<WorkerEnd, ExitFailure> {
    let open_files = open_files();
    let (runtime, hangups) = runtime::build().map_err(|error| few_threads(&error))?;
    let Prepared { server, registration, context, search, open_file_limit, offer } =
        prepare(config, open_files).map_err(ExitFailure::Usage)?;
    let (sandboxes, admission) = (context.sandboxes.clone(), Arc::clone(&context.admission));
    let host_stats = HostStats::new(config.spool_dir()).map_err(|error| ExitFailure::System(error.into()))?;
    let host_stats = Arc::new(host_stats);
    inherited_limit::begin();
    subreaper::begin();
    terminal::give_up();
    let threads = SpawnThreads::new(open_file_limit.threads).map_err(|error| few_threads(&error))?;
    let ended = runtime.block_on(async {
        let pool = JobPool::new(context, (open_file_limit, &offer), config.prefetch, threads.handles());
        tokio::spawn(stray_sweep::watch());
        tokio::spawn(task_watcher::keep_running());
        let signals = Signals::listen(config.end_with_stdin, hangups).map_err(|error| few_threads(&error))?;
        let lifecycle = Lifecycle::new(signals, (search, admission), Duration::from_secs(config.grace));
        let queues = config.queues.clone();
        let worker = WorkerLoop {
            server,
            registration,
            queues,
            pool,
            host_stats,
            lifecycle,
            has_own_id: config.has_own_id(),
            ends_when_starved: config.end_with_stdin,
            capability_changes: 0,
        };
        worker.run().await.map_err(ExitFailure::Refused)
    });
    // A thread that hangs in a system call does not keep the worker from ending.
    let have_ended = threads.shut_down(LAST_WAIT);
    if let Some(sandboxes) = sandboxes {
        sandboxes.shut_down(LAST_WAIT);
    }
    // The drop of the threads has ended the runs of their jobs.
    let unended = runtime.block_on(stray_sweep::end());
    runtime.shutdown_timeout(LAST_WAIT);
    // Otherwise the watcher ends the rest.
    if have_ended && unended.is_empty() {
        task_watcher::end();
    }
    ended
}

fn few_threads(error: &std::io::Error) -> ExitFailure {
    ExitFailure::System(anyhow!(
        "the system refused threads or files that the worker needs: {error}; check `ulimit -u` and `ulimit -n`"
    ))
}

struct Prepared {
    open_file_limit: OpenFileLimit,
    server: Server,
    registration: WorkerRegistration,
    context: ExecContext,
    search: CapabilitySearch,
    offer: Offer,
}

/// Checks the settings and prepares the worker, before anything is started.
fn prepare(config: &Config, open_files: u64) -> anyhow::Result<Prepared> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = OfferedPrograms::find(&path, config.tools.as_deref()).with_paths(config.has_paths());
    if programs.len() == 0 {
        bail!("no program to offer was found on PATH '{}'; check PATH and --tools", path.display());
    }
    if let Some(wrong) = config.queues.iter().find(|queue| queue.as_str() == SCHEDULED) {
        bail!("jobs cannot be claimed from the queue '{wrong}'; check --queues");
    }
    let (tools, units) = programs.split();
    let spool = Spool::new(&config.spool_dir());
    spool.file().map_err(|error| anyhow!("{error}; choose another --spool-dir"))?;
    let mut registration = config.registration(tools, units)?;
    let open_file_limit =
        OpenFileLimit::claim(registration.max_concurrent_jobs, open_files).map_err(anyhow::Error::msg)?;
    registration.max_concurrent_jobs = open_file_limit.slots;
    let file = ConfigFile::read(config.config.as_deref())?;
    let policy = file.policy(config.policy.as_deref())?;
    let mut admission = AdmissionControl::read(policy, file.asked_plans())?.with_trust(file.trust()?)?;
    admission.set_worker_id(&registration.worker_id);
    let provenance_key = file.provenance_key()?;
    let tables = (file.sandbox, file.profiles);
    let mut settings = sandbox::settings::read(tables, config.sandbox.as_deref(), &config.sandbox_read)?;
    if admission.has_trust() {
        settings.grant(&admission.trusted_profiles())?;
        admission.set_profiles(settings.profile_names());
    }
    let provenance = provenance(provenance_key.as_deref(), &settings, (&admission, &mut registration))?;
    let secrets = Secrets::of(file.secrets)?.map(Arc::new);
    let mut withheld = Vec::new();
    if admission.has_policy() {
        withheld.push(task_environment::NO_OPTIONS_AFTER_OPERANDS);
    }
    if let Some(secrets) = &secrets {
        settings.keep_from_profiles(secrets.variables())?;
        withheld.extend(secrets.variables());
        registration.tags.extend(secrets.tags().map(|tag| (tag, true.into())));
    }
    task_environment::withhold(withheld.into_iter());
    let sandboxes = Sandboxes::prepare(settings, (&config.spool_dir(), open_file_limit.slots))?.map(Arc::new);
    if let Some(profile) = admission.profile() {
        check_profile(profile, sandboxes.as_deref())?;
    }
    let (allowed, has_paths) = (config.tools.clone(), config.has_paths());
    let search = CapabilitySearch { path, allowed, has_paths, sandboxes: sandboxes.clone() };
    registration.sandbox = sandboxes.as_ref().map(|sandboxes| sandboxes.registration());
    let offer = Offer::of(&config.declared_resources(), &MachineResources::examine())?;
    let of_sandboxes = sandboxes.as_ref().map(|sandboxes| sandboxes.memory_bounds());
    let memory_bounds = of_sandboxes.unwrap_or_else(|| MemoryBounds::claim(&offer));
    let context = ExecContext {
        programs,
        plans: PlanCache::default(),
        spool,
        kept_bytes: config.kept_bytes,
        gives_up_outputs: config.give_up_outputs,
        kill_grace: Duration::from_secs(config.kill_grace),
        files: Arc::new(Semaphore::new(open_file_limit.job_files as usize)),
        most_files: open_file_limit.job_files,
        shortage: Arc::new(Shortage::default()),
        quota: Quota { of_job: config.spool_quota, reserve: config.spool_reserve, of_budget: None },
        unwritten_inputs: UnwrittenInputs::default(),
        processor_limit: None,
        sandboxes,
        admission: Arc::new(admission),
        secrets,
        provenance,
        memory_bounds,
        resources: None,
    };
    registration.resources = offer.quantities.clone();
    Ok(Prepared { open_file_limit, server: config.server()?, registration, context, search, offer })
}

/// Opens the key that signs provenance, if the worker has one, and registers its public key.
fn provenance(
    key: Option<&Path>,
    settings: &SandboxSettings,
    (admission, registration): (&AdmissionControl, &mut WorkerRegistration),
) -> anyhow::Result<Option<Arc<ProvenanceSigner>>> {
    let Some(path) = key else { return Ok(None) };
    let provenance = ProvenanceSigner::open(path)?;
    settings.keep_key_from_tasks(path, admission.has_trust())?;
    let key = provenance.public();
    registration.tags.insert(PROVENANCE_KEY.to_owned(), key.to_string().into());
    tracing::info!("the results of tasks are signed with the key {key}");
    Ok(Some(provenance))
}

/// Checks that this worker can run jobs in the sandbox profile that its policy names.
fn check_profile(profile: String, sandboxes: Option<&Sandboxes>) -> anyhow::Result<()> {
    let Some(sandboxes) = sandboxes else {
        bail!(
            "the policy names the sandbox profile '{profile}', and this worker runs no job in a sandbox: set `mode` in [sandbox] of the file of --config"
        );
    };
    sandboxes.profile_of(Some(&PlanSandbox { profile })).map_err(|reason| anyhow!("the policy: {reason}"))?;
    Ok(())
}

/// Starts the log on stderr. `AGW_LOG` has the syntax of `RUST_LOG`.
fn start_logging() {
    let (given, no_color) = (std::env::var("AGW_LOG").ok(), std::env::var_os("NO_COLOR"));
    tracing_subscriber::fmt()
        .with_env_filter(filter(given.as_deref(), "info"))
        .with_writer(std::io::stderr)
        .with_ansi(has_colours(std::io::stderr().is_terminal(), no_color.as_deref()))
        .with_target(false)
        .fmt_fields(OneLineFields::default())
        // The subscriber would report its errors on stderr, and panic if that fails.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;

    use super::ExitFailure;

    #[test]
    fn worker_with_the_key_of_another_is_told_the_option() {
        let help = |reason: &str| ExitFailure::Refused(ClientError::Rejected(reason.into())).help();
        assert!(help("NOPERM This key is worker w1's and may not act for w2").contains("--worker-id"));
        assert_eq!(help("NOPERM This key is a client's and may not use WORKER.REGISTER"), "");
    }
}
