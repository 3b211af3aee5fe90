//! Time-outs of a client: the time to log in, and the time to complete a frame. Without time-outs,
//! silent connections and endless frames would occupy memory and places.

use std::time::Duration;

use agenix_protocol::time::Timestamp;

/// Lengths of the time-outs; zero means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeoutLimits {
    /// Maximum time from the connection to the login.
    pub(crate) login: Duration,
    /// Maximum time from the first byte of a command to its last.
    pub(crate) frame: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimedOut {
    #[error("no AUTH within {} seconds", .0.as_secs_f64())]
    Login(Duration),
    #[error("a command was not complete within {} seconds", .0.as_secs_f64())]
    Frame(Duration),
}

/// Time-outs of one connection. A client may be silent between two commands for any time.
#[derive(Debug)]
pub(crate) struct ClientTimeouts {
    bounds: TimeoutLimits,
    /// Start of the time to log in; `None` after the login.
    waits_for_login: Option<Timestamp>,
    frame_began: Option<Timestamp>,
}

impl ClientTimeouts {
    /// `is_logged_in` is true if a certificate has proved the identity.
    pub(crate) fn new(now: Timestamp, is_logged_in: bool, bounds: TimeoutLimits) -> Self {
        Self { bounds, waits_for_login: (!is_logged_in).then_some(now), frame_began: None }
    }

    pub(crate) fn logged_in(&mut self) {
        self.waits_for_login = None;
    }

    /// Adds the time for which agq itself delays the answer to a wrong key.
    pub(crate) fn answer_delayed(&mut self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.waits_for_login = self.waits_for_login.map(|since| Timestamp(since.0.saturating_add(delay)));
    }

    /// Records the first bytes of an incomplete frame. Further calls change nothing.
    pub(crate) fn frame_began(&mut self, now: Timestamp) {
        self.frame_began.get_or_insert(now);
    }

    /// Records that no frame is incomplete, or that agq itself pauses the reading.
    pub(crate) fn frame_ended(&mut self) {
        self.frame_began = None;
    }

    /// Returns the time until the next time-out, or `None` if no time-out runs.
    pub(crate) fn left(&self, now: Timestamp) -> Option<Duration> {
        self.deadlines().map(|(since, bound, _)| bound.saturating_sub(passed(since, now))).min()
    }

    pub(crate) fn overdue(&self, now: Timestamp) -> Option<TimedOut> {
        let over = self.deadlines().find(|(since, bound, _)| passed(*since, now) >= *bound);
        over.map(|(_, bound, overdue)| overdue(bound))
    }

    /// Returns the start, the length and the error of each running time-out.
    fn deadlines(&self) -> impl Iterator<Item = (Timestamp, Duration, fn(Duration) -> TimedOut)> {
        let login =
            self.waits_for_login.map(|since| (since, self.bounds.login, TimedOut::Login as fn(_) -> _));
        let frame = self.frame_began.map(|since| (since, self.bounds.frame, TimedOut::Frame as fn(_) -> _));
        login.into_iter().chain(frame).filter(|(_, bound, _)| !bound.is_zero())
    }
}

fn passed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(now.ms_since(since))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agenix_protocol::time::Timestamp;

    use super::{ClientTimeouts, TimedOut, TimeoutLimits};

    const BOUNDS: TimeoutLimits =
        TimeoutLimits { login: Duration::from_secs(10), frame: Duration::from_secs(60) };

    #[test]
    fn login_timeout_is_over_at_its_bound() {
        let mut timeouts = ClientTimeouts::new(Timestamp(1000), false, BOUNDS);
        assert_eq!(timeouts.left(Timestamp(1000)), Some(Duration::from_secs(10)));
        assert_eq!(timeouts.overdue(Timestamp(10_999)), None);
        assert_eq!(timeouts.overdue(Timestamp(11_000)), Some(TimedOut::Login(BOUNDS.login)));
        assert_eq!(timeouts.left(Timestamp(12_000)), Some(Duration::ZERO));
        timeouts.logged_in();
        assert_eq!((timeouts.left(Timestamp(99_000)), timeouts.overdue(Timestamp(99_000))), (None, None));
        let certified = ClientTimeouts::new(Timestamp(0), true, BOUNDS);
        assert_eq!(certified.left(Timestamp(0)), None);
        assert_eq!(TimedOut::Login(BOUNDS.login).to_string(), "no AUTH within 10 seconds");
    }

    #[test]
    fn login_timeout_excludes_the_delay_of_an_answer() {
        let mut timeouts = ClientTimeouts::new(Timestamp(1000), false, BOUNDS);
        timeouts.answer_delayed(Duration::from_secs(16));
        assert_eq!(timeouts.overdue(Timestamp(17_000)), None, "the answer goes out");
        assert_eq!(timeouts.overdue(Timestamp(27_000)), Some(TimedOut::Login(BOUNDS.login)));
        timeouts.logged_in();
        timeouts.answer_delayed(Duration::from_secs(16));
        assert_eq!(timeouts.overdue(Timestamp(99_000)), None);
    }

    #[test]
    fn frame_timeout_begins_with_the_first_byte() {
        let mut timeouts = ClientTimeouts::new(Timestamp(0), true, BOUNDS);
        timeouts.frame_began(Timestamp(5_000));
        timeouts.frame_began(Timestamp(50_000));
        assert_eq!(timeouts.left(Timestamp(5_000)), Some(Duration::from_secs(60)));
        assert_eq!(timeouts.overdue(Timestamp(64_999)), None);
        assert_eq!(timeouts.overdue(Timestamp(65_000)), Some(TimedOut::Frame(BOUNDS.frame)));
        timeouts.frame_ended();
        assert_eq!(timeouts.overdue(Timestamp(65_000)), None);
        timeouts.frame_began(Timestamp(65_000));
        assert_eq!(timeouts.left(Timestamp(66_000)), Some(Duration::from_secs(59)));
    }

    #[test]
    fn timeouts_of_zero_never_end() {
        let none = TimeoutLimits { login: Duration::ZERO, frame: Duration::ZERO };
        let mut timeouts = ClientTimeouts::new(Timestamp(0), false, none);
        timeouts.frame_began(Timestamp(0));
        assert_eq!((timeouts.left(Timestamp(1)), timeouts.overdue(Timestamp(u64::MAX))), (None, None));
    }

    #[test]
    fn timeouts_report_the_one_that_is_over() {
        let mut timeouts = ClientTimeouts::new(Timestamp(0), false, BOUNDS);
        timeouts.frame_began(Timestamp(0));
        assert_eq!(timeouts.left(Timestamp(4_000)), Some(Duration::from_secs(6)));
        assert_eq!(timeouts.overdue(Timestamp(70_000)), Some(TimedOut::Login(BOUNDS.login)));
    }
}
