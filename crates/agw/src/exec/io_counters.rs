//! Bytes that a process and the children that it waited for have read and written:
//! `/proc/PID/io` (proc_pid_io(5)).

use rustix::process::Pid;

/// Number of bytes that system calls such as read(2) and write(2) have transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferredBytes {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

#[cfg(target_os = "linux")]
pub(crate) use linux::IoCounters;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::IoCounters;

#[cfg(target_os = "linux")]
mod linux {
    use std::{fs::File, os::unix::fs::FileExt};

    use super::{Pid, TransferredBytes};

    /// Maximum size of the file, which has a few short lines.
    const MAX_BYTES: usize = 1024;

    /// Open counters of a process, which can be read until the process is reaped.
    pub(crate) struct IoCounters(File);

    impl IoCounters {
        /// Opens the counters of the child `pid`, which is not reaped. An unprivileged worker can
        /// open them only while the child runs, because the file of an exited process is root's.
        pub(crate) fn of(pid: Pid) -> Option<Self> {
            File::open(format!("/proc/{}/io", pid.as_raw_pid())).ok().map(Self)
        }

        /// Returns the counts so far. `None` if the kernel refuses them, as it does for a process
        /// that runs as another user.
        pub(crate) fn read(&self) -> Option<TransferredBytes> {
            let mut text = [0; MAX_BYTES];
            let length = self.0.read_at(&mut text, 0).ok()?;
            parse(std::str::from_utf8(text.get(..length)?).ok()?)
        }
    }

    fn parse(counters: &str) -> Option<TransferredBytes> {
        let value = |name: &str| counters.lines().find_map(|line| line.strip_prefix(name))?.parse().ok();
        Some(TransferredBytes { read: value("rchar: ")?, written: value("wchar: ")? })
    }

    #[cfg(test)]
    mod tests {
        use super::{TransferredBytes, parse};

        #[test]
        fn counts_are_those_of_system_calls_and_not_of_disks() {
            let counters = "rchar: 2017932\nwchar: 2000000\nsyscr: 275\nsyscw: 488\nread_bytes: 4096\n\
                write_bytes: 8192\ncancelled_write_bytes: 0\n";
            assert_eq!(parse(counters), Some(TransferredBytes { read: 2_017_932, written: 2_000_000 }));
            for counters in ["", "rchar: 1\n", "wchar: 1\n", "rchar: x\nwchar: 1\n"] {
                assert_eq!(parse(counters), None, "{counters}");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::{Pid, TransferredBytes};

    /// Counters that do not exist, because `/proc/PID/io` exists on Linux alone.
    pub(crate) struct IoCounters;

    impl IoCounters {
        /// Returns `None`.
        pub(crate) fn of(_pid: Pid) -> Option<Self> {
            None
        }

        /// Returns `None`.
        pub(crate) fn read(&self) -> Option<TransferredBytes> {
            None
        }
    }
}
