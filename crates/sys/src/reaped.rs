//! Reaping of a child with its use of the machine (wait4(2)). rustix and the standard library have
//! no safe wrapper of this call.

use std::{io, mem::MaybeUninit, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

/// Ended child of this process, and the use of the machine by the child and the children that the
/// child waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Exit status of the child.
    pub status: ExitStatus,
    /// Largest resident set of one of these processes. `None` if the set is not above the peak of
    /// this process, because the kernel counts the memory of this process as the child's until
    /// exec(2).
    pub peak_memory_bytes: Option<u64>,
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
}

/// Waits until the child `pid` has ended, and reaps it.
///
/// # Errors
///
/// Returns the error of the system, which is `ECHILD` if this process has no such child. Refuses a
/// `pid` that does not name one process.
pub fn reap(pid: i32) -> io::Result<Reaped> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ECHILD));
    }
    let (_pid, status, usage) = wait4(pid, 0)?;
    reaped(status, &usage)
}

/// Reaps a child that has ended, whichever it is, and returns its process id. If no child has
/// ended, waits for one if `waits` is true, and returns `None` otherwise. A process must not use
/// this call while another thread waits for a child of its own.
///
/// # Errors
///
/// Returns the error of the system, which is `ECHILD` if this process has no child.
pub fn reap_any(waits: bool) -> io::Result<Option<(i32, Reaped)>> {
    let (pid, status, usage) = wait4(-1, if waits { 0 } else { libc::WNOHANG })?;
    if pid == 0 { Ok(None) } else { Ok(Some((pid, reaped(status, &usage)?))) }
}

fn reaped(status: libc::c_int, usage: &libc::rusage) -> io::Result<Reaped> {
    Ok(Reaped {
        status: ExitStatus::from_raw(status),
        peak_memory_bytes: above(peak(usage), peak(&own_usage()?)),
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
    })
}

/// Returns the peak of a child if it is not merely the memory of its parent before exec(2).
fn above(child: u64, parent: u64) -> Option<u64> {
    (child > parent).then_some(child)
}

/// Calls wait4(2) until no signal interrupts it. Returns the process id, the status and the use.
#[allow(unsafe_code)]
fn wait4(pid: i32, options: libc::c_int) -> io::Result<(i32, libc::c_int, libc::rusage)> {
    loop {
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: both pointers are valid for writes of their types during the call.
        let answer = unsafe { libc::wait4(pid, &raw mut status, options, usage.as_mut_ptr()) };
        if answer >= 0 {
            // SAFETY: all bytes are initialized, and every bit pattern of these integers is valid.
            return Ok((answer, status, unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[allow(unsafe_code)]
fn own_usage() -> io::Result<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writes of its type during the call.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all bytes are initialized, and every bit pattern of these integers is valid.
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { usage.assume_init() }) }
}

/// Returns the largest resident set in bytes: Linux counts KiB, and macOS counts bytes.
fn peak(usage: &libc::rusage) -> u64 {
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).unwrap_or_default() * unit
}

fn time(of: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(of.tv_sec.try_into().unwrap_or_default());
    seconds + Duration::from_micros(of.tv_usec.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Command, time::Duration};

    use super::{above, reap, reap_any};

    const LARGE: u64 = 128 << 20;

    fn start(script: &str) -> i32 {
        Command::new("sh").args(["-c", script]).spawn().unwrap().id().cast_signed()
    }

    #[test]
    fn reap_returns_the_exit_status_once() {
        let pid = start("exit 3");
        assert_eq!(reap(pid).unwrap().status.code(), Some(3));
        assert_eq!(reap(pid).unwrap_err().raw_os_error(), Some(libc::ECHILD));
        let killed = start("kill -KILL $$");
        assert_eq!(reap(killed).unwrap().status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn reap_any_waits_only_if_it_is_asked_to() {
        // Children of other tests are children of the same process, so this test runs alone.
        let name = "reaped::tests::reap_any_in_a_process_of_its_own";
        let mut own = Command::new(std::env::current_exe().unwrap());
        let own = own.args(["--exact", name]).env(OWN_PROCESS, "1");
        assert!(own.status().unwrap().success());
    }

    const OWN_PROCESS: &str = "AGENIX_SYS_TEST_OF_REAP_ANY";

    #[test]
    fn reap_any_in_a_process_of_its_own() {
        if std::env::var_os(OWN_PROCESS).is_none() {
            return;
        }
        assert_eq!(reap_any(false).unwrap_err().raw_os_error(), Some(libc::ECHILD));
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(reap_any(false).unwrap(), None);
        drop(child.stdin.take());
        let (pid, reaped) = reap_any(true).unwrap().unwrap();
        assert_eq!((pid, reaped.status.code()), (child.id().cast_signed(), Some(0)));
        assert_eq!(reap_any(true).unwrap_err().raw_os_error(), Some(libc::ECHILD));
        assert!(child.wait().is_err(), "it is reaped");
    }

    #[test]
    fn reap_refuses_numbers_of_many_processes() {
        for pid in [0, -1, i32::MIN] {
            assert_eq!(reap(pid).unwrap_err().raw_os_error(), Some(libc::ECHILD), "{pid}");
        }
    }

    #[test]
    fn reap_measures_a_child_and_its_own_children() {
        // tail(1) keeps all bytes that it may have to print.
        let script = format!("head -c {LARGE} /dev/zero | tail -c {LARGE} > /dev/null; :");
        let reaped = reap(start(&script)).unwrap();
        assert!(reaped.peak_memory_bytes.is_some_and(|peak| peak >= LARGE), "{reaped:?}");
        assert!(reaped.user + reaped.system > Duration::ZERO, "{reaped:?}");
    }

    #[test]
    fn peak_of_a_child_is_unknown_below_the_peak_of_its_parent() {
        assert_eq!([above(1, 2), above(2, 2), above(3, 2)], [None, None, Some(3)]);
    }
}
