//! Limit of open files (`RLIMIT_NOFILE`). The worker raises its soft limit as far as the slots
//! need, and offers fewer slots where the hard limit is too low. Tasks get the soft limit that the
//! worker was started with, because programs that use select(2) rely on that limit.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Maximum number of threads that start processes; see `threads`.
const MAX_SPAWN_THREADS: u32 = 32;
/// Number of files that a lane keeps open.
const FILES_PER_SPAWN_THREAD: u64 = 4;
/// Files of the worker itself: connections, the runtime, sources of system statistics.
const OWN_FILES: u64 = 16;
/// Number of open files of a job with one task while that task is started.
const FILES_A_JOB: u64 = 10;
/// Open files of a job with several tasks, from which [`needed`] computes the raised limit.
const FILES_A_LARGE_JOB: u64 = 24;
/// Open files of a job with 100 streaming tasks, the most that agq accepts without `--max-tasks`.
const FILES_OF_LARGEST_JOB: u64 = 505;
/// Maximum number of files that the worker keeps open for followed jobs that have ended.
const MAX_FOLLOWED: u64 = 256;

/// Soft limit for tasks, set only if the worker has raised its own limit.
static LIMIT_OF_TASKS: OnceLock<Rlimit> = OnceLock::new();

/// Number of slots, lanes and files that the limit of open files allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFileLimit {
    pub(crate) slots: u32,
    pub(crate) threads: u32,
    /// Maximum number of open files of all running jobs.
    pub(crate) job_files: u32,
    /// Maximum number of open files of jobs that have ended.
    pub(crate) followed_files: usize,
}

impl OpenFileLimit {
    /// Raises the limit for `slots` slots of a worker that was started with `open` files. Returns
    /// an error, for the user, if the limit is too low for one job.
    pub(crate) fn claim(slots: u32, open: u64) -> Result<Self, String> {
        let limit = raised(needed(slots, open));
        let Some(open_file_limit) = allowed(slots, limit, open) else {
            let least = open + OWN_FILES + FILES_PER_SPAWN_THREAD + FILES_A_JOB;
            return Err(format!(
                "the limit of open files is {limit}, and a worker needs at least {least}: raise it with `ulimit -n`"
            ));
        };
        if open_file_limit.slots < slots {
            let running = open_file_limit.slots;
            warn!(
                "the limit of open files ({limit}) allows {running} jobs at once and not {slots}; raise it with `ulimit -n` or LimitNOFILE="
            );
        }
        Ok(open_file_limit)
    }
}

/// Returns the reason why a job never runs here that needs `needed` open files at a time. The
/// running jobs have at most `most`.
pub(crate) fn never_fits(needed: u32, most: u32) -> Option<String> {
    (needed > most).then(|| {
        format!(
            "it needs {needed} open files at a time, and this worker has {most} for its jobs: use fewer tasks, \
             or raise `ulimit -n` or LimitNOFILE= of agw"
        )
    })
}

/// Returns the open files of `slots` slots, and of the `open` files the worker was started with.
fn needed(slots: u32, open: u64) -> u64 {
    let threads = u64::from(slots.min(MAX_SPAWN_THREADS));
    let jobs = (u64::from(slots) * FILES_A_LARGE_JOB).max(FILES_OF_LARGEST_JOB);
    open + OWN_FILES + threads * FILES_PER_SPAWN_THREAD + jobs + MAX_FOLLOWED
}

/// Returns what `limit` allows for `slots` slots, or `None` if it is too low for one job.
fn allowed(slots: u32, limit: u64, open: u64) -> Option<OpenFileLimit> {
    let limit = limit.saturating_sub(open);
    let threads = u64::from(slots.clamp(1, MAX_SPAWN_THREADS)).min((limit / 32).max(1));
    let left = limit.checked_sub(OWN_FILES + threads * FILES_PER_SPAWN_THREAD)?;
    let slots = (left / FILES_A_JOB).min(u64::from(slots));
    // Both conversions succeed, because `slots` is at most 10,000 and `threads` at most 32.
    let (slots, threads) = (u32::try_from(slots).ok()?, u32::try_from(threads).ok()?);
    let followed_files = usize::try_from((left / 4).min(MAX_FOLLOWED)).ok()?;
    let job_files = u32::try_from(left.min(1 << 28)).ok()?;
    (slots > 0).then_some(OpenFileLimit { slots, threads, job_files, followed_files })
}

/// Raises the soft limit to `wanted`, or to the hard limit if lower. Returns the new soft limit.
fn raised(wanted: u64) -> u64 {
    let given = getrlimit(Resource::Nofile);
    let soft = given.current.unwrap_or(u64::MAX);
    let aim = wanted.min(given.maximum.unwrap_or(u64::MAX));
    if soft >= aim {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(aim), maximum: given.maximum }) {
        Ok(()) => {
            let _only_once = LIMIT_OF_TASKS.set(given);
            aim
        }
        Err(error) => {
            debug!(%error, "the limit of open files could not be raised");
            soft
        }
    }
}

/// Gives the started process `task` the soft limit that the worker was started with. The child
/// could set the limit before its program starts only if the worker started processes in a slower
/// way. The limit matters only to programs that open many files.
#[cfg(target_os = "linux")]
pub(crate) fn restore(task: Pid) {
    if let Some(limit) = LIMIT_OF_TASKS.get() {
        // The call fails, without harm, for a task that has ended or runs as another user.
        let _gone = rustix::process::prlimit(Some(task), Resource::Nofile, *limit);
    }
}

/// Does nothing, because prlimit(2) exists on Linux alone. Tasks keep the limit of the worker.
#[cfg(not(target_os = "linux"))]
pub(crate) fn restore(_task: Pid) {}

/// Returns the number of files that are open now: the standard streams and inherited descriptors.
pub(crate) fn open_files() -> u64 {
    let listed = std::fs::read_dir("/dev/fd").map(Iterator::count).unwrap_or(3);
    // The count includes the descriptor of the directory `/dev/fd` itself.
    u64::try_from(listed.saturating_sub(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{OpenFileLimit, allowed, needed};

    #[test]
    fn open_file_limit_reduces_slots_and_threads() {
        let of = |limit| {
            allowed(400, limit, 3).map(|open_file_limit| (open_file_limit.slots, open_file_limit.threads))
        };
        assert_eq!(of(20), None);
        assert_eq!(of(32), None);
        assert_eq!(of(33), Some((1, 1)));
        assert_eq!(of(64), Some((4, 1)));
        assert_eq!(of(259), Some((20, 8)));
        assert_eq!(of(u64::MAX), Some((400, 32)));
    }

    #[test]
    fn open_file_limit_requests_enough_for_all_slots() {
        for slots in [1, 2, 32, 400, 10_000] {
            let limit = allowed(slots, needed(slots, 3), 3).unwrap();
            assert_eq!((limit.slots, limit.threads), (slots, slots.min(32)));
            assert!(limit.job_files >= (slots * 24).max(505) && limit.followed_files > 0, "{limit:?}");
        }
    }

    #[test]
    fn open_file_limit_subtracts_files_open_at_the_start() {
        let Some(OpenFileLimit { slots, .. }) = allowed(400, 256, 203) else {
            panic!("there is room for some")
        };
        assert!(slots < 5);
    }
}
