//! What happened lately, for whoever asks (ojs-events): kept in memory, the oldest is forgotten first, and a start begins anew.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::job::{Job, State};

/// Most events that are remembered.
const MOST: usize = 10_000;

/// Something that happened to a job.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Its place in the order of all events.
    pub(crate) number: u64,
    pub(crate) kind: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) job_id: JobId,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) attempt: u32,
    pub(crate) duration_ms: Option<u64>,
}

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    events: VecDeque<Event>,
    last: u64,
}

impl EventLog {
    /// A job came from one state into another.
    pub(crate) fn note(&self, was: Option<State>, job: &Job, at: Timestamp) {
        let (Some(ojs), Some(kind)) = (&job.ojs, kind_of(was, job)) else { return };
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.last += 1;
        let ended = job.started_at.filter(|_| job.state != State::Active);
        let event = Event {
            number: remembered.last,
            kind,
            at,
            job_id: job.job_id.clone(),
            job_type: ojs.job_type.clone(),
            queue: ojs.queue.clone(),
            attempt: job.shown_attempt(),
            duration_ms: ended.map(|started| at.ms_since(started)),
        };
        if remembered.events.len() >= MOST {
            remembered.events.pop_front();
        }
        remembered.events.push_back(event);
    }

    /// At most `limit` events after a number that are wanted, the oldest first, and whether there are more.
    pub(crate) fn after(
        &self,
        number: u64,
        limit: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> (Vec<Event>, bool) {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = remembered.events.partition_point(|event| event.number <= number);
        let mut found = remembered.events.range(begin..).filter(|event| wanted(event));
        let page: Vec<Event> = found.by_ref().take(limit).cloned().collect();
        (page, found.next().is_some())
    }
}

/// The name of what happened; `None` where that has none.
fn kind_of(was: Option<State>, job: &Job) -> Option<&'static str> {
    if was == Some(job.state) {
        return None;
    }
    match job.state {
        State::Available if was.is_none() || job.attempt == 0 => Some("job.enqueued"),
        State::Available => Some("job.requeued"),
        State::Scheduled => Some("job.scheduled"),
        State::Active => Some("job.started"),
        State::Completed => Some("job.completed"),
        State::Retryable => Some("job.retrying"),
        State::Discarded => Some("job.discarded"),
        State::Cancelled => Some("job.cancelled"),
        State::Staged => None,
    }
}
