//! Processes whose parents have ended: below this worker they become its children (prctl(2),
//! `PR_SET_CHILD_SUBREAPER`; as the first process of a container it has them anyway), and it takes
//! note of their ends. Else they would stay as zombies.

use std::{
    collections::HashSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use tokio::time::sleep;
#[cfg(target_os = "linux")]
use tracing::debug;

use crate::escaped::children_of;

/// How often it is looked for those that have ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The children that this worker has started and waits for.
static OURS: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);
/// Held while a child is started: its number is known only afterwards.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child that nobody takes for an adopted one. `pid` says which it is.
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

/// A child of ours was waited for.
pub(crate) fn forget(pid: Pid) {
    if let Some(ours) = ours().as_mut() {
        ours.remove(&pid);
    }
}

/// Adopts, from now on.
#[cfg(target_os = "linux")]
pub(crate) fn begin() {
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        debug!(%error, "processes whose parents have ended are left to others");
    }
}

/// Elsewhere there is no such thing.
#[cfg(not(target_os = "linux"))]
pub(crate) fn begin() {}

/// Takes note of the ends of adopted processes, for ever.
pub(crate) async fn watch() {
    loop {
        sleep(LOOK_EVERY).await;
        reap();
    }
}

/// Takes note of the ends of adopted processes. They are the children of the first thread.
pub(crate) fn reap() {
    let adopted = || children_of(getpid(), getpid()).into_iter().filter(|pid| !is_ours(*pid));
    if adopted().next().is_none() {
        return;
    }
    let _nothing_starts = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    for pid in adopted() {
        // One that runs stays.
        let _ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn is_ours(pid: Pid) -> bool {
    ours().as_ref().is_some_and(|ours| ours.contains(&pid))
}

fn ours() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}
