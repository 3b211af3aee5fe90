//! Writes that need what another session of the database has locked. They are tried again one by
//! one, and nobody else waits for them.

use std::time::{Duration, Instant};

use agenix_protocol::ids::JobId;

use super::inbox::{Work, Write};
use crate::store::StoreError;

/// How often they are tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Writes with the times since when they wait.
#[derive(Default)]
pub(super) struct Late {
    waiting: Vec<(Write, Instant)>,
    tried_at: Option<Instant>,
}

impl Late {
    pub(super) fn put(&mut self, write: Write, since: Instant) {
        self.waiting.push((write, since));
    }

    /// Keeps those writes of some that are about jobs of which earlier writes wait. The others are
    /// done.
    pub(super) fn divert(&mut self, writes: Vec<Write>) -> Vec<Write> {
        if self.waiting.is_empty() {
            return writes;
        }
        let (late, others) = writes.into_iter().partition(|write| self.is_after_another(write));
        let late: Vec<Write> = late;
        late.into_iter().for_each(|write| self.put(write, Instant::now()));
        others
    }

    /// Whether an earlier write about the same job waits.
    pub(super) fn is_after_another(&self, write: &Write) -> bool {
        let job = job_of(write);
        job.is_some() && self.waiting.iter().any(|(earlier, _)| job_of(earlier) == job)
    }

    /// How long something else may be waited for; `None` for ever.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(PAUSE)
    }

    /// What waits, where it is to be tried again. What cannot be done is put back.
    pub(super) fn due(&mut self) -> Vec<(Write, Instant)> {
        if self.tried_at.is_some_and(|at| at.elapsed() < PAUSE) || self.waiting.is_empty() {
            return Vec::new();
        }
        self.tried_at = Some(Instant::now());
        std::mem::take(&mut self.waiting)
    }

    /// Answers what waits: nothing comes any more.
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
