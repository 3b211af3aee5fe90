//! The rooms of agq, the queue. This file puts the floors on each other; only it, and the simulation, name a concrete store
//! to run on.

#![forbid(unsafe_code)]
mod admin;
mod app;
mod auth;
mod background;
mod clock;
mod config;
mod error;
mod http;
mod net;
mod redis;
mod registry;
mod resp;
mod service;
#[cfg(feature = "simulation")]
pub mod simulation;
mod startup;
mod store;
mod waiters;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use tracing::{info, warn};

use crate::{
    app::AppState,
    auth::{audit_log::AuditLog, keyring::Keyring},
    clock::Clock,
    config::{Cli, ServerConfig, StoreLocation},
    net::{AccessControl, Listeners},
    startup::{logging, reload::Reload, services},
    store::{Store, postgres::PostgresStore, redb::RedbStore},
    waiters::BackgroundTask,
};

/// Most messages that wait to be told to other nodes.
const MOST_OUTGOING: usize = 10_000;

/// agq from its command line to its exit code.
pub fn run_program() -> ExitCode {
    let cli: Cli = agenix_cli::parse();
    logging::start();
    forbid_core_dumps();
    // What agq writes is its own: plans and results are nobody else's to read.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let outcome = match &cli.command {
        Some(command) => run_subcommand(command),
        None => serve(cli).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // Whether anyone reads stderr is not ours to judge.
            let _unread = writeln!(std::io::stderr(), "agq: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(cli: Cli) -> anyhow::Result<()> {
    let config = cli.resolve()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads()).enable_all().build()?;
    let outcome = runtime.block_on(run(config));
    // A backup that is being made is not waited for: what is left of it goes at the next start.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// How many threads serve connections: half of the processors. The others are for the writer, for long reads, and for whoever is
/// served; where two threads share two processors with them, each wakes the other for nothing.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

/// What agq does besides running the queue.
fn run_subcommand(command: &config::Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let _too_large = ignore_file_size_signal()?;
    admin::run(command)
}

/// While somebody listens for it, a file that may not grow is an error of the write, and not the end without a word.
fn ignore_file_size_signal() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

async fn run(config: ServerConfig) -> anyhow::Result<()> {
    let _too_large = ignore_file_size_signal()?;
    let (app, works) = open(&config).await?;
    service::workers::recover_after_restart(&app).await?;
    let entrance = Listeners::open(&config.places).await?;
    // From here on SIGHUP does not end agq.
    let hangups = signal(SignalKind::hangup())?;
    let http = match config.places.http {
        Some(address) => Some(entrance.for_http(address).await?),
        None => None,
    };
    check_open_files()?;
    let mut addresses = entrance.addresses()?;
    addresses.extend(http.as_ref().map(Listeners::http_address).transpose()?);
    print_banner(&config, &addresses).context("cannot say on stdout where it listens")?;

    let keyring = Arc::new(Keyring::new(config.keys));
    let access_control = Arc::new(AccessControl::new(Arc::clone(&keyring), &app.settings.limits));
    let reload =
        Reload { key_source: config.key_source, keyring, tls: entrance.tls(), app: Arc::clone(&app) };
    let failure = app.store.failure();
    let stdin = stdin_ends(config.ends_with_stdin)?;
    let (stop, stopped) = watch::channel(false);
    let mut background = JoinSet::new();
    works.into_iter().for_each(|work| drop(background.spawn(work)));
    let mut doors = JoinSet::new();
    let resp = resp::handler(Arc::clone(&app), Arc::clone(&access_control));
    doors.spawn(net::serve(entrance, resp, Arc::clone(&access_control), stopped.clone()));
    if let Some(entrance) = http {
        let manner = http::handler(&app, &access_control, entrance.tls().is_some());
        doors.spawn(net::serve(entrance, manner, access_control, stopped));
    }
    let server = async { while doors.join_next().await.is_some() {} };
    let signal = tokio::select! {
        signal = next_signal() => signal?,
        () = reload.run(hangups) => "SIGHUP: the terminal has gone",
        () = stdin => "stdin has ended: whoever started agq has gone",
        reason = ended(&mut background) => bail!(
            "a background task of agq has ended ({reason}), so agq stops: start it again, what it acknowledged is on disk"
        ),
        reason = failure => bail!(
            "the store cannot go on: {reason}; mend that and start agq again, what it acknowledged is on disk"
        ),
    };
    info!(signal, "stopping: commands under way are finished first; a second signal ends agq at once");
    stop.send_replace(true);
    tokio::select! {
        () = server => {}
        signal = next_signal() => bail!("ended by a second {}", signal?),
    }
    // Whether they are aborted in time does not matter: they hold nothing that a crash would not forgive.
    background.shutdown().await;
    Ok(())
}

/// Waits until one of the background tasks has ended, and returns why. No background task ends by
/// itself while agq runs: without the reaper, for example, no retry would begin and nobody would
/// notice a silent worker.
async fn ended(background: &mut JoinSet<()>) -> String {
    match background.join_next().await {
        Some(Err(error)) => error.to_string(),
        Some(Ok(())) => "it returned".into(),
        None => std::future::pending().await,
    }
}

/// Opens everything that commands work with.
async fn open(config: &ServerConfig) -> anyhow::Result<(Arc<AppState>, Vec<BackgroundTask>)> {
    let audit = AuditLog::open(config.audit_log.as_deref())?;
    let furnish = |store| services::build(store, Clock::default(), audit, config.settings.clone());
    match &config.store {
        StoreLocation::DataDir => {
            let (app, works) = furnish(Arc::new(open_redb(config)?));
            // The database is open: no other agq makes a copy here.
            app.backups
                .clean_up_leftovers(&config.data_dir)
                .context("cannot look for what is left of a backup")?;
            Ok((app, works))
        }
        StoreLocation::Postgres { url, settings } => {
            let store = Arc::new(PostgresStore::open(url, *settings).await?);
            let (app, works) = furnish(Arc::clone(&store) as Arc<dyn Store>);
            let (others, outgoing) = mpsc::channel(MOST_OUTGOING);
            app.pubsub.connect_peers(others);
            let at_home = Arc::downgrade(&app);
            store.join(&config.settings.shared_by_nodes(), outgoing, move |channel, payload| {
                if let Some(app) = at_home.upgrade() {
                    background::event_publisher::on_peer_message(&app, &channel, &payload);
                }
            });
            Ok((app, works))
        }
    }
}

/// Opens the database in the data directory.
fn open_redb(config: &ServerConfig) -> anyhow::Result<RedbStore> {
    std::fs::create_dir_all(&config.data_dir).with_context(|| {
        format!(
            "cannot create the data directory {}: choose another with --data-dir",
            config.data_dir.display()
        )
    })?;
    RedbStore::open(&config.data_dir.join("agq.redb"), config.opening)
}

/// Number of connections that agq must be able to accept: those of a worker and of some agx.
const FEWEST_CONNECTIONS: usize = 5;

/// Refuses a limit of open files under which clients would wait for ever to be accepted.
fn check_open_files() -> anyhow::Result<()> {
    let open = agenix_cli::openable(FEWEST_CONNECTIONS);
    anyhow::ensure!(
        open == FEWEST_CONNECTIONS,
        "the limit of open files allows only {open} connections: raise it with `ulimit -n`"
    );
    Ok(())
}

/// Says where agq is reached; on a terminal also how, when the key is known to nobody else.
fn print_banner(config: &ServerConfig, addresses: &[String]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (version, places) = (env!("CARGO_PKG_VERSION"), addresses.join(", "));
    match &config.store {
        StoreLocation::DataDir => {
            writeln!(out, "agq {version} listens on {places}, data in {}", config.data_dir.display())?;
        }
        StoreLocation::Postgres { .. } => {
            writeln!(out, "agq {version} listens on {places}, data in PostgreSQL")?;
        }
    }
    if let Some(key) = &config.random_key {
        if out.is_terminal() {
            let (key, address) = (key.reveal(), addresses.first().map_or("", String::as_str));
            writeln!(out, "\nNo session key was given, so this run has a random one. In another shell:\n")?;
            writeln!(out, "  export AGQ_ADDR={address} AGQ_SESSION_KEY={key}")?;
            writeln!(out, "  agw                                   # a worker on this machine")?;
            writeln!(out, "  agx plan submit plan.json             # and work for it\n")?;
        } else {
            warn!(
                "no session key was given and there is no terminal to print one on: only keys of the config file can log in; set AGQ_SESSION_KEY or --session-key-file"
            );
        }
    }
    Ok(out.flush()?)
}

/// Ready when stdin has ended, if anyone wants to know.
fn stdin_ends(is_wanted: bool) -> std::io::Result<impl Future<Output = ()>> {
    let (tell, told) = oneshot::channel();
    if is_wanted {
        let listen = move || {
            let _at_its_end = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _nobody_waits = tell.send(());
        };
        std::thread::Builder::new().name("stdin".into()).spawn(listen)?;
    }
    Ok(async move {
        if !is_wanted || told.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

async fn next_signal() -> anyhow::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

/// The session key lives in memory and in the environment: neither a core file nor another process may get at it
/// (RESP spec §8.1).
fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        warn!(%error, "other processes could not be kept from reading this one");
    }
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "core dumps could not be forbidden");
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::ended;

    #[tokio::test]
    async fn a_background_task_that_panics_or_returns_is_noticed() {
        let mut background = JoinSet::new();
        background.spawn(std::future::pending());
        background.spawn(async { panic!("the reaper stumbled") });
        let reason = ended(&mut background).await;
        assert!(reason.contains("panicked") && reason.contains("the reaper stumbled"), "{reason}");
        background.spawn(async {});
        assert_eq!(ended(&mut background).await, "it returned");
    }
}
