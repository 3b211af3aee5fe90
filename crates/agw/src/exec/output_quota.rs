//! Spool quota: the bytes of disk that the output of a job may take. The worker enforces the quota
//! by polling, because a file has no limit of its own. The interval follows from the fastest write
//! speed. An input has a known length, and is checked before it is stored.

use std::time::Duration;

/// Limits of the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Maximum number of bytes of the spool that one job may take.
    pub(crate) of_job: u64,
    /// Bytes to keep free on the disk of the spool, or a tenth of the disk if that is less.
    pub(crate) reserve: u64,
    /// Maximum number of bytes that the tasks of the job write, if a budget bounds them.
    pub(crate) of_budget: Option<u64>,
}

/// Free and total bytes of the disk of the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl DiskSpace {
    /// Space of a disk without readable statistics.
    pub(crate) const UNLIMITED: Self = Self { free: u64::MAX, total: u64::MAX };
}

/// Result of one check of the quota.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QuotaCheck {
    /// The job may continue, and the next check is due after this time.
    Fits(Duration),
    /// The job must end. The text is the reason and the advice for the user.
    Exceeds(String),
}

/// Maximum speed in bytes per second at which a program writes.
const MAX_WRITE_SPEED: u64 = 4 << 30;
const MIN_WAIT: Duration = Duration::from_millis(1);
/// Minimum interval without output: other programs may fill the disk of a long job.
const MIN_WAIT_OF_EMPTY: Duration = Duration::from_millis(5);
const MAX_WAIT: Duration = Duration::from_secs(2);

impl Quota {
    /// Judges a job whose output takes `used` bytes of the spool.
    pub(crate) fn check(&self, used: u64, room: DiskSpace) -> QuotaCheck {
        if used > self.of_job {
            let most = self.of_job;
            return QuotaCheck::Exceeds(format!(
                "its output takes {used} bytes of the spool, and a job may take {most}: write less, or raise --spool-quota of agw"
            ));
        }
        let reserve = self.reserve_on(room);
        // A job with little output continues, because its output is not what fills the disk.
        if room.free < reserve && used > room.free {
            return QuotaCheck::Exceeds(format!(
                "its output takes {used} bytes, and the disk of the spool has only {} left: write less, or choose another --spool-dir of agw",
                room.free
            ));
        }
        // Below the reserve, the job is ended only when its output is more than the free bytes.
        let until_full = room.free.saturating_sub(reserve).max(room.free.saturating_sub(used) / 2);
        let left = (self.of_job - used).min(until_full);
        QuotaCheck::Fits(wait_for(left, used))
    }

    /// Returns true if an input of `bytes` may be stored: it leaves the reserve free, or at least
    /// as much as it takes, because such an input is not what fills the disk.
    pub(crate) fn admits_input(&self, bytes: u64, room: DiskSpace) -> bool {
        let least = self.reserve_on(room).min(bytes);
        room.free.checked_sub(bytes).is_some_and(|left| left >= least)
    }

    /// Returns the number of bytes to keep free on the disk with this `room`.
    pub(crate) fn reserve_on(&self, room: DiskSpace) -> u64 {
        self.reserve.min(room.total / 10)
    }

    /// Judges a job by the number of bytes that its tasks have written.
    pub(crate) fn check_budget(&self, written: impl FnOnce() -> u64) -> QuotaCheck {
        let Some(most) = self.of_budget else { return QuotaCheck::Fits(MAX_WAIT) };
        let written = written();
        if written > most {
            return QuotaCheck::Exceeds(format!(
                "its output has {written} bytes, and a job of this budget may write {most}: write less, or ask for a \
                 larger output_bytes"
            ));
        }
        QuotaCheck::Fits(wait_for(most - written, written))
    }
}

/// Returns half of the shortest time in which a program can write the `left` bytes, if it has
/// written `used` bytes.
fn wait_for(left: u64, used: u64) -> Duration {
    let wait = Duration::from_micros(left / (2 * MAX_WRITE_SPEED / 1_000_000));
    let min_wait = if used == 0 { MIN_WAIT_OF_EMPTY } else { MIN_WAIT };
    wait.clamp(min_wait, MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::{DiskSpace, MAX_WAIT, MIN_WAIT, Quota, QuotaCheck};

    const MB: u64 = 1_000_000;
    const QUOTA: Quota = Quota { of_job: 16_000 * MB, reserve: 1_000 * MB, of_budget: None };

    fn wait(used: u64, free: u64, total: u64) -> Option<std::time::Duration> {
        match QUOTA.check(used, DiskSpace { free, total }) {
            QuotaCheck::Fits(wait) => Some(wait),
            QuotaCheck::Exceeds(_) => None,
        }
    }

    #[test]
    fn quota_ends_a_job_above_its_limit() {
        assert_eq!(wait(16_000 * MB, 900_000 * MB, 999_000 * MB), Some(MIN_WAIT));
        assert_eq!(wait(16_001 * MB, 900_000 * MB, 999_000 * MB), None);
    }

    #[test]
    fn quota_ends_a_job_that_fills_the_disk_and_spares_small_output() {
        assert_eq!(wait(9_000 * MB, 900 * MB, 10_000 * MB), None);
        assert!(wait(100 * MB, 900 * MB, 10_000 * MB).is_some());
        assert!(wait(0, 0, 10_000 * MB).is_some(), "a disk that others have filled");
        assert!(wait(50 * MB, 14 * MB, 64 * MB).is_some(), "of a small disk less has to stay free");
        assert_eq!(wait(58 * MB, 6 * MB, 64 * MB), None);
    }

    #[test]
    fn input_leaves_the_reserve_free_or_is_small() {
        let admits = |bytes, free| QUOTA.admits_input(bytes, DiskSpace { free, total: 20_000 * MB });
        assert!(admits(9_000 * MB, 10_000 * MB) && !admits(9_001 * MB, 10_000 * MB));
        assert!(admits(400 * MB, 800 * MB) && !admits(401 * MB, 800 * MB), "others have filled the disk");
        assert!(admits(0, 0) && !admits(1, 1) && !admits(2, 1));
    }

    #[test]
    fn quota_is_checked_more_often_as_space_shrinks() {
        assert!(wait(0, 500_000 * MB, 999_000 * MB).unwrap() > MAX_WAIT / 2);
        let small = wait(0, 64 * MB, 64 * MB).unwrap();
        assert!(small < std::time::Duration::from_millis(10), "{small:?}");
        assert!(wait(30 * MB, 34 * MB, 64 * MB).unwrap() < small);
    }

    #[test]
    fn budget_ends_a_job_that_writes_more_than_its_share() {
        let bounded = Quota { of_budget: Some(1_000), ..QUOTA };
        assert_eq!(QUOTA.check_budget(|| u64::MAX), QuotaCheck::Fits(MAX_WAIT));
        assert_eq!(bounded.check_budget(|| 1_000), QuotaCheck::Fits(MIN_WAIT));
        assert!(
            matches!(bounded.check_budget(|| 1_001), QuotaCheck::Exceeds(text) if text.contains("may write 1000"))
        );
    }
}
