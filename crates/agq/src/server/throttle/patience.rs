//! How long agq waits for a client that has something to say: connections that never log in, and frames that never end,
//! would else take memory and a place for as long as they like.

use std::time::Duration;

use agenix_protocol::time::Timestamp;

/// How long a connection may be there without having logged in.
pub(crate) const LOGIN_WITHIN: Duration = Duration::from_secs(10);
/// How long a frame may take from its first byte to its last.
pub(crate) const FRAME_WITHIN: Duration = Duration::from_secs(60);

/// What a connection was waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Overdue {
    /// It has not logged in.
    #[error("no AUTH within {} seconds", LOGIN_WITHIN.as_secs())]
    Login,
    /// It began a frame and did not complete it.
    #[error("a command was not complete within {} seconds", FRAME_WITHIN.as_secs())]
    Frame,
}

/// The patience with one connection. A client that is silent between two commands may be so for ever.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Since when it should log in; none when it has.
    waits_for_login: Option<Timestamp>,
    /// When the frame began that is under way.
    frame_began: Option<Timestamp>,
}

impl Patience {
    /// The patience with a connection that was just made; `is_logged_in` where a certificate has said who it is.
    pub(crate) fn new(now: Timestamp, is_logged_in: bool) -> Self {
        Self { waits_for_login: (!is_logged_in).then_some(now), frame_began: None }
    }

    /// It has logged in.
    pub(crate) fn logged_in(&mut self) {
        self.waits_for_login = None;
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
        let left = |since: Option<Timestamp>, bound: Duration| {
            since.map(|since| bound.saturating_sub(Duration::from_millis(now.ms_since(since))))
        };
        let (login, frame) = (left(self.waits_for_login, LOGIN_WITHIN), left(self.frame_began, FRAME_WITHIN));
        login.into_iter().chain(frame).min()
    }

    /// What was waited for too long.
    pub(crate) fn overdue(&self, now: Timestamp) -> Option<Overdue> {
        let is_over = |since: Option<Timestamp>, bound: Duration| {
            since.is_some_and(|since| Duration::from_millis(now.ms_since(since)) >= bound)
        };
        if is_over(self.waits_for_login, LOGIN_WITHIN) {
            return Some(Overdue::Login);
        }
        is_over(self.frame_began, FRAME_WITHIN).then_some(Overdue::Frame)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agenix_protocol::time::Timestamp;

    use super::{Overdue, Patience};

    #[test]
    fn a_login_has_ten_seconds() {
        let mut patience = Patience::new(Timestamp(1000), false);
        assert_eq!(patience.left(Timestamp(1000)), Some(Duration::from_secs(10)));
        assert_eq!(patience.overdue(Timestamp(10_999)), None);
        assert_eq!(patience.overdue(Timestamp(11_000)), Some(Overdue::Login));
        assert_eq!(patience.left(Timestamp(12_000)), Some(Duration::ZERO));
        patience.logged_in();
        assert_eq!((patience.left(Timestamp(99_000)), patience.overdue(Timestamp(99_000))), (None, None));
        let certified = Patience::new(Timestamp(0), true);
        assert_eq!(certified.left(Timestamp(0)), None);
        assert_eq!(Overdue::Login.to_string(), "no AUTH within 10 seconds");
    }

    #[test]
    fn a_frame_has_a_minute_from_its_first_byte() {
        let mut patience = Patience::new(Timestamp(0), true);
        patience.frame_began(Timestamp(5_000));
        patience.frame_began(Timestamp(50_000));
        assert_eq!(patience.left(Timestamp(5_000)), Some(Duration::from_secs(60)));
        assert_eq!(patience.overdue(Timestamp(64_999)), None);
        assert_eq!(patience.overdue(Timestamp(65_000)), Some(Overdue::Frame));
        patience.frame_ended();
        assert_eq!(patience.overdue(Timestamp(65_000)), None);
        patience.frame_began(Timestamp(65_000));
        assert_eq!(patience.left(Timestamp(66_000)), Some(Duration::from_secs(59)));
    }

    #[test]
    fn what_comes_first_counts() {
        let mut patience = Patience::new(Timestamp(0), false);
        patience.frame_began(Timestamp(0));
        assert_eq!(patience.left(Timestamp(4_000)), Some(Duration::from_secs(6)));
        assert_eq!(patience.overdue(Timestamp(70_000)), Some(Overdue::Login));
    }
}
