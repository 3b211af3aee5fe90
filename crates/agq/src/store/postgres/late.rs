//! Late writes, which need locks that another session of the database holds. The writer retries
//! late writes one by one, and no other write waits for them.

use std::time::{Duration, Instant};

use agenix_protocol::ids::JobId;

use super::inbox::{Work, Write};
use crate::store::StoreError;

/// Interval at which late writes are retried.
const PAUSE: Duration = Duration::from_millis(100);

/// Late writes, each with the time since which it waits.
#[derive(Default)]
pub(super) struct Late {
    waiting: Vec<(Write, Instant)>,
    tried_at: Option<Instant>,
}

impl Late {
    pub(super) fn put(&mut self, write: Write, since: Instant) {
        self.waiting.push((write, since));
    }

    /// Keeps those of `writes` that are about jobs of earlier late writes, and returns the others,
    /// which the writer then does.
    pub(super) fn divert(&mut self, writes: Vec<Write>) -> Vec<Write> {
        if self.waiting.is_empty() {
            return writes;
        }
        let (late, others) = writes.into_iter().partition(|write| self.is_after_another(write));
        let late: Vec<Write> = late;
        late.into_iter().for_each(|write| self.put(write, Instant::now()));
        others
    }

    /// Returns whether an earlier late write is about the same job.
    pub(super) fn is_after_another(&self, write: &Write) -> bool {
        let job = job_of(write);
        job.is_some() && self.waiting.iter().any(|(earlier, _)| job_of(earlier) == job)
    }

    /// Returns the maximum time to wait for other writes; `None` means no bound.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(PAUSE)
    }

    /// Returns the late writes if a retry is due. The writer puts back the writes that it cannot
    /// do.
    pub(super) fn due(&mut self) -> Vec<(Write, Instant)> {
        if self.tried_at.is_some_and(|at| at.elapsed() < PAUSE) || self.waiting.is_empty() {
            return Vec::new();
        }
        self.tried_at = Some(Instant::now());
        std::mem::take(&mut self.waiting)
    }

    /// Refuses all late writes, because no more writes come.
    pub(super) fn give_up(&mut self) {
        for (write, _) in self.waiting.drain(..) {
            let text = "another session of the database has locked what this is about, and agq stops";
            write.answer(Err(StoreError(text.into())));
        }
    }
}

fn job_of(write: &Write) -> Option<&JobId> {
    match &write.work {
        Work::Decide(deciding) => Some(&deciding.decision.job_id),
        _ => None,
    }
}
