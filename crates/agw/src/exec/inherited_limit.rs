//! Mark that a task cannot remove: the hard limit `RLIMIT_RTTIME`, which bounds the processor time
//! of real-time threads. Every process inherits its limits from its parent, and only root may raise
//! a hard limit. The worker sets an unusual value for itself that is far above any real bound. All
//! processes below the worker then have this value, or a lower one, even after `env -i`.

#[cfg(target_os = "linux")]
pub(crate) use linux::{begin, is_inherited_by, of, ours};

#[cfg(target_os = "linux")]
mod linux {
    use std::{fs, ops::Range, sync::OnceLock};

    use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
    use tracing::debug;

    /// Minimum limit of the worker in microseconds, about twelve days: tasks may set lower limits.
    const MIN_LIMIT: u64 = 1 << 40;
    /// Limits of a worker that starts without a limit.
    const WITHOUT_LIMIT: Range<u64> = (1 << 62)..(1 << 63);
    /// Label of the line in `/proc/PID/limits`.
    const LABEL: &str = "Max realtime timeout";

    /// Limit of this worker, if the system has accepted it.
    static OURS: OnceLock<u64> = OnceLock::new();

    /// Sets the limit of this process, which all later children inherit.
    pub(crate) fn begin() {
        if OURS.get().is_some() {
            return;
        }
        let Some(limit) = chosen(getrlimit(Resource::Rttime).maximum, random()) else {
            debug!("the limit of real-time processor time is too low to mark tasks with it");
            return;
        };
        let both = Rlimit { current: Some(limit), maximum: Some(limit) };
        match setrlimit(Resource::Rttime, both) {
            Ok(()) => drop(OURS.set(limit)),
            Err(error) => debug!(%error, "the system refused a limit that marks tasks"),
        }
    }

    fn random() -> u64 {
        // A part of the UUID is random enough for a value that only has to be unusual.
        uuid::Uuid::new_v4().as_u64_pair().1
    }

    /// Returns a limit that the hard limit `maximum` allows.
    fn chosen(maximum: Option<u64>, random: u64) -> Option<u64> {
        let allowed = maximum.map_or(WITHOUT_LIMIT, |maximum| maximum / 2..maximum);
        (allowed.start >= MIN_LIMIT).then(|| allowed.start + random % (allowed.end - allowed.start))
    }

    /// Returns true if `pid` has its limit from this worker. False without a limit of the worker.
    pub(crate) fn is_inherited_by(pid: Pid) -> bool {
        let Some(ours) = OURS.get() else { return false };
        // A worker below this one lowers the limit further.
        of(pid).is_some_and(|limit| (MIN_LIMIT..=*ours).contains(&limit))
    }

    /// Returns the limit of this worker.
    pub(crate) fn ours() -> Option<u64> {
        OURS.get().copied()
    }

    /// Returns the limit of `pid`, or `None` without a limit.
    pub(crate) fn of(pid: Pid) -> Option<u64> {
        hard_limit(&fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_pid())).ok()?)
    }

    /// Returns the hard limit in a text as of `/proc/PID/limits`, or `None` for no limit.
    fn hard_limit(limits: &str) -> Option<u64> {
        let line = limits.lines().find_map(|line| line.strip_prefix(LABEL))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        use rustix::process::getpid;

        use super::{MIN_LIMIT, begin, chosen, hard_limit, is_inherited_by};

        #[test]
        fn limit_is_below_the_limit_of_an_outer_worker() {
            let outer = chosen(None, 7).unwrap();
            assert_eq!(outer, (1 << 62) + 7);
            for random in [0, 1, u64::MAX] {
                assert!((outer / 2..outer).contains(&chosen(Some(outer), random).unwrap()));
            }
            assert_eq!(chosen(Some(2 * MIN_LIMIT - 1), 0), None);
            assert_eq!(chosen(Some(2 * MIN_LIMIT), 0), Some(MIN_LIMIT));
        }

        #[test]
        fn limit_of_a_process_is_that_of_the_kernel() {
            begin();
            assert!(is_inherited_by(getpid()));
            let line = "Max realtime timeout      200000               unlimited            us        \n";
            assert_eq!(hard_limit(line), None);
            assert_eq!(hard_limit(&line.replace("unlimited", "5")), Some(5));
        }
    }
}

/// Does nothing, because `RLIMIT_RTTIME` exists on Linux alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn begin() {}
