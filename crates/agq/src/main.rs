//! agq, the queue. `main` puts the floors on each other; it is the only one to name a concrete store.

#![forbid(unsafe_code)]

mod clock;
mod commands;
mod config;
mod error;
mod house;
mod key;
mod matchmaker;
mod reaper;
mod server;
mod store;
mod telemetry;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::Parser;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};

use crate::{
    clock::Clock,
    config::{Cli, Config},
    house::{AbilitiesSeen, House},
    matchmaker::Matchmaker,
    store::{Store, redb::RedbStore},
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    telemetry::start();
    let outcome = cli.resolve().and_then(|config| {
        forbid_core_dumps();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(config))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whether anyone reads stderr is not ours to judge.
            let _unread = writeln!(std::io::stderr(), "agq: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> anyhow::Result<()> {
    let data_dir = config.data_dir.display().to_string();
    std::fs::create_dir_all(&config.data_dir).with_context(|| {
        format!("cannot create the data directory {data_dir}: choose another with --data-dir")
    })?;
    let store: Arc<dyn Store> = Arc::new(RedbStore::open(&config.data_dir.join("agq.redb"))?);
    let house = Arc::new(House {
        matchmaker: Matchmaker::start(&store),
        store,
        clock: Clock::default(),
        abilities: AbilitiesSeen::default(),
        settings: config.settings.clone(),
    });
    commands::start_over(&house).await?;
    let listener = TcpListener::bind(config.address).await.with_context(|| {
        format!("cannot listen on {}: choose another --port (0 takes a free one)", config.address)
    })?;
    greet(&config, listener.local_addr()?, &data_dir)?;

    let (stop, stopped) = watch::channel(false);
    let failure = house.store.failure();
    let reaper = tokio::spawn(reaper::run(Arc::clone(&house)));
    let server = tokio::spawn(server::serve(listener, house, Arc::new(config.key), stopped));
    let signal = tokio::select! {
        signal = next_signal() => signal?,
        reason = failure => bail!(
            "the store cannot go on: {reason}; mend that and start agq again, what it acknowledged is on disk"
        ),
    };
    info!(signal, "stopping: commands under way are finished first; a second signal ends agq at once");
    stop.send_replace(true);
    tokio::select! {
        ended = server => ended?,
        signal = next_signal() => bail!("ended by a second {}", signal?),
    }
    reaper.abort();
    // Whether it was aborted in time does not matter: it holds nothing that a crash would not forgive.
    let _aborted = reaper.await;
    Ok(())
}

/// Says where agq is reached; on a terminal also how, when the key is known to nobody else.
fn greet(config: &Config, address: std::net::SocketAddr, data_dir: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "agq {} listens on {address}, data in {data_dir}", env!("CARGO_PKG_VERSION"))?;
    if config.is_key_random && out.is_terminal() {
        let key = config.key.reveal();
        writeln!(out, "\nNo session key was given, so this run has a random one. In another shell:\n")?;
        writeln!(out, "  export AGQ_ADDR={address} AGQ_SESSION_KEY={key}")?;
        writeln!(out, "  agw                                   # a worker on this machine")?;
        writeln!(out, "  agx plan submit plan.json             # and work for it\n")?;
    } else if config.is_key_random {
        warn!(
            "no session key was given and there is no terminal to print one on: nobody can log in; set AGQ_SESSION_KEY or --session-key-file"
        );
    }
    Ok(out.flush()?)
}

async fn next_signal() -> anyhow::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

/// The session key lives in memory and in the environment: neither a core file nor another process may get at it
/// (seed 003 §8.1).
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
