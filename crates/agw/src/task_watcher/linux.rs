//! The worker's side of the watcher: starts the watcher, and ends it with the worker.

use std::{
    io::{self, PipeWriter, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, TryLockError},
    time::Duration,
};

use agenix_client::Backoff;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use crate::{
    exec::{exit::Exit, inherited_limit, job_mark, subreaper},
    task_watcher::watcher::{ARGUMENT, WatchedWorker},
};

/// A watcher that ran for at least this time is replaced at once.
const STEADY: Duration = Duration::from_secs(10);

/// Running watcher that is not reaped.
static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

struct Watcher {
    pid: Pid,
    /// Pipe that closes at the end of this worker, even if the worker is killed.
    _pipe: PipeWriter,
}

/// Starts the watcher, and another one whenever it has ended. Never returns.
pub(crate) async fn keep_running() {
    let (mut backoff, mut is_known) = (Backoff::default(), false);
    loop {
        let started = Instant::now();
        // The start of a process blocks, and heartbeats share this thread.
        match spawn_blocking(start).await {
            Ok(Ok(pid)) => {
                is_known = false;
                wait(pid).await;
                debug!("the watcher of the tasks has ended; the worker starts another one");
            }
            Ok(Err(error)) if !is_known => {
                warn!("the watcher of the tasks cannot be started: {error}; if agw is killed, tasks go on");
                is_known = true;
            }
            _ => {}
        }
        match started.elapsed() > STEADY {
            true => backoff.reset(),
            false => sleep(backoff.next_wait()).await,
        }
    }
}

fn start() -> io::Result<Pid> {
    let (stdin, mut pipe) = io::pipe()?;
    let own = rustix::process::getpid().as_raw_pid();
    let worker =
        WatchedWorker { pid: own, id: job_mark::worker().to_owned(), limit: inherited_limit::ours() };
    // The pipe has room for one line.
    writeln!(pipe, "{worker}")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("agw").arg(ARGUMENT).env_clear().current_dir("/");
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    // The lock is held, so that the end of this worker does not miss a watcher.
    let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = subreaper::start(|| Ok(command.spawn()?.id().cast_signed()))?;
    *watcher = Some(Watcher { pid, _pipe: pipe });
    Ok(pid)
}

/// Waits for the end of the watcher, and reaps it.
async fn wait(pid: Pid) {
    match Exit::of(pid) {
        Ok(mut exit) => drop(exit.wait().await),
        // A running watcher without a notice of its end is ended. The next watcher may have a
        // notice.
        Err(error) => debug!(%error, "the end of the watcher cannot be waited for"),
    }
    end();
}

/// Ends the watcher without an effect on tasks. A watcher whose start hangs ends by itself later.
pub(crate) fn end() {
    let watcher = match WATCHER.try_lock() {
        Ok(mut watcher) => watcher.take(),
        Err(TryLockError::Poisoned(error)) => error.into_inner().take(),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(Watcher { pid, .. }) = watcher {
        // The process id belongs to the watcher until it is reaped.
        let _has_ended = kill_process(pid, Signal::KILL);
        let _reaped = subreaper::reaped(pid, || agenix_sys::reap(pid.as_raw_pid()));
    }
}
