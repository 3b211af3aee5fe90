//! Halt policies: when an action halts, and what is left to do for a halted action.
//!
//! An action with a policy is armed. The report that meets the policy halts the action. From then
//! on the action accepts no inputs, and no job of it is claimed. The waiting jobs of the action are
//! cancelled, and workers give up the jobs that they have claimed and not started. After a grace
//! period, the started jobs of a `now` policy are cancelled. When no job is left, the halt is
//! complete.

use agenix_protocol::{
    documents::{Halt, HaltCondition, HaltThreshold, HaltedStatus, Status},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{Action, JobCounts};

/// Minimum number of ended jobs at which a percentage can be met, as in GNU Parallel.
const MIN_ENDED_FOR_PERCENT: u64 = 3;
/// Milliseconds from a halt to the cancellation of started jobs: results may be on their way.
pub const GRACE_MS: u64 = 500;

/// Halt of an action: its time, and the ended jobs at that time. Durable and positional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// Time at which the policy was met.
    pub at: Timestamp,
    /// Number of completed jobs.
    pub completed: u64,
    /// Number of failed and dead jobs.
    pub failed: u64,
    /// Number of all jobs.
    pub total: u64,
}

/// Returns true if `completed` completed and `failed` failed jobs of `total` jobs meet `halt`.
pub fn is_met(halt: Halt, completed: u64, failed: u64, total: u64) -> bool {
    let count = match halt.counted {
        HaltCondition::Fail => failed,
        HaltCondition::Success => completed,
        HaltCondition::Done => completed + failed,
    };
    match halt.bound {
        HaltThreshold::Count(bound) => count >= bound,
        HaltThreshold::Percent(percent) => {
            completed + failed >= MIN_ENDED_FOR_PERCENT
                && count.saturating_mul(100) >= total.saturating_mul(percent)
        }
    }
}

/// Returns the halted action if the counts meet its policy for the first time. A percentage waits
/// for the last input of a submission that is stored in chunks, because it counts all jobs.
pub fn halted(action: &Action, counts: &JobCounts, now: Timestamp) -> Option<Action> {
    let halt = action.halt.filter(|_| action.halted.is_none())?;
    let is_arriving = action.is_open && !action.wishes.open;
    if is_arriving && matches!(halt.bound, HaltThreshold::Percent(_)) {
        return None;
    }
    let count = |status: Status| counts.jobs[status as usize];
    let (completed, failed) = (count(Status::Completed), count(Status::Failed) + count(Status::Dead));
    is_met(halt, completed, failed, action.total_jobs).then(|| Action {
        is_open: false,
        halted: Some(Halted { at: now, completed, failed, total: action.total_jobs }),
        ..action.clone()
    })
}

/// Work that is left for a halted action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingWork {
    /// No work, because no job waits or runs.
    Nothing,
    /// Wait for the ends of started jobs.
    Wait,
    /// Cancel waiting jobs, and ask workers to give up unstarted jobs.
    Withdraw {
        /// True if started jobs are cancelled, too: after the grace period of a `now` policy.
        cancels: bool,
    },
}

/// Returns the work that is left at `now` for a halted action.
pub fn remaining_work(action: &Action, counts: &JobCounts, now: Timestamp) -> RemainingWork {
    let count = |status: Status| counts.jobs[status as usize];
    let (pending, running) = (count(Status::Pending), count(Status::Running));
    let (Some(halt), Some(halted)) = (action.halt, action.halted) else { return RemainingWork::Nothing };
    if pending + running == 0 {
        return RemainingWork::Nothing;
    }
    // The clock may have been set back since the halt.
    let is_over = now < halted.at || now.ms_since(halted.at) >= GRACE_MS;
    let cancels = halt.is_now && is_over;
    let is_all_started = pending == 0 && running <= counts.started;
    if is_all_started && !halt.is_now { RemainingWork::Wait } else { RemainingWork::Withdraw { cancels } }
}

