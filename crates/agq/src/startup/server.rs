//! Runs the server: listeners and background tasks, until a signal or a failure stops it.

use std::{
    io::{IsTerminal, stdin},
    sync::Arc,
    time::Duration,
};

use agenix_cli::check_threads;
use anyhow::{Context, bail};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tracing::info;

use super::{
    banner::print_banner,
    open_store,
    reload::Reload,
    signals::{ignore_file_size_signal, next_signal, stdin_ends},
};
use crate::{
    auth::keyring::Keyring,
    config::{Cli, ServerConfig},
    http,
    net::{self, AccessControl, Listeners},
    resp, service,
};

/// Number of connections that agq must be able to accept: those of one worker and of a few agx.
const MIN_CONNECTIONS: usize = 5;

/// Threads besides those of the runtime: two of the store, one that waits for the end of stdin, and
/// one for calls that block.
const OTHER_THREADS: usize = 4;

pub(crate) fn serve(cli: Cli) -> anyhow::Result<()> {
    let config = cli.resolve()?;
    check_threads(threads() + OTHER_THREADS)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads()).enable_all().build()?;
    let outcome = runtime.block_on(run(config));
    // Do not wait for a backup in progress, because the next start removes its file.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Returns half of the processors, rounded up. The other processors are left to the writer, to long
/// reads, and to clients on the same machine. More threads would only wake each other.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

async fn run(config: ServerConfig) -> anyhow::Result<()> {
    let _too_large = ignore_file_size_signal()?;
    // From here on SIGHUP does not end agq. One that arrives during the start is a reload after it.
    let hangups = signal(SignalKind::hangup())?;
    let was_on_terminal = stdin().is_terminal();
    let (app, tasks) = open_store::open(&config).await?;
    service::workers::recover_after_restart(&app).await?;
    service::budgets::set_all(&app, config.keys.budgets().clone()).await?;
    app.shares.set_keys(config.keys.shares());
    let listeners = Listeners::open(&config.listen).await?;
    let http = match config.listen.http {
        Some(address) => Some(listeners.for_http(address).await?),
        None => None,
    };
    check_open_files()?;
    let mut addresses = listeners.addresses()?;
    addresses.extend(http.as_ref().map(Listeners::http_address).transpose()?);
    print_banner(&config, &addresses).context("cannot print the addresses on stdout")?;

    let keyring = Arc::new(Keyring::new(config.keys));
    let access_control = Arc::new(AccessControl::new(Arc::clone(&keyring), &app.settings.limits));
    let reload =
        Reload { key_source: config.key_source, keyring, tls: listeners.tls(), app: Arc::clone(&app) };
    let failure = app.store.failure();
    let stdin = stdin_ends(config.ends_with_stdin)?;
    let (stop, stopped) = watch::channel(false);
    let mut background = JoinSet::new();
    tasks.into_iter().for_each(|task| drop(background.spawn(task)));
    let mut servers = JoinSet::new();
    let resp = resp::handler(Arc::clone(&app), Arc::clone(&access_control));
    servers.spawn(net::serve(listeners, resp, Arc::clone(&access_control), stopped.clone()));
    if let Some(listeners) = http {
        let handler = http::handler(&app, &access_control, listeners.tls().is_some());
        servers.spawn(net::serve(listeners, handler, access_control, stopped));
    }
    let server = async { while servers.join_next().await.is_some() {} };
    let signal = tokio::select! {
        signal = next_signal() => signal?,
        () = reload.run(hangups, was_on_terminal) => "SIGHUP: the terminal is gone",
        () = stdin => "stdin has ended: the parent process is gone",
        reason = ended(&mut background) => bail!(
            "a background task of agq has ended ({reason}), so agq stops: start it again, everything acknowledged is on disk"
        ),
        reason = failure => bail!(
            "the store cannot continue: {reason}; fix the cause and start agq again, everything acknowledged is on disk"
        ),
    };
    info!(signal, "stopping: finishing commands in progress; a second signal ends agq at once");
    stop.send_replace(true);
    tokio::select! {
        () = server => {}
        signal = next_signal() => bail!("ended by a second {}", signal?),
    }
    // The tasks may be aborted, because they survive a crash at any point.
    background.shutdown().await;
    Ok(())
}

/// No background task ends by itself while agq runs. Without the reaper, for example, no retry
/// would begin and no silent worker would expire.
async fn ended(background: &mut JoinSet<()>) -> String {
    match background.join_next().await {
        Some(Err(error)) => error.to_string(),
        Some(Ok(())) => "it returned".into(),
        None => std::future::pending().await,
    }
}

/// Fails if the limit of open files is so low that clients would wait for ever to be accepted.
fn check_open_files() -> anyhow::Result<()> {
    let open = agenix_cli::openable(MIN_CONNECTIONS);
    anyhow::ensure!(
        open == MIN_CONNECTIONS,
        "the limit of open files allows only {open} connections: raise it with `ulimit -n`"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::ended;

    #[tokio::test]
    async fn ended_reports_a_background_task_that_panics_or_returns() {
        let mut background = JoinSet::new();
        background.spawn(std::future::pending());
        background.spawn(async { panic!("the reaper stumbled") });
        let reason = ended(&mut background).await;
        assert!(reason.contains("panicked") && reason.contains("the reaper stumbled"), "{reason}");
        background.spawn(async {});
        assert_eq!(ended(&mut background).await, "it returned");
    }
}
