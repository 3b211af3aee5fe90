//! What the worker as a whole is to do: what signals, agq and the clock say, and what follows from it.

use std::time::Duration;

use agenix_protocol::documents::Orders;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use crate::worker::{
    capabilities::{Outfit, Scout, Search},
    signals::{Signals, Wish},
};

/// Where everything that is said to the worker comes together.
pub(crate) struct Helm {
    signals: Signals,
    scout: Scout,
    /// How long to wait for running jobs when draining.
    grace: Duration,
    posture: Posture,
}

/// What was said.
pub(crate) enum Turn {
    /// Something that may have changed the posture.
    Heard,
    /// The machine was looked at again.
    Equipped(Outfit),
    /// End now.
    Force,
}

/// Why no jobs are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Posture {
    /// The worker ends, and gives up on what runs then.
    deadline: Option<Instant>,
    /// A signal said so.
    is_quiet: bool,
    /// agq said so.
    is_drained: bool,
}

impl Helm {
    pub(crate) fn new(signals: Signals, search: Search, grace: Duration) -> Self {
        Self { signals, scout: Scout::new(search), grace, posture: Posture::default() }
    }

    /// Where to look for what the machine offers.
    pub(crate) fn search(&self) -> Search {
        self.scout.search.clone()
    }

    /// Whether jobs are taken.
    pub(crate) fn takes_jobs(&self) -> bool {
        self.posture == Posture::default()
    }

    /// Whether the worker ends when nothing runs any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.posture.deadline.is_some()
    }

    /// What is said next. Dropped before it is there, it is not lost.
    pub(crate) async fn next(&mut self) -> Turn {
        tokio::select! {
            wish = self.signals.next() => self.follow(wish),
            outfit = self.scout.back() => Turn::Equipped(outfit),
            () = passed(self.posture.deadline) => Turn::Force,
        }
    }

    fn follow(&mut self, wish: Wish) -> Turn {
        match wish {
            Wish::Force => return Turn::Force,
            Wish::Reload => {
                info!("looking at PATH again");
                self.scout.send();
            }
            _ => self.posture.follow(wish, Instant::now() + self.grace),
        }
        Turn::Heard
    }

    /// What agq wants of the worker as a whole: said again and again, until it does not want it any more.
    pub(crate) fn obey(&mut self, orders: &Orders) {
        self.posture.obey(orders, Instant::now() + self.grace);
    }
}

impl Posture {
    fn follow(&mut self, wish: Wish, deadline: Instant) {
        match wish {
            Wish::Drain => {
                info!("draining: no more jobs are taken; a second signal ends the running ones");
                self.deadline.get_or_insert(deadline);
            }
            Wish::Quiet => {
                info!("quiet: no more jobs are taken until SIGCONT");
                self.is_quiet = true;
            }
            Wish::Resume if self.is_quiet => {
                info!("quiet no more");
                self.is_quiet = false;
            }
            Wish::Resume | Wish::Force | Wish::Reload => {}
        }
    }

    fn obey(&mut self, orders: &Orders, deadline: Instant) {
        if orders.terminate && self.deadline.is_none() {
            info!("draining: agq wants this worker to end; no more jobs are taken");
            self.deadline = Some(deadline);
        }
        match (self.is_drained, orders.drain) {
            (false, true) => info!("draining: agq wants no more jobs taken here"),
            (true, false) => info!("agq wants jobs taken here again"),
            _ => {}
        }
        self.is_drained = orders.drain;
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agenix_protocol::documents::Orders;
    use tokio::time::Instant;

    use super::Posture;
    use crate::worker::signals::Wish;

    #[test]
    fn whoever_stopped_it_has_to_let_it_go_on() {
        let (mut posture, now) = (Posture::default(), Instant::now());
        let drain = Orders { drain: true, ..Orders::default() };
        posture.follow(Wish::Quiet, now);
        posture.obey(&drain, now);
        posture.follow(Wish::Resume, now);
        assert_eq!(posture, Posture { is_drained: true, ..Posture::default() });
        posture.obey(&Orders::default(), now);
        assert_eq!(posture, Posture::default());
        posture.follow(Wish::Resume, now);
        assert_eq!(posture, Posture::default());
    }

    #[test]
    fn the_first_deadline_counts_and_an_end_is_not_taken_back() {
        let (mut posture, now) = (Posture::default(), Instant::now());
        let terminate = Orders { terminate: true, ..Orders::default() };
        posture.obey(&terminate, now);
        posture.obey(&terminate, now + Duration::from_secs(1));
        posture.follow(Wish::Drain, now + Duration::from_secs(2));
        posture.obey(&Orders::default(), now);
        assert_eq!(posture, Posture { deadline: Some(now), ..Posture::default() });
    }
}
