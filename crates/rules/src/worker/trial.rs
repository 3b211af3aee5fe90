//! Quarantine of a worker, and trial jobs that end the quarantine.

use agenix_protocol::time::Timestamp;

use super::Worker;

/// Wait of a quarantined worker for a trial, from the quarantine or the previous trial.
pub const TRIAL_AFTER_MS: u64 = 5 * 60 * 1000;

/// Quarantines a worker; the first trial comes after [`TRIAL_AFTER_MS`].
pub fn quarantined(known: &Worker, reason: &str, now: Timestamp) -> Worker {
    let trial_at = Some(now.plus_ms(TRIAL_AFTER_MS));
    Worker { quarantine: Some(reason.to_owned()), trial_at, is_on_trial: false, ..known.clone() }
}

/// Starts a trial, in which the worker may get one job. Returns `None` if the worker cannot work,
/// is not quarantined, or has its next trial in the future. A trial more than [`TRIAL_AFTER_MS`] in
/// the future counts as due, because its time comes from before the clock was set back.
pub fn tried(known: &Worker, now: Timestamp) -> Option<Worker> {
    let at = known.trial_at.unwrap_or_default();
    let is_due = at <= now || at.ms_since(now) > TRIAL_AFTER_MS;
    let may_try = known.can_work() && known.quarantine.is_some() && is_due;
    let trial_at = Some(now.plus_ms(TRIAL_AFTER_MS));
    may_try.then(|| Worker { trial_at, is_on_trial: true, ..known.clone() })
}

/// Ends a trial for which no job was available. The next claim of the worker is its trial.
pub fn untried(known: &Worker) -> Option<Worker> {
    known.is_on_trial.then(|| Worker { trial_at: None, is_on_trial: false, ..known.clone() })
}

/// Ends a trial: success ends the quarantine, and failure keeps it until the next trial.
pub fn judged(known: &Worker, failed: bool) -> Option<Worker> {
    let quarantine = known.quarantine.clone().filter(|_| failed);
    known.is_on_trial.then(|| Worker { quarantine, is_on_trial: false, ..known.clone() })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::parse, time::Timestamp};

    use super::{TRIAL_AFTER_MS, judged, quarantined, tried, untried};
    use crate::worker::{Directive, Worker, dead, directed, registered};

    const NOW: Timestamp = Timestamp(1000);

    fn worker() -> Worker {
        let registration = parse(br#"{"worker_id":"w","capabilities":["sort"]}"#).unwrap();
        registered(None, &registration, "c1", NOW).unwrap()
    }

    #[test]
    fn trial_starts_after_the_wait_and_success_ends_the_quarantine() {
        let bad = quarantined(&worker(), "it fails", NOW);
        let due = NOW.plus_ms(TRIAL_AFTER_MS);
        assert!(!bad.may_claim() && tried(&bad, Timestamp(due.0 - 1)).is_none(), "it is not time yet");
        let trial = tried(&bad, due).unwrap();
        assert_eq!((trial.state(), trial.takes_jobs(), trial.may_claim()), ("quarantined", false, true));
        assert!(tried(&trial, due).is_none(), "one trial at a time");
        let failed = judged(&trial, true).unwrap();
        assert_eq!((failed.state(), failed.may_claim()), ("quarantined", false));
        assert!(tried(&failed, due).is_none() && tried(&failed, due.plus_ms(TRIAL_AFTER_MS)).is_some());
        let well = judged(&trial, false).unwrap();
        assert_eq!((well.state(), well.takes_jobs(), well.is_on_trial), ("active", true, false));
        assert!(judged(&bad, false).is_none(), "a job of before the quarantine decides nothing");
    }

    #[test]
    fn trial_without_a_job_is_repeated_at_once() {
        let trial = tried(&quarantined(&worker(), "it fails", Timestamp(0)), Timestamp(TRIAL_AFTER_MS));
        let untried = untried(&trial.unwrap()).unwrap();
        assert!(!untried.may_claim() && tried(&untried, Timestamp(TRIAL_AFTER_MS)).is_some());
    }

    #[test]
    fn trial_is_due_after_the_clock_was_set_back() {
        let bad = quarantined(&worker(), "it fails", Timestamp(NOW.0 + 2 * TRIAL_AFTER_MS));
        assert!(tried(&bad, NOW).is_some());
    }

    #[test]
    fn trial_is_refused_for_draining_and_dead_workers() {
        let bad = quarantined(&worker(), "it fails", Timestamp(0));
        let later = Timestamp(TRIAL_AFTER_MS);
        assert!(tried(&directed(&bad, Some(Directive::Drain)).unwrap(), later).is_none());
        assert!(tried(&dead(&bad), later).is_none());
        let trial = tried(&bad, later).unwrap();
        assert!(!directed(&trial, Some(Directive::Drain)).unwrap().may_claim());
        assert_eq!(directed(&trial, None).unwrap().state(), "active");
    }
}
