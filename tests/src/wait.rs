//! Waiting for a condition with a bound, instead of waiting for a fixed time: tests also pass on
//! slow machines.

use std::time::{Duration, Instant};

/// Maximum wait for a condition, enough for the slowest machine.
const BOUND: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Calls `look` until it returns a value. Panics with `condition` after two minutes.
pub fn eventually<T>(condition: &str, look: impl FnMut() -> Option<T>) -> T {
    within(BOUND, look).unwrap_or_else(|| panic!("two minutes have passed without: {condition}"))
}

/// Calls `look` until it returns a value, for at most `bound`.
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

/// Returns true if the process `pid` has ended, even if it is an unreaped zombie.
pub fn is_gone(pid: i32) -> bool {
    let Some(known) = rustix::process::Pid::from_raw(pid) else { return true };
    let is_zombie = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    };
    rustix::process::test_kill_process(known).is_err() || is_zombie()
}
