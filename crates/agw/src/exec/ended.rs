//! End of a child process.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use agenix_protocol::documents::ResourceUse;
use agenix_sys::Reaped;

use crate::exec::io_counters::TransferredBytes;

/// Exit status, run time and use of the machine of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
    /// True if the idle timeout ended the child. `timed_out` is true then, too.
    pub(crate) idle_timed_out: bool,
    /// True if the kernel killed the child for lack of memory.
    pub(crate) out_of_memory: bool,
    pub(crate) after: Duration,
    pub(crate) resources: ResourceUse,
}

impl Ended {
    /// Returns the end of a child that neither its timeout nor a lack of memory ended.
    pub(crate) fn of(reaped: &Reaped, bytes: Option<TransferredBytes>, after: Duration) -> Self {
        let resources = ResourceUse {
            peak_memory_bytes: reaped.peak_memory_bytes,
            user_ms: Some(millis(reaped.user)),
            system_ms: Some(millis(reaped.system)),
            read_bytes: bytes.map(|bytes| bytes.read),
            written_bytes: bytes.map(|bytes| bytes.written),
        };
        Self {
            status: reaped.status,
            timed_out: false,
            idle_timed_out: false,
            out_of_memory: false,
            after,
            resources,
        }
    }

    /// Returns the exit code as a shell does: 128 plus the signal number after a signal.
    pub(crate) fn exit_code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// Returns the signal that ended the child.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Returns the run time in milliseconds.
    pub(crate) fn duration_ms(&self) -> u64 {
        millis(self.after)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

    use agenix_protocol::documents::ResourceUse;
    use agenix_sys::Reaped;

    use super::{Ended, TransferredBytes};

    fn reaped(status: i32) -> Reaped {
        let (user, system) = (Duration::from_micros(2_999), Duration::ZERO);
        Reaped { status: ExitStatus::from_raw(status), peak_memory_bytes: Some(7), user, system }
    }

    #[test]
    fn end_has_the_exit_code_of_a_shell_and_whole_milliseconds() {
        let bytes = Some(TransferredBytes { read: 5, written: 4 });
        let ended = Ended::of(&reaped(3 << 8), bytes, Duration::from_micros(12_500));
        assert_eq!((ended.exit_code(), ended.signal(), ended.duration_ms()), (3, None, 12));
        let resources = ResourceUse {
            peak_memory_bytes: Some(7),
            user_ms: Some(2),
            system_ms: Some(0),
            read_bytes: Some(5),
            written_bytes: Some(4),
        };
        assert_eq!(ended.resources, resources);
        let killed = Ended::of(&reaped(9), None, Duration::ZERO);
        assert_eq!((killed.exit_code(), killed.signal()), (137, Some(9)));
    }
}
