//! Late writes, which need locks that another session of the database holds. The writer retries
//! late writes one by one, and no other write waits for them.

use std::time::{Duration, Instant};

use crate::store::{
    StoreError,
    postgres::writer::{queue::PgWrite, subject::Subjects},
};

/// Interval at which late writes are retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct LateWrite {
    pub(crate) write: PgWrite,
    pub(crate) subjects: Subjects,
    pub(crate) since: Instant,
}

/// Late writes, in their order.
#[derive(Default)]
pub(crate) struct Late {
    waiting: Vec<LateWrite>,
    tried_at: Option<Instant>,
}

impl Late {
    /// Keeps writes that are late from now on.
    pub(crate) fn put(&mut self, writes: Vec<PgWrite>) {
        let since = Instant::now();
        for write in writes {
            let subjects = write.subjects();
            self.waiting.push(LateWrite { write, subjects, since });
        }
    }

    pub(crate) fn put_back(&mut self, late: LateWrite) {
        self.waiting.push(late);
    }

    /// Keeps those of `writes` that depend on earlier late writes, and returns the others.
    pub(crate) fn divert(&mut self, writes: Vec<PgWrite>) -> Vec<PgWrite> {
        if self.waiting.is_empty() {
            return writes;
        }
        let mut others = Vec::new();
        for write in writes {
            if self.is_after_another(&write.subjects()) {
                self.put(vec![write]);
            } else {
                others.push(write);
            }
        }
        others
    }

    /// Returns true if a write on `subjects` depends on an earlier late write.
    pub(crate) fn is_after_another(&self, subjects: &Subjects) -> bool {
        self.waiting.iter().any(|earlier| subjects.depend_on(&earlier.subjects))
    }

    /// Returns the maximum time to wait for other writes; `None` means no bound.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(RETRY_INTERVAL)
    }

    /// Returns the late writes if a retry is due. The writer puts back the writes that it cannot
    /// do.
    pub(crate) fn due(&mut self) -> Vec<LateWrite> {
        if self.tried_at.is_some_and(|at| at.elapsed() < RETRY_INTERVAL) || self.waiting.is_empty() {
            return Vec::new();
        }
        self.tried_at = Some(Instant::now());
        std::mem::take(&mut self.waiting)
    }

    /// Refuses all late writes, because the queue is closed.
    pub(crate) fn give_up(&mut self) {
        for late in self.waiting.drain(..) {
            let text = "another session of the database holds a lock that this command needs, and agq stops";
            late.write.answer(Err(StoreError(text.into())));
        }
    }
}
