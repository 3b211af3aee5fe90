//! System calls for which there is no safe wrapper: whether anybody else has a file open, which
//! descriptors the programs that this one starts inherit, and giving up the terminal.
//!
//! Whether anybody else has a file open, Linux knows: it gives a lease (fcntl(2), `F_SETLEASE`) for
//! writing only to whoever alone has the file open. Elsewhere nobody can say, and the answer is no.
//!
//! This is the one place of the project with `unsafe` in it.

use std::{fs::File, io};

/// Whether this is the only open file description of the file, in whatever process: neither has anyone inherited one that was opened
/// apart from this, nor opened it by `/proc`. Duplicates of this very description are not told from it.
///
/// The answer is no, too, where the file system knows no leases, and where the file belongs to somebody else.
#[must_use]
pub fn is_alone(file: &File) -> bool {
    lease(file).is_ok()
}

/// Gives up the controlling terminal of this process, where it has one: children that are started
/// from now on have none, and cannot be stopped by what they do to it. Signals that keys of the
/// terminal send, as Ctrl-C does, still come, for these go to a process group.
///
/// A session leader cannot give its terminal up without losing these signals. There, SIGTTIN and
/// SIGTTOU are ignored: what children read from the terminal fails, and what they write goes there.
///
/// # Errors
///
/// The system refuses it.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn leave_terminal() -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { return Ok(()) };
    // SAFETY: neither call takes memory of ours.
    let is_leader = unsafe { libc::getsid(0) == libc::getpid() };
    if is_leader {
        for signal in [libc::SIGTTIN, libc::SIGTTOU] {
            // SAFETY: no handler of ours is set, and the disposition takes no memory of ours.
            if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        return Ok(());
    }
    // SAFETY: the descriptor is open as long as `terminal` is there, and this request takes no
    // argument.
    let answer = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Elsewhere it is kept.
///
/// # Errors
///
/// There are none.
#[cfg(not(target_os = "linux"))]
pub fn leave_terminal() -> io::Result<()> {
    Ok(())
}

/// As in Linux' `asm-generic/fcntl.h`; libc has it for some targets only.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Takes a lease and gives it back.
#[cfg(target_os = "linux")]
fn lease(file: &File) -> io::Result<()> {
    // Who opens the file in between waits for that, and we are told: by a signal that is ignored where nobody wants it, and not by
    // SIGIO, which would end us.
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

    // SAFETY: the descriptor is open as long as `file` is borrowed, and these commands take an integer and touch no memory of ours.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps every descriptor that is open now, but for stdin, stdout and stderr, from the programs that this process starts. This process
/// may go on using them.
pub fn keep_from_children() {
    let listed = std::fs::read_dir("/dev/fd").map(|entries| {
        let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        entries.filter_map(number).collect()
    });
    // Where they cannot be listed, those that there usually are.
    let descriptors: Vec<libc::c_int> = listed.unwrap_or_else(|_| (0..=MANY).collect());
    for descriptor in descriptors.into_iter().filter(|&descriptor| descriptor > libc::STDERR_FILENO) {
        close_on_exec(descriptor);
    }
}

/// More descriptors than a shell gives to a program.
const MANY: libc::c_int = 1023;

#[allow(unsafe_code)]
fn close_on_exec(descriptor: libc::c_int) {
    // SAFETY: the command takes an integer and touches no memory of ours. It fails where no such descriptor is open, and closes none:
    // whoever uses it in this process does not notice.
    let _not_open = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn children_get_stdin_stdout_and_stderr_alone() {
        use std::{
            os::fd::AsRawFd,
            process::{Command, Stdio},
        };

        let file = tempfile::tempfile().unwrap();
        // The standard library opens every file so that children do not get it.
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

    #[cfg(target_os = "linux")]
    #[test]
    fn whoever_has_it_open_is_noticed_and_may_come_again() {
        use std::{fs::File, os::fd::AsRawFd, process::Command};

        use super::is_alone;

        let file = tempfile::tempfile().unwrap();
        let again = |write: bool| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().read(true).write(write).open(path).unwrap()
        };
        assert!(is_alone(&file));
        for write in [true, false] {
            let other = again(write);
            assert!(!is_alone(&file), "opened again, to write: {write}");
            drop(other);
            assert!(is_alone(&file));
        }
        let mut child =
            Command::new("cat").stdin(std::process::Stdio::piped()).stdout(again(true)).spawn().unwrap();
        assert!(!is_alone(&file), "a child has it");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_alone(&file));
    }
}
