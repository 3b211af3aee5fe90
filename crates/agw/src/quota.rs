//! How much of the disk the output of a job may take. A file has no bound of its own, so it is
//! looked at as often as a program that writes as fast as it can makes necessary.

use std::time::Duration;

/// The bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Most bytes of the spool that a job may take.
    pub(crate) of_job: u64,
    /// Bytes of the spool's disk that are to stay free, or a tenth of the disk where that is less.
    pub(crate) reserve: u64,
}

/// What is left of the spool's disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

/// The result of a look at a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may go on, and is looked at again after this time.
    Fits(Duration),
    /// It has to end. The text says why, and what to do.
    Exceeds(String),
}

/// Bytes a second that no program writes faster than.
const FASTEST: u64 = 4 << 30;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// The same where the job has written nothing yet, which it may do for long on a disk that others
/// have filled.
const SHORTEST_WAIT_OF_EMPTY: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Quota {
    /// Judges a job that takes `used` bytes of the spool.
    pub(crate) fn judge(&self, used: u64, room: Room) -> Verdict {
        if used > self.of_job {
            let most = self.of_job;
            return Verdict::Exceeds(format!(
                "its output takes {used} bytes of the spool, and a job may take {most}: write less, or raise --spool-quota of agw"
            ));
        }
        let reserve = self.reserve.min(room.total / 10);
        // While little is free, jobs with little output go on: they are not what fills the disk.
        if room.free < reserve && used > room.free {
            return Verdict::Exceeds(format!(
                "its output takes {used} bytes, and the disk of the spool has only {} left: write less, or choose another --spool-dir of agw",
                room.free
            ));
        }
        let left = (self.of_job - used).min(room.free.saturating_sub(reserve));
        // Half of the time that it takes at least to write what is left.
        let wait = Duration::from_micros(left / (2 * FASTEST / 1_000_000));
        let shortest = if used == 0 { SHORTEST_WAIT_OF_EMPTY } else { SHORTEST_WAIT };
        Verdict::Fits(wait.clamp(shortest, LONGEST_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_WAIT, Quota, Room, SHORTEST_WAIT, Verdict};

    const MB: u64 = 1_000_000;
    const QUOTA: Quota = Quota { of_job: 16_000 * MB, reserve: 1_000 * MB };

    fn wait(used: u64, free: u64, total: u64) -> Option<std::time::Duration> {
        match QUOTA.judge(used, Room { free, total }) {
            Verdict::Fits(wait) => Some(wait),
            Verdict::Exceeds(_) => None,
        }
    }

    #[test]
    fn a_job_ends_that_takes_more_than_it_may() {
        assert_eq!(wait(16_000 * MB, 900_000 * MB, 999_000 * MB), Some(SHORTEST_WAIT));
        assert_eq!(wait(16_001 * MB, 900_000 * MB, 999_000 * MB), None);
    }

    #[test]
    fn who_fills_the_disk_ends_and_who_writes_little_goes_on() {
        assert_eq!(wait(9_000 * MB, 900 * MB, 10_000 * MB), None);
        assert!(wait(100 * MB, 900 * MB, 10_000 * MB).is_some());
        assert!(wait(0, 0, 10_000 * MB).is_some(), "a disk that others have filled");
        assert!(wait(50 * MB, 14 * MB, 64 * MB).is_some(), "of a small disk less has to stay free");
        assert_eq!(wait(58 * MB, 6 * MB, 64 * MB), None);
    }

    #[test]
    fn the_less_is_left_the_sooner_it_is_looked_again() {
        assert!(wait(0, 500_000 * MB, 999_000 * MB).unwrap() > LONGEST_WAIT / 2);
        let small = wait(0, 64 * MB, 64 * MB).unwrap();
        assert!(small < std::time::Duration::from_millis(10), "{small:?}");
        assert!(wait(30 * MB, 34 * MB, 64 * MB).unwrap() < small);
    }
}
