//! Ring buffer of the latest events of jobs (ojs-events). The buffer is in memory only, and drops
//! the oldest events first.

use std::{collections::VecDeque, sync::Mutex};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::job::{Job, JobFailure, JobState};
use tokio::sync::watch;

use crate::sync::lock;

const MAX_EVENTS: usize = 10_000;
/// Maximum number of characters of a message in an event. The job has the whole message.
const MAX_MESSAGE: usize = 500;

#[derive(Debug, Clone)]
pub(crate) struct LoggedEvent {
    /// Number of the event. Numbers ascend by one.
    pub(crate) number: u64,
    pub(crate) kind: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) job_id: JobId,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) attempt: u32,
    pub(crate) duration_ms: Option<u64>,
    /// State before the event. `None` if the job is new.
    pub(crate) from: Option<JobState>,
    pub(crate) to: JobState,
    pub(crate) worker_id: Option<String>,
    /// Failure of the attempt, without its details.
    pub(crate) error: Option<JobFailure>,
    pub(crate) next_attempt_at: Option<Timestamp>,
    /// Percentage that the worker reported, and its message.
    pub(crate) progress: Option<(f32, Option<String>)>,
}

#[derive(Debug)]
pub(crate) struct EventLog {
    /// Start of the log, which distinguishes the ids of this start from those of other starts.
    began_at: Timestamp,
    ring: Mutex<EventRing>,
    last: watch::Sender<u64>,
}

/// Place up to which a client has seen the log and the ends of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventLogPlace {
    /// Number of the last event that the client has seen.
    pub(crate) number: u64,
    /// End of the jobs whose final events the client got apart from the log: of all jobs that it
    /// follows and that ended until then.
    pub(crate) ends_until: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct EventRing {
    events: VecDeque<LoggedEvent>,
    last: u64,
}

/// Events for a subscriber that polls the log.
pub(crate) struct NewEvents {
    pub(crate) events: Vec<LoggedEvent>,
    pub(crate) has_more: bool,
    /// Number up to which the subscriber has now seen the log.
    pub(crate) up_to: u64,
    /// Set if events that the subscriber had not seen were dropped.
    pub(crate) has_gap: bool,
}

impl LoggedEvent {
    fn new(number: u64, kind: &'static str, was: Option<JobState>, job: &Job, at: Timestamp) -> Option<Self> {
        let ojs = job.ojs.as_ref()?;
        let short = |text: &str| text.chars().take(MAX_MESSAGE).collect::<String>();
        let ended = job.started_at.filter(|_| job.state != JobState::Active);
        let has_failed = matches!(job.state, JobState::Retryable | JobState::Discarded);
        let failure = ojs.failures.last().filter(|_| has_failed && was == Some(JobState::Active));
        let error = failure.map(|failure| JobFailure {
            message: short(&failure.message),
            kind: short(&failure.kind),
            code: short(&failure.code),
            details: None,
            ..failure.clone()
        });
        let message = ojs.progress.as_ref().and_then(|report| report.message.as_deref()).map(short);
        Some(Self {
            number,
            kind,
            at,
            job_id: job.job_id.clone(),
            job_type: ojs.job_type.clone(),
            queue: ojs.queue.clone(),
            attempt: job.shown_attempt(),
            duration_ms: ended.map(|started| at.ms_since(started)),
            from: was,
            to: job.state,
            worker_id: job.holder.as_deref().map(str::to_owned),
            error,
            next_attempt_at: job.due_at.filter(|_| job.state == JobState::Retryable),
            progress: job.progress_percent.filter(|_| kind == PROGRESS).map(|percent| (percent, message)),
        })
    }

    /// Returns true if no other event of the job follows, unless a user retries the job.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.kind, "job.completed" | "job.discarded" | "job.cancelled")
    }
}

impl EventLog {
    pub(crate) fn new(began_at: Timestamp) -> Self {
        Self { began_at, ring: Mutex::default(), last: watch::Sender::new(0) }
    }

