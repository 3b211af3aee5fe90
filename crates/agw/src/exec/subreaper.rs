//! Child subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): a process below this worker whose parent
//! has ended becomes a child of this worker. The first process of a container adopts such processes
//! without the call. This worker waits for adopted processes, which would stay zombies otherwise.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError},
    time::Duration,
};
#[cfg(target_os = "linux")]
use std::{fs::File, os::unix::fs::FileExt, sync::OnceLock};

use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, getpid, waitid},
};
use tokio::time::{Instant, sleep};
#[cfg(target_os = "linux")]
use tracing::debug;

use crate::exec::process_table::children_of;

/// Maximum wait for killed children.
pub(crate) const MAX_ABANDONED_WAIT: Duration = Duration::from_secs(5);
/// Maximum interval between two polls of killed children.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Children that this worker has started and has not reaped.
static CHILDREN: Mutex<Children> = Mutex::new(Children { ours: BTreeSet::new(), abandoned: Vec::new() });
/// Lock for reading during starts, because `CHILDREN` gets a pid only afterwards; [`reap`] writes.
static STARTING: RwLock<()> = RwLock::new(());
/// Open list of the children of the first thread, if the system has such lists.
#[cfg(target_os = "linux")]
static LISTED: OnceLock<File> = OnceLock::new();

struct Children {
    ours: BTreeSet<i32>,
    /// Children in `ours` that no other code waits for.
    abandoned: Vec<AbandonedChild>,
}

/// Killed child.
struct AbandonedChild {
    pid: Pid,
    /// True if the child has outlasted a wait, because it hangs in a system call, and no code waits
    /// for it any more.
    hangs: bool,
}

/// Starts a child and records its pid, which `start` returns, so that [`reap`] does not take it for
/// an adopted process. The caller reaps the child by its pid.
pub(crate) fn start(start: impl FnOnce() -> io::Result<i32>) -> io::Result<Pid> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let pid = Pid::from_raw(start()?);
    let pid = pid.expect("a process id is a positive 32-bit integer");
    children().ours.insert(pid.as_raw_pid());
    Ok(pid)
}

/// Reaps the exited child `pid` under the lock, because a new child may get the same process id.
pub(crate) fn reaped<T>(pid: Pid, reap: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut children = children();
    let reaped = reap()?;
    children.ours.remove(&pid.as_raw_pid());
    Ok(reaped)
}

/// Leaves the killed child `pid` to [`reap`], because no other code waits for it.
pub(crate) fn abandon(pid: Pid) {
    children().abandoned.push(AbandonedChild { pid, hangs: false });
}

/// Makes this worker a child subreaper.
#[cfg(target_os = "linux")]
pub(crate) fn begin() {
    // Without this file (`CONFIG_PROC_CHILDREN`), adopted processes would stay zombies.
    let own = getpid().as_raw_pid();
    let Ok(listed) = File::open(format!("/proc/{own}/task/{own}/children")) else {
        debug!("the system does not list children, so orphaned processes are left to their new parents");
        return;
    };
    let _begun_before = LISTED.set(listed);
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        debug!(%error, "the system refused a child subreaper, so orphaned processes are left to their new parents");
    }
}

/// Does nothing, because `PR_SET_CHILD_SUBREAPER` exists on Linux alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn begin() {}

/// Returns true if this worker has adopted a process that is not reaped. The call is cheap if the
/// first thread has no children.
#[cfg(target_os = "linux")]
pub(crate) fn has_adopted() -> bool {
    match LISTED.get().map(|listed| listed.read_at(&mut [0; 1], 0)) {
        None | Some(Ok(0)) => false,
        Some(_) => adopted().next().is_some(),
    }
}

/// Returns the adopted processes that are not reaped: children of the first thread, because the
/// kernel gives orphans to that thread.
pub(crate) fn adopted() -> impl Iterator<Item = Pid> {
    children_of(getpid(), getpid()).into_iter().filter(|pid| !is_ours(*pid))
}

/// Reaps ended adopted and abandoned processes.
pub(crate) fn reap() {
    reap_abandoned();
    if adopted().next().is_none() {
        return;
    }
    // A start may hang in exec(2) on a dead mount, and heartbeats share this thread.
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

fn reap_abandoned() {
    let mut children = children();
    let Children { ours, abandoned } = &mut *children;
    abandoned.retain(|&AbandonedChild { pid, .. }| {
        let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        let still_runs = matches!(ended, Ok(None) | Err(Errno::INTR));
        if !still_runs {
            ours.remove(&pid.as_raw_pid());
        }
        still_runs
    });
}

/// Waits until the abandoned children have ended, at most for [`MAX_ABANDONED_WAIT`]. The children
/// were killed, so only a child that hangs in a system call takes longer.
pub(crate) async fn wait_for_abandoned() {
    let (end, mut pause) = (Instant::now() + MAX_ABANDONED_WAIT, Duration::from_millis(1));
    loop {
        reap_abandoned();
        if children().abandoned.iter().all(|child| child.hangs) {
            return;
        }
        if Instant::now() >= end {
            children().abandoned.iter_mut().for_each(|child| child.hangs = true);
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

fn is_ours(pid: Pid) -> bool {
    children().ours.contains(&pid.as_raw_pid())
}

fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}
