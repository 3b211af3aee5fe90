//! State of a collector: jobs whose results it has not taken, and counts of those that it has.

use std::collections::BTreeMap;

use agenix_protocol::ids::JobId;
use tokio::time::Instant;

use crate::map::input::MapInput;

/// Counts of jobs whose results agx has taken, and of inputs without a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MapCounts {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Number of ended jobs whose results agq has removed.
    pub(crate) lost: u64,
    /// Number of inputs that no job can have.
    pub(crate) unfit: u64,
    /// True if `--halt` has ended the map early.
    pub(crate) is_halted: bool,
    /// True if agq has had the action.
    pub(crate) has_begun: bool,
}

impl MapCounts {
    pub(super) fn taken(&self) -> u64 {
        self.completed + self.failed + self.cancelled + self.lost
    }
}

/// Job whose result agx has not taken yet.
pub(super) struct PendingJob {
    /// `None` until agx has asked agq for the id.
    pub(super) job_id: Option<JobId>,
    pub(super) input: MapInput,
    /// Number of bytes that count as ahead.
    pub(super) bytes: usize,
    /// `None` if the output of the job does not wait at agq for its turn.
    pub(super) waiting: Option<WaitingOutput>,
}

/// Output of an ended job that waits at agq for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingOutput {
    pub(super) bytes: u64,
    /// Number of results that agx had taken when the output began to wait.
    pub(super) since: u64,
}

/// Ended jobs whose outputs wait at agq for their turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitingAtAgq {
    pub(super) jobs: u64,
    pub(super) bytes: u64,
}

/// Progress of a collector.
#[derive(Default)]
pub(crate) struct CollectorState {
    /// Jobs whose results are not taken, by their index in the action.
    pub(super) left: BTreeMap<u64, PendingJob>,
    pub(super) waiting: WaitingAtAgq,
    /// Number of jobs that agq has, according to the received messages.
    pub(super) known: u64,
    /// Number of jobs whose ids agx has asked for.
    pub(super) learned: u64,
    /// True if no further input is sent.
    pub(super) is_all_sent: bool,
    pub(super) collected: MapCounts,
    /// Estimated number of bytes of a result, from the latest results.
    pub(super) result_bytes: usize,
    /// Times of the decision to start no job, and of the latest request to give up unstarted jobs.
    pub(super) ending_since: Option<Instant>,
    pub(super) asked_at: Option<Instant>,
    pub(super) is_cancelled: bool,
    /// True if agq gives out no more jobs.
    pub(super) is_drained: bool,
}

impl WaitingAtAgq {
    /// Removes a job from the counts, if it is among them.
    pub(super) fn remove(&mut self, job: &mut PendingJob) {
        if let Some(waiting) = job.waiting.take() {
            self.jobs -= 1;
            self.bytes -= waiting.bytes;
        }
    }
}

impl CollectorState {
    /// Lets the output of job `at` wait at agq.
    pub(super) fn wait(&mut self, at: u64, bytes: u64) {
        let Some(left) = self.left.get_mut(&at) else { return };
        let since = left.waiting.map_or(self.collected.taken(), |waiting| waiting.since);
        self.waiting.remove(left);
        left.waiting = Some(WaitingOutput { bytes, since });
        self.waiting.jobs += 1;
        self.waiting.bytes += bytes;
    }

    /// Returns the jobs whose outputs have waited while agx took more than `most` results.
    pub(super) fn waiting_long(&self, most: u64) -> Vec<(u64, JobId)> {
        if self.waiting.jobs == 0 {
            return Vec::new();
        }
        let long = self.left.iter().filter(|(at, _)| self.has_waited_long(**at, most));
        long.filter_map(|(&at, left)| Some((at, left.job_id.clone()?))).collect()
    }

    /// Returns true if the output of job `at` has waited while agx took more than `most` results.
    pub(super) fn has_waited_long(&self, at: u64, most: u64) -> bool {
        let waiting = self.left.get(&at).and_then(|left| left.waiting);
        waiting.is_some_and(|waiting| self.collected.taken() - waiting.since > most)
    }

    /// Lets the next poll take all outputs, whether or not it is their turn.
    pub(super) fn wait_no_more(&mut self) {
        self.left.values_mut().for_each(|left| self.waiting.remove(left));
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectorState, JobId, MapInput, PendingJob};

    #[test]
    fn collector_knows_the_outputs_that_have_waited_long() {
        let mut state = CollectorState::default();
        for at in 0..3 {
            let input = MapInput { seq: at + 1, args: Vec::new(), block: None };
            state
                .left
                .insert(at, PendingJob { job_id: JobId::new("j").ok(), input, bytes: 0, waiting: None });
        }
        let long = |state: &CollectorState, most| {
            state.waiting_long(most).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
        };
        state.wait(1, 10);
        state.collected.completed = 5;
        state.wait(2, 20);
        assert!(long(&state, 5).is_empty(), "at the bound");
        state.collected.failed = 1;
        assert_eq!(long(&state, 5), [1], "one result beyond it");
        state.wait(1, 10);
        assert_eq!(long(&state, 5), [1], "the same wait goes on");
        assert_eq!((state.waiting.jobs, state.waiting.bytes), (2, 30));
        state.wait_no_more();
        assert!(long(&state, 0).is_empty());
    }
}