    /// Appends the events of a change of state, or of a progress report.
    pub(crate) fn record(&self, was: Option<JobState>, job: &Job, has_progressed: bool, at: Timestamp) {
        let mut ring = lock(&self.ring);
        for kind in kinds_of(was, job, has_progressed).into_iter().flatten() {
            let Some(event) = LoggedEvent::new(ring.last + 1, kind, was, job, at) else { return };
            ring.last = event.number;
            if ring.events.len() >= MAX_EVENTS {
                ring.events.pop_front();
            }
            ring.events.push_back(event);
        }
        let last = ring.last;
        self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
    }

    /// Returns events for a subscriber that has seen the log up to `number`, the oldest first.
    pub(crate) fn follow(
        &self,
        number: u64,
        limit: usize,
        wanted: impl Fn(&LoggedEvent) -> bool,
    ) -> NewEvents {
        let ring = lock(&self.ring);
        let begin = ring.events.partition_point(|event| event.number <= number);
        let mut found = ring.events.range(begin..).filter(|event| wanted(event));
        let events: Vec<LoggedEvent> = found.by_ref().take(limit).cloned().collect();
        let has_more = found.next().is_some();
        let up_to = events.last().filter(|_| has_more).map_or(ring.last, |event| event.number);
        let has_gap = ring.events.front().is_some_and(|oldest| oldest.number > number + 1);
        NewEvents { events, has_more, up_to, has_gap }
    }

    /// Returns events for a subscriber with the cursor of an earlier answer. The cursor of another
    /// start of agq, or of another node, belongs to another log: the subscriber gets this log from
    /// its beginning, and a gap.
    pub(crate) fn follow_from(
        &self,
        cursor: Option<&str>,
        limit: usize,
        wanted: impl Fn(&LoggedEvent) -> bool,
    ) -> NewEvents {
        let place = cursor.map(|cursor| self.number_of(cursor));
        let new = self.follow(place.flatten().unwrap_or_default(), limit, wanted);
        let has_gap = place.is_some_and(|known| known.is_none() || new.has_gap);
        NewEvents { has_gap, ..new }
    }

    /// Returns the number of the last event, and a receiver of later numbers.
    pub(crate) fn listen(&self) -> (u64, watch::Receiver<u64>) {
        let mut later = self.last.subscribe();
        let last = *later.borrow_and_update();
        (last, later)
    }

    /// Returns the final event of an ended job, for a subscriber that has seen the log up to
    /// `number`. The event has this number, because the id of a later event would hide that event
    /// when the subscriber returns.
    pub(crate) fn end_of(number: u64, job: &Job, at: Timestamp) -> Option<LoggedEvent> {
        let kind = match job.state {
            JobState::Completed => "job.completed",
            JobState::Discarded => "job.discarded",
            JobState::Cancelled => "job.cancelled",
            _ => return None,
        };
        LoggedEvent::new(number, kind, Some(job.state), job, job.ended_at.unwrap_or(at))
    }

    /// Returns the id of an event. No other start of agq uses the same id.
    pub(crate) fn id_of(&self, event: &LoggedEvent) -> String {
        self.cursor(event.number)
    }

    /// Returns the cursor of a subscriber that has seen the log up to `number`. The cursor is the
    /// id of that event.
    pub(crate) fn cursor(&self, number: u64) -> String {
        format!("evt_{:x}_{number}", self.began_at.0)
    }

    /// Returns the id of the last event of a client that has got to `place`.
    pub(crate) fn id_at(&self, place: EventLogPlace) -> String {
        let id = self.cursor(place.number);
        match place.ends_until {
            Some(until) => format!("{id}_{:x}", until.0),
            None => id,
        }
    }

    /// Returns the place of a client that has got the event with this id as its last one, or `None`
    /// if the id is not of this start.
    pub(crate) fn place_of(&self, id: &str) -> Option<EventLogPlace> {
        let mut parts = id.strip_prefix("evt_")?.splitn(3, '_');
        let (began_at, number) = (parts.next()?, parts.next()?);
        let ends_until = parts.next().map(|until| u64::from_str_radix(until, 16)).transpose().ok()?;
        let number = number.parse().ok().filter(|number| *number <= lock(&self.ring).last)?;
        let is_of_start = u64::from_str_radix(began_at, 16) == Ok(self.began_at.0);
        is_of_start.then_some(EventLogPlace { number, ends_until: ends_until.map(Timestamp) })
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        self.place_of(id).map(|place| place.number)
    }