/// Returns the halt as `ACTION.STATUS` shows it.
pub fn status(halt: Halt, halted: &Halted) -> HaltedStatus {
    let Halted { at, completed, failed, total } = *halted;
    let reason = match halt.counted {
        HaltCondition::Fail => format!("{halt}: {failed} of {total} jobs failed"),
        HaltCondition::Success => format!("{halt}: {completed} of {total} jobs completed"),
        HaltCondition::Done => format!("{halt}: {} of {total} jobs ended", completed + failed),
    };
    HaltedStatus { at, reason }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{Action, JobCounts};
    use super::{GRACE_MS, RemainingWork, halted, is_met, remaining_work, status};

    fn action(halt: &str, total_jobs: u64) -> Action {
        let (action_id, plan_id) = ("a".parse().unwrap(), "p".parse().unwrap());
        let halt = Some(halt.parse().unwrap());
        Action { total_jobs, is_open: true, halt, ..Action::new(action_id, plan_id, Timestamp(1)) }
    }

    fn counts(jobs: [u64; 6], started: u64) -> JobCounts {
        JobCounts { jobs, last_ended_at: None, started }
    }

    #[test]
    fn halt_policy_is_met_at_its_threshold_and_not_one_before() {
        let met =
            |text: &str, completed, failed, total| is_met(text.parse().unwrap(), completed, failed, total);
        assert!(met("now,fail=2", 5, 2, 10) && !met("now,fail=2", 5, 1, 10));
        assert!(met("soon,success=1", 1, 0, 10) && !met("soon,success=1", 0, 9, 10));
        assert!(met("soon,done=3", 2, 1, 10) && !met("soon,done=3", 2, 0, 10));
        assert!(met("soon,fail=20%", 1, 2, 10) && !met("soon,fail=20%", 8, 1, 10));
        assert!(!met("soon,fail=20%", 0, 2, 2), "too few to tell");
        assert!(met("soon,success=50%", 5, 0, 10) && !met("soon,success=50%", 4, 6, 10));
        assert!(met("soon,done=100%", 4, 0, 4) && !met("soon,done=100%", 3, 0, 4));
    }

    #[test]
    fn halted_action_halts_once_and_accepts_no_inputs() {
        let armed = action("soon,fail=2", 10);
        assert_eq!(halted(&armed, &counts([7, 1, 1, 1, 0, 0], 0), Timestamp(5)), None);
        let halt = halted(&armed, &counts([6, 1, 1, 1, 1, 0], 0), Timestamp(5)).unwrap();
        assert!(!halt.is_open, "dead jobs count as failed");
        let shown = status(halt.halt.unwrap(), &halt.halted.unwrap());
        assert_eq!((shown.at, shown.reason.as_str()), (Timestamp(5), "soon,fail=2: 2 of 10 jobs failed"));
        assert_eq!(halted(&halt, &counts([5, 0, 1, 4, 0, 0], 0), Timestamp(6)), None);
        let without = Action { halt: None, ..armed };
        assert_eq!(halted(&without, &counts([0, 0, 0, 10, 0, 0], 0), Timestamp(5)), None);
    }

    #[test]
    fn halt_percentage_waits_for_the_last_chunk_of_a_submission() {
        let (ended, at) = (counts([0, 0, 2, 2, 0, 0], 0), Timestamp(5));
        let arriving = action("soon,fail=10%", 4);
        assert_eq!(halted(&arriving, &ended, at), None);
        let whole = Action { is_open: false, ..arriving.clone() };
        assert!(halted(&whole, &ended, at).is_some());
        let mut open = arriving;
        open.wishes.open = true;
        assert!(halted(&open, &ended, at).is_some(), "an open action has the jobs that it has by then");
        assert!(halted(&action("soon,fail=2", 4), &ended, at).is_some(), "a number counts no other jobs");
    }

    #[test]
    fn halt_policy_ignores_cancelled_jobs() {
        assert_eq!(halted(&action("soon,done=1", 3), &counts([0, 0, 0, 0, 0, 3], 0), Timestamp(5)), None);
    }

    #[test]
    fn remaining_work_follows_from_policy_and_counts() {
        let of = |text: &str, jobs, started, at: u64| {
            let halt = action(text, 10);
            let halt = Action {
                halted: halted(&halt, &counts([0, 0, 0, 9, 0, 0], 0), Timestamp(1000)).unwrap().halted,
                ..halt
            };
            remaining_work(&halt, &counts(jobs, started), Timestamp(at))
        };
        let withdraw = |cancels| RemainingWork::Withdraw { cancels };
        assert_eq!(of("soon,fail=1", [3, 1, 0, 1, 0, 0], 1, 1000), withdraw(false));
        assert_eq!(of("soon,fail=1", [0, 2, 0, 1, 0, 0], 1, 9000), withdraw(false), "one may be unstarted");
        assert_eq!(of("soon,fail=1", [0, 1, 0, 1, 0, 0], 1, 9000), RemainingWork::Wait);
        assert_eq!(of("soon,fail=1", [0, 0, 0, 1, 0, 9], 0, 1000), RemainingWork::Nothing);
        assert_eq!(of("now,fail=1", [0, 1, 0, 1, 0, 0], 1, 1000 + GRACE_MS - 1), withdraw(false));
        assert_eq!(of("now,fail=1", [0, 1, 0, 1, 0, 0], 1, 1000 + GRACE_MS), withdraw(true));
        assert_eq!(of("now,fail=1", [0, 1, 0, 1, 0, 0], 1, 999), withdraw(true), "the clock was set back");
        assert_eq!(of("now,fail=1", [0, 0, 0, 1, 0, 0], 0, 999), RemainingWork::Nothing);
    }
}
