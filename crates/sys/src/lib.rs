//! System calls without a safe wrapper: file leases, descriptors that child processes inherit, the
//! controlling terminal, ignored and blocked signals, standard streams that were closed at the
//! start, the start of a child, and the use of the machine by an ended child.
//!
//! A lease (fcntl(2), `F_SETLEASE`) shows whether another process has a file open. Linux grants a
//! write lease only if no other open file description of the file exists. Other systems have no
//! such call, so [`is_sole_opener`] returns false there.
//!
//! This is the only crate of the project that contains `unsafe` code.

mod child_program;
mod reaped;
mod standard;

use std::{fs::File, io, mem::MaybeUninit, ptr};

pub use child_program::ChildProgram;
pub use reaped::{Reaped, reap, reap_any};
pub use standard::{Standard, check};

/// Returns true if `file` is the only open file description of its file in all processes. Other
/// descriptions are detected if a process has inherited them or opened them by `/proc`. Duplicates
/// of this description are not detected.
///
/// Returns false if the file system does not support leases, or if another user owns the file.
#[must_use]
pub fn is_sole_opener(file: &File) -> bool {
    lease(file).is_ok()
}

/// Gives up the controlling terminal of this process, if there is one. Children that start after
/// the call have no terminal, so the terminal cannot stop them. Signals of terminal keys such as
/// Ctrl-C still arrive, because these signals go to a process group.
///
/// The process must not lead its session: the kernel would take the terminal from all processes of
/// the session, and send SIGHUP to those in the foreground.
///
/// # Errors
///
/// Returns the error of the system if the system refuses the call.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn leave_terminal() -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { return Ok(()) };
    // SAFETY: `terminal` keeps the descriptor open, and the request takes no argument.
    let answer = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps the terminal, because this crate can give up a terminal on Linux alone.
#[cfg(not(target_os = "linux"))]
pub fn leave_terminal() -> io::Result<()> {
    Ok(())
}

/// Ignores the signals that usually ask a process to end or to pause. SIGKILL and SIGSTOP cannot be
/// ignored.
///
/// # Errors
///
/// Returns the error of the system if the system refuses the call.
#[allow(unsafe_code)]
pub fn ignore_end_requests() -> io::Result<()> {
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTSTP,
    ] {
        // SAFETY: the call sets no handler, and accesses no memory of this process.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Restores the default action of SIGCHLD, and unblocks all signals. A program keeps the ignored
/// and the blocked signals of the program that has started it. If SIGCHLD is ignored, the kernel
/// drops the status of an ended child, and a wait for the child fails.
///
/// The call must precede handlers of SIGCHLD, and other threads, which would keep the blocked
/// signals.
#[allow(unsafe_code)]
pub fn restore_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the calls set no handler. The pointers are valid during the calls, which do not fail
    // with these arguments, and sigemptyset(3) initializes `none`.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Value from `asm-generic/fcntl.h` of Linux: libc defines it for some targets only.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Takes a write lease and releases it.
#[cfg(target_os = "linux")]
fn lease(file: &File) -> io::Result<()> {
    // A process that opens the file during the lease waits, and the kernel signals this process.
    // SIGURG is ignored by default; SIGIO would end this process.
    control(file, F_SETSIG, libc::SIGURG)?;
    control(file, libc::F_SETLEASE, libc::F_WRLCK)?;
    control(file, libc::F_SETLEASE, libc::F_UNLCK)
}

#[cfg(not(target_os = "linux"))]
fn lease(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open while `file` is borrowed, and these commands take an integer
    // and access no memory of this process.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets close-on-exec for all open descriptors except stdin, stdout and stderr, so that programs
/// started by this process do not inherit them. This process may continue to use the descriptors.
pub fn keep_from_children() {
    let listed = std::fs::read_dir("/dev/fd").map(|entries| {
        let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        entries.filter_map(number).collect()
    });
    // Without a list, the usual range of descriptors has to suffice.
    let descriptors: Vec<libc::c_int> = listed.unwrap_or_else(|_| (0..=MANY).collect());
    for descriptor in descriptors.into_iter().filter(|&descriptor| descriptor > libc::STDERR_FILENO) {
        close_on_exec(descriptor);
    }
}

/// Upper bound of the descriptor numbers that a shell passes to a program.
const MANY: libc::c_int = 1023;

#[allow(unsafe_code)]
fn close_on_exec(descriptor: libc::c_int) {
    // SAFETY: the command takes an integer and accesses no memory of this process. The call fails
    // for a closed descriptor, and closes none, so users of the descriptor in this process are not
    // affected.
    let _not_open = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn children_inherit_only_stdin_stdout_and_stderr() {
        use std::{
            os::fd::AsRawFd,
            process::{Command, Stdio},
        };

        let file = tempfile::tempfile().unwrap();
        // The standard library opens every file with close-on-exec.
        let inherited = {
            use rustix::io::{FdFlags, fcntl_setfd};
            fcntl_setfd(&file, FdFlags::empty()).unwrap();
            file.as_raw_fd()
        };
        let has_it = || {
            let script = format!("true 2> /dev/null <&{inherited}");
            let mut sh = Command::new("sh");
            sh.arg("-c").arg(script).stderr(Stdio::null()).status().unwrap().success()
        };
        assert!(has_it(), "as a shell hands it over");
        super::keep_from_children();
        assert!(!has_it());
        assert!(file.metadata().is_ok(), "it stays open here");
    }

    #[test]
    fn end_requests_are_ignored() {
        use rustix::process::{Signal, getpid, kill_process};

        super::ignore_end_requests().unwrap();
        // Without the call, the signal would end this process.
        kill_process(getpid(), Signal::TERM).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)]
    #[test]
    fn blocked_signals_are_unblocked() {
        use std::{fs::read_to_string, mem::MaybeUninit, ptr};

        let has_blocked = || {
            let status = read_to_string("/proc/thread-self/status").unwrap();
            !status.contains("SigBlk:\t0000000000000000")
        };
        let mut all = MaybeUninit::uninit();
        // SAFETY: sigfillset(3) initializes `all`, and the mask is that of this thread alone.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
        }
        assert!(has_blocked());
        super::restore_signals();
        assert!(!has_blocked());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn is_alone_detects_other_open_descriptions_repeatedly() {
        use std::{fs::File, os::fd::AsRawFd, process::Command};

        use super::is_sole_opener;

        let file = tempfile::tempfile().unwrap();
        let again = |write: bool| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().read(true).write(write).open(path).unwrap()
        };
        assert!(is_sole_opener(&file));
        for write in [true, false] {
            let other = again(write);
            assert!(!is_sole_opener(&file), "opened again, to write: {write}");
            drop(other);
            assert!(is_sole_opener(&file));
        }
        let mut child =
            Command::new("cat").stdin(std::process::Stdio::piped()).stdout(again(true)).spawn().unwrap();
        assert!(!is_sole_opener(&file), "a child has it");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_sole_opener(&file));
    }
}