    /// Returns true if a client that has got to `place` got the final event of an ended job.
    pub(crate) fn has_seen_end(&self, place: EventLogPlace, job: &Job) -> bool {
        let Some(ended_at) = job.ended_at else { return false };
        let ring = lock(&self.ring);
        // An earlier final event is that of an end before the job was retried.
        let is_end =
            |event: &&LoggedEvent| event.is_last() && event.job_id == job.job_id && event.at >= ended_at;
        match ring.events.iter().rfind(is_end) {
            Some(end) => end.number <= place.number,
            None => place.ends_until.is_some_and(|until| ended_at <= until),
        }
    }
}

const PROGRESS: &str = "job.progress";

/// Kinds of events in order. `None` stands for no event.
fn kinds_of(was: Option<JobState>, job: &Job, has_progressed: bool) -> [Option<&'static str>; 2] {
    if was == Some(job.state) {
        return [has_progressed.then_some(PROGRESS), None];
    }
    let is_expired = job.ojs.as_ref().is_some_and(|ojs| ojs.is_expired);
    let failed = (was == Some(JobState::Active)).then_some("job.failed");
    match job.state {
        JobState::Available if was.is_none() || job.attempt == 0 => [Some("job.enqueued"), None],
        JobState::Available => [Some("job.requeued"), None],
        JobState::Scheduled => [Some("job.scheduled"), None],
        JobState::Active => [Some("job.started"), None],
        JobState::Completed => [Some("job.completed"), None],
        JobState::Retryable => [failed, Some("job.retrying")],
        JobState::Discarded if is_expired => [Some("job.expired"), Some("job.discarded")],
        JobState::Discarded => [failed, Some("job.discarded")],
        JobState::Cancelled => [Some("job.cancelled"), None],
        JobState::Staged => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::{
        action::Action,
        job::{Job, JobParams, JobState, Ojs, QueuePosition},
    };

    use super::{EventLog, EventLogPlace, MAX_EVENTS, NewEvents};

    fn job() -> Job {
        let action = Action::new("a".parse().unwrap(), "ojs".parse().unwrap(), Timestamp(1));
        let (place, terms) = (QueuePosition { lane: 0, seq: 0 }, JobParams::default());
        let mut job = Job::new("j".parse().unwrap(), &action, 0, place, &terms, Timestamp(1));
        job.ojs = Some(Box::new(Ojs::of("a.b")));
        job
    }

    #[test]
    fn failed_attempt_is_logged_before_its_consequence() {
        let log = EventLog::new(Timestamp(255));
        let mut job = job();
        log.record(None, &job, false, Timestamp(2));
        job.state = JobState::Active;
        log.record(Some(JobState::Available), &job, false, Timestamp(3));
        log.record(Some(JobState::Active), &job, false, Timestamp(3));
        (job.progress_percent, job.attempt) = (Some(50.0), 1);
        log.record(Some(JobState::Active), &job, true, Timestamp(3));
        job.state = JobState::Retryable;
        log.record(Some(JobState::Active), &job, false, Timestamp(4));
        job.state = JobState::Discarded;
        log.record(Some(JobState::Retryable), &job, false, Timestamp(5));
        let NewEvents { events, has_more, .. } = log.follow(0, 100, |_| true);
        let kinds: Vec<&str> = events.iter().map(|event| event.kind).collect();
        let expected = ["enqueued", "started", "progress", "failed", "retrying", "discarded"]
            .map(|name| format!("job.{name}"));
        assert_eq!((kinds, has_more), (expected.iter().map(String::as_str).collect(), false));
        assert_eq!(log.id_of(&events[2]), "evt_ff_3");
        assert_eq!((log.number_of("evt_ff_3"), log.number_of("evt_ff_7")), (Some(3), None));
        let place = EventLogPlace { number: 3, ends_until: Some(Timestamp(10)) };
        assert_eq!((log.id_at(place).as_str(), log.place_of("evt_ff_3_a")), ("evt_ff_3_a", Some(place)));
        for wrong in ["evt_fe_3", "evt_3", "3", "", "evt_ff_3_", "evt_ff_3_x", "evt_ff_3_a_b"] {
            assert_eq!(log.number_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cursor_of_another_log_hides_no_event() {
        let log = EventLog::new(Timestamp(255));
        (0..3).for_each(|_| log.record(None, &job(), false, Timestamp(2)));
        let from = |cursor: Option<&str>| {
            let new = log.follow_from(cursor, 10, |_| true);
            (new.events.len(), log.cursor(new.up_to), new.has_gap)
        };
        assert_eq!(from(None), (3, "evt_ff_3".into(), false));
        assert_eq!(from(Some("evt_ff_2")), (1, "evt_ff_3".into(), false));
        for other in ["evt_fe_2", "evt_ff_9", "5000"] {
            assert_eq!(from(Some(other)), (3, "evt_ff_3".into(), true), "{other}");
        }
        (0..MAX_EVENTS).for_each(|_| log.record(None, &job(), false, Timestamp(2)));
        assert!(log.follow_from(Some("evt_ff_2"), 1, |_| true).has_gap);
    }

    #[test]
    fn final_event_of_an_ended_job_hides_no_event_that_is_recorded_meanwhile() {
        let log = EventLog::new(Timestamp(1));
        let mut ended = job();
        ended.state = JobState::Completed;
        log.record(None, &job(), false, Timestamp(2));
        let followed = log.follow(0, 10, |_| true);
        log.record(None, &job(), false, Timestamp(3));
        let event = EventLog::end_of(followed.up_to, &ended, Timestamp(4)).unwrap();
        let returned = log.follow_from(Some(&log.id_of(&event)), 10, |_| true);
        assert_eq!((returned.events.len(), returned.has_gap), (1, false));
    }

    #[test]
    fn end_of_a_job_is_seen_by_a_client_that_got_it() {
        let log = EventLog::new(Timestamp(255));
        let seen = |id: &str, job: &Job| log.has_seen_end(log.place_of(id).unwrap(), job);
        let first = Job { state: JobState::Completed, ended_at: Some(Timestamp(3)), ..job() };
        log.record(None, &job(), false, Timestamp(2));
        assert!(!seen("evt_ff_1", &first), "the end is not recorded yet");
        log.record(Some(JobState::Active), &first, false, Timestamp(4));
        assert!(!seen("evt_ff_1", &first) && seen("evt_ff_2", &first));
        let second = Job { ended_at: Some(Timestamp(9)), ..first };
        assert!(!seen("evt_ff_2", &second), "the job was retried");
        log.record(Some(JobState::Active), &second, false, Timestamp(9));
        assert!(!seen("evt_ff_2", &second) && !seen("evt_ff_2_9", &second) && seen("evt_ff_3", &second));
        (0..MAX_EVENTS).for_each(|_| log.record(None, &job(), false, Timestamp(10)));
        assert!(!seen("evt_ff_3", &second) && !seen("evt_ff_3_8", &second), "the log has dropped the end");
        assert!(seen("evt_ff_3_9", &second));
    }

    #[test]
    fn follow_skips_unwanted_events_and_reports_a_gap() {
        let log = EventLog::new(Timestamp(1));
        let (last, later) = log.listen();
        for _ in 0..3 {
            log.record(None, &job(), false, Timestamp(2));
        }
        assert!(later.has_changed().unwrap());
        let none = log.follow(last, 10, |_| false);
        assert_eq!((none.events.len(), none.up_to, none.has_gap), (0, 3, false));
        let some = log.follow(last, 2, |_| true);
        assert_eq!((some.events.len(), some.up_to), (2, 2));
        for _ in 0..MAX_EVENTS {
            log.record(None, &job(), false, Timestamp(2));
        }
        assert!(log.follow(2, 1, |_| true).has_gap);
        assert!(!log.follow(3, 1, |_| true).has_gap);
    }
}
