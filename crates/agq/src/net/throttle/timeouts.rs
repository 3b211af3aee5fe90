//! How long agq waits for a client that has something to say: connections that never log in, and frames that never end,
//! would else take memory and a place for as long as they like.

use std::time::Duration;

use agenix_protocol::time::Timestamp;

/// How long agq waits; zero for as long as it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeoutLimits {
    /// How long a connection may be there without having logged in.
    pub(crate) login: Duration,
    /// How long a command may take from its first byte to its last.
    pub(crate) frame: Duration,
}

/// What a connection was waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimedOut {
    /// It has not logged in.
    #[error("no AUTH within {} seconds", .0.as_secs_f64())]
    Login(Duration),
    /// It began a frame and did not complete it.
    #[error("a command was not complete within {} seconds", .0.as_secs_f64())]
    Frame(Duration),
}

/// The patience with one connection. A client that is silent between two commands may be so for ever.
#[derive(Debug)]
pub(crate) struct ClientTimeouts {
    bounds: TimeoutLimits,
    /// Since when it should log in; none when it has.
    waits_for_login: Option<Timestamp>,
    /// When the frame began that is under way.
    frame_began: Option<Timestamp>,
}

impl ClientTimeouts {
    /// The patience with a connection that was just made; `is_logged_in` where a certificate has said who it is.
    pub(crate) fn new(now: Timestamp, is_logged_in: bool, bounds: TimeoutLimits) -> Self {
        Self { bounds, waits_for_login: (!is_logged_in).then_some(now), frame_began: None }
    }

    /// It has logged in.
    pub(crate) fn logged_in(&mut self) {
        self.waits_for_login = None;
    }

    /// Postpones the end of the time to log in, because agq itself delays the answer to a wrong key
    /// by `delay`.
    pub(crate) fn answer_delayed(&mut self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.waits_for_login = self.waits_for_login.map(|since| Timestamp(since.0.saturating_add(delay)));
    }

    /// There are bytes of a frame that is not complete; saying so again changes nothing.
    pub(crate) fn frame_began(&mut self, now: Timestamp) {
        self.frame_began.get_or_insert(now);
    }

    /// There are no bytes of an incomplete frame, or agq itself does not read just now.
    pub(crate) fn frame_ended(&mut self) {
        self.frame_began = None;
    }

    /// How much longer to wait; none where there is no hurry.
    pub(crate) fn left(&self, now: Timestamp) -> Option<Duration> {
        self.deadlines().map(|(since, bound, _)| bound.saturating_sub(passed(since, now))).min()
    }

    /// What was waited for too long.
    pub(crate) fn overdue(&self, now: Timestamp) -> Option<TimedOut> {
        let over = self.deadlines().find(|(since, bound, _)| passed(*since, now) >= *bound);
        over.map(|(_, bound, overdue)| overdue(bound))
    }

    /// What is waited for: since when, how long, and what it is called when it is over.
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
    fn a_login_has_ten_seconds() {
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
    fn the_delay_of_an_answer_is_not_counted_as_time_to_log_in() {
        let mut timeouts = ClientTimeouts::new(Timestamp(1000), false, BOUNDS);
        timeouts.answer_delayed(Duration::from_secs(16));
        assert_eq!(timeouts.overdue(Timestamp(17_000)), None, "the answer goes out");
        assert_eq!(timeouts.overdue(Timestamp(27_000)), Some(TimedOut::Login(BOUNDS.login)));
        timeouts.logged_in();
        timeouts.answer_delayed(Duration::from_secs(16));
        assert_eq!(timeouts.overdue(Timestamp(99_000)), None);
    }

    #[test]
    fn a_frame_has_a_minute_from_its_first_byte() {
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
    fn zero_is_no_bound() {
        let none = TimeoutLimits { login: Duration::ZERO, frame: Duration::ZERO };
        let mut timeouts = ClientTimeouts::new(Timestamp(0), false, none);
        timeouts.frame_began(Timestamp(0));
        assert_eq!((timeouts.left(Timestamp(1)), timeouts.overdue(Timestamp(u64::MAX))), (None, None));
    }

    #[test]
    fn what_comes_first_counts() {
        let mut timeouts = ClientTimeouts::new(Timestamp(0), false, BOUNDS);
        timeouts.frame_began(Timestamp(0));
        assert_eq!(timeouts.left(Timestamp(4_000)), Some(Duration::from_secs(6)));
        assert_eq!(timeouts.overdue(Timestamp(70_000)), Some(TimedOut::Login(BOUNDS.login)));
    }
}
