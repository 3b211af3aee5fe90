//! Whether anybody else has a file open. Linux knows: it gives a lease (fcntl(2), `F_SETLEASE`) for writing only to whoever alone has
//! the file open. Elsewhere nobody can say, and the answer is no.
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

#[cfg(test)]
mod tests {
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
