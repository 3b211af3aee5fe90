//! The limit of open files (RLIMIT_NOFILE): it is raised as far as the slots need, and where that
//! is not far enough there are fewer slots. Tasks get the soft limit that the worker was started
//! with: programs that use select(2) rely on it.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Most threads that start processes; see `lanes`.
const MOST_LANES: u32 = 32;
/// Open files of a lane.
const FILES_A_LANE: u64 = 4;
/// Open files of the worker itself: connections, the runtime, what it reads of the machine.
const OWN_FILES: u64 = 16;
/// Open files of a job of one task, while that is started.
const FILES_A_JOB: u64 = 9;
/// The same of a job of several tasks; the limit is raised with these in mind.
const FILES_A_LARGE_JOB: u64 = 24;
/// Most files of jobs that have ended that are kept open because somebody follows the jobs.
const MOST_FOLLOWED: u64 = 256;

/// The soft limit that tasks get, where it is not the worker's own.
static LIMIT_OF_TASKS: OnceLock<Rlimit> = OnceLock::new();

/// How much the limit of open files allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) slots: u32,
    pub(crate) lanes: u32,
    /// Open files of all jobs that run.
    pub(crate) job_files: u32,
    /// Open files of jobs that have ended.
    pub(crate) followed_files: usize,
}

impl Allowance {
    /// Raises the limit where that is needed for so many slots, and says what it allows. The error
    /// is for people: the limit is too low for a single job.
    pub(crate) fn claim(slots: u32) -> Result<Self, String> {
        let open = open_files();
        let limit = raised(needed(slots, open));
        let Some(allowance) = allowed(slots, limit, open) else {
            let least = open + OWN_FILES + FILES_A_LANE + FILES_A_JOB;
            return Err(format!(
                "the limit of open files is {limit}, and a worker needs at least {least}: raise it with `ulimit -n`"
            ));
        };
        if allowance.slots < slots {
            let running = allowance.slots;
            warn!(
                "the limit of open files ({limit}) allows {running} jobs at once and not {slots}; raise it with `ulimit -n` or LimitNOFILE="
            );
        }
        Ok(allowance)
    }
}

/// How many files may be open with so many slots, and `open` files at the start.
fn needed(slots: u32, open: u64) -> u64 {
    let lanes = u64::from(slots.min(MOST_LANES));
    open + OWN_FILES + lanes * FILES_A_LANE + u64::from(slots) * FILES_A_LARGE_JOB + MOST_FOLLOWED
}

/// What a limit allows, with at most so many slots; nothing where it is too low for one job.
fn allowed(slots: u32, limit: u64, open: u64) -> Option<Allowance> {
    let limit = limit.saturating_sub(open);
    let lanes = u64::from(slots.clamp(1, MOST_LANES)).min((limit / 32).max(1));
    let left = limit.checked_sub(OWN_FILES + lanes * FILES_A_LANE)?;
    let slots = (left / FILES_A_JOB).min(u64::from(slots));
    // Both fit: they are at most 10,000 and 32.
    let (slots, lanes) = (u32::try_from(slots).ok()?, u32::try_from(lanes).ok()?);
    let followed_files = usize::try_from((left / 4).min(MOST_FOLLOWED)).ok()?;
    let job_files = u32::try_from(left.min(1 << 28)).ok()?;
    (slots > 0).then_some(Allowance { slots, lanes, job_files, followed_files })
}

/// The soft limit, raised to `wanted` as far as the hard limit allows.
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

/// Gives a task that has just started the soft limit that the worker was started with. Nothing can
/// be done in the child before its program starts without a slower way to start it; the limit
/// matters only to programs that open many files.
#[cfg(target_os = "linux")]
pub(crate) fn restore(task: Pid) {
    if let Some(limit) = LIMIT_OF_TASKS.get() {
        // A task that has ended already, or runs as somebody else, goes without.
        let _gone = rustix::process::prlimit(Some(task), Resource::Nofile, *limit);
    }
}

/// Elsewhere the limit of another process cannot be set: tasks have the worker's.
#[cfg(not(target_os = "linux"))]
pub(crate) fn restore(_task: Pid) {}

/// How many files are open now: the standard streams, and what the worker was started with.
fn open_files() -> u64 {
    let listed = std::fs::read_dir("/dev/fd").map(Iterator::count).unwrap_or(3);
    // One of them is the directory itself.
    u64::try_from(listed.saturating_sub(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Allowance, allowed, needed};

    #[test]
    fn a_low_limit_allows_fewer_slots_and_lanes() {
        let of = |limit| allowed(400, limit, 3).map(|allowance| (allowance.slots, allowance.lanes));
        assert_eq!(of(20), None);
        assert_eq!(of(31), None);
        assert_eq!(of(32), Some((1, 1)));
        assert_eq!(of(64), Some((4, 1)));
        assert_eq!(of(259), Some((23, 8)));
        assert_eq!(of(u64::MAX), Some((400, 32)));
    }

    #[test]
    fn what_is_asked_for_is_enough() {
        for slots in [1, 2, 32, 400, 10_000] {
            let allowance = allowed(slots, needed(slots, 3), 3).unwrap();
            assert_eq!((allowance.slots, allowance.lanes), (slots, slots.min(32)));
            assert!(allowance.job_files >= slots * 24 && allowance.followed_files > 0, "{allowance:?}");
        }
    }

    #[test]
    fn files_that_were_open_at_the_start_count() {
        let Some(Allowance { slots, .. }) = allowed(400, 256, 203) else { panic!("there is room for some") };
        assert!(slots < 5);
    }
}
