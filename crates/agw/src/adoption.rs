//! Child subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): a process below this worker whose parent
//! has ended becomes a child of this worker. The first process of a container adopts such processes
//! without the call. This worker waits for them, because they would stay zombies otherwise.

use std::{
    collections::HashSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use tokio::time::sleep;
#[cfg(target_os = "linux")]
use tracing::debug;

use crate::escaped::children_of;

/// Interval between two calls of [`reap`].
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Children that this worker has started and waits for itself.
static OURS: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);
/// Read lock for the start of a child, because `OURS` learns the child's process id only after the
/// start. [`reap`] takes the write lock.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child and records its process id, so that [`reap`] does not take the child for an
/// adopted process. `pid` reads the process id from the child.
pub(crate) fn start<C>(
    start: impl FnOnce() -> io::Result<C>,
    pid: impl Fn(&C) -> Option<Pid>,
) -> io::Result<C> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = start()?;
    if let Some(pid) = pid(&child) {
        ours().get_or_insert_default().insert(pid);
    }
    Ok(child)
}

/// Removes `pid` from the children of this worker, because this worker has waited for that child.
pub(crate) fn forget(pid: Pid) {
    if let Some(ours) = ours().as_mut() {
        ours.remove(&pid);
    }
}

/// Makes this worker a child subreaper.
#[cfg(target_os = "linux")]
pub(crate) fn begin() {
    // Without this file (`CONFIG_PROC_CHILDREN`) the worker would not find the processes that it
    // adopts, and they would stay zombies.
    let own = getpid().as_raw_pid();
    if !std::path::Path::new(&format!("/proc/{own}/task/{own}/children")).exists() {
        debug!("the system does not list children: processes whose parents have ended are left to others");
        return;
    }
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        debug!(%error, "processes whose parents have ended are left to others");
    }
}

/// Does nothing, because `PR_SET_CHILD_SUBREAPER` exists on Linux alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn begin() {}

/// Reaps adopted processes every [`LOOK_EVERY`] and never returns.
pub(crate) async fn watch() {
    loop {
        sleep(LOOK_EVERY).await;
        reap();
    }
}

/// Reaps the adopted processes that have ended. Adopted processes are children of the first thread.
pub(crate) fn reap() {
    let adopted = || children_of(getpid(), getpid()).into_iter().filter(|pid| !is_ours(*pid));
    if adopted().next().is_none() {
        return;
    }
    // A start may hang in exec(2) on a dead mount, and this thread also sends the heartbeats: the
    // next call tries again.
    let _nothing_starts = match STARTING.try_write() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    for pid in adopted() {
        // `NOHANG` leaves a process alone that still runs.
        let _ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn is_ours(pid: Pid) -> bool {
    ours().as_ref().is_some_and(|ours| ours.contains(&pid))
}

fn ours() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}
