//! Waiting for something to be so. Never for time to pass: a machine may be as slow as it likes, up to the bound.

use std::time::{Duration, Instant};

/// How long anything may take on the slowest machine.
const BOUND: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks until `look` finds something; panics with `what` after two minutes.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(BOUND, look).unwrap_or_else(|| panic!("two minutes have passed without: {what}"))
}

/// Asks until `look` finds something, at most for `bound`.
pub fn within<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.elapsed() > bound {
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "this is the pause between two looks")]
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether a process is no more. One that has ended and that nobody has asked about is no more, too.
pub fn is_gone(pid: i32) -> bool {
    let Some(known) = rustix::process::Pid::from_raw(pid) else { return true };
    let is_zombie = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    };
    rustix::process::test_kill_process(known).is_err() || is_zombie()
}
