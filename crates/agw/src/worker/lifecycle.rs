//! Lifecycle of the worker: merges signals, directives of agq and deadlines, and decides whether
//! the worker claims jobs, drains or ends.

use std::{sync::Arc, time::Duration};

use agenix_protocol::documents::Directives;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use crate::{
    exec::admission::AdmissionControl,
    worker::{
        capabilities::{CapabilitySearch, FoundCapabilities, Rescan},
        signals::{SignalAction, Signals},
    },
};

pub(crate) struct Lifecycle {
    signals: Signals,
    rescan: Rescan,
    admission: Arc<AdmissionControl>,
    /// Maximum time for running jobs while the worker drains.
    grace: Duration,
    drain_state: DrainState,
}

pub(crate) enum LifecycleEvent {
    /// The drain state may have changed.
    Ignored,
    /// A capability search has finished.
    CapabilitiesFound(FoundCapabilities),
    /// The worker has to end at once.
    Force,
}

/// Reasons why the worker claims no jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct DrainState {
    /// Time at which the worker abandons the running jobs. Set once the worker is ending.
    deadline: Option<Instant>,
    /// A signal has paused claiming.
    is_quiet: bool,
    /// agq has directed a drain.
    is_drained: bool,
}

impl Lifecycle {
    pub(crate) fn new(
        signals: Signals,
        (search, admission): (CapabilitySearch, Arc<AdmissionControl>),
        grace: Duration,
    ) -> Self {
        let drain_state = DrainState::default();
        Self { signals, rescan: Rescan::new(search), admission, grace, drain_state }
    }

    /// Returns the parameters of the capability search.
    pub(crate) fn search(&self) -> CapabilitySearch {
        self.rescan.search.clone()
    }

    /// Returns true if the worker claims jobs.
    pub(crate) fn takes_jobs(&self) -> bool {
        self.drain_state == DrainState::default()
    }

    /// Returns true if the worker ends once no job runs.
    pub(crate) fn is_ending(&self) -> bool {
        self.drain_state.deadline.is_some()
    }

    /// Waits for the next event. Cancel-safe: dropping the future loses no event.
    pub(crate) async fn next(&mut self) -> LifecycleEvent {
        tokio::select! {
            action = self.signals.next() => self.follow(action),
            found = self.rescan.back() => LifecycleEvent::CapabilitiesFound(found),
            () = passed(self.drain_state.deadline) => LifecycleEvent::Force,
        }
    }

    fn follow(&mut self, action: SignalAction) -> LifecycleEvent {
        match action {
            SignalAction::Force => return LifecycleEvent::Force,
            SignalAction::Reload => {
                info!("searching PATH again");
                for (name, error) in self.admission.reload() {
                    error!(
                        "SIGHUP: the {name} stays as it was, because the new one cannot be used: {error:#}"
                    );
                }
                self.rescan.send();
            }
            _ => self.drain_state.follow(action, Instant::now() + self.grace),
        }
        LifecycleEvent::Ignored
    }

    /// Applies the directives of agq, which repeats each with every heartbeat while it is valid.
    pub(crate) fn apply_directives(&mut self, directives: &Directives) {
        self.drain_state.obey(directives, Instant::now() + self.grace);
    }
}

impl DrainState {
    fn follow(&mut self, action: SignalAction, deadline: Instant) {
        match action {
            SignalAction::Drain => {
                info!("draining: no more jobs are claimed; a second signal ends the running ones");
                self.deadline.get_or_insert(deadline);
            }
            SignalAction::Quiet => {
                info!("quiet: no more jobs are claimed until SIGCONT");
                self.is_quiet = true;
            }
            SignalAction::Resume if self.is_quiet => {
                info!("resumed: jobs are claimed again");
                self.is_quiet = false;
            }
            SignalAction::Resume | SignalAction::Force | SignalAction::Reload => {}
        }
    }

    fn obey(&mut self, directives: &Directives, deadline: Instant) {
        if directives.terminate && self.deadline.is_none() {
            info!("draining: agq has directed this worker to end; no more jobs are claimed");
            self.deadline = Some(deadline);
        }
        match (self.is_drained, directives.drain) {
            (false, true) => info!("draining: agq has directed this worker to claim no more jobs"),
            (true, false) => info!("resumed: agq has directed this worker to claim jobs again"),
            _ => {}
        }
        self.is_drained = directives.drain;
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

    use agenix_protocol::documents::Directives;
    use tokio::time::Instant;

    use super::DrainState;
    use crate::worker::signals::SignalAction;

    #[test]
    fn drain_state_is_lifted_only_by_its_origin() {
        let (mut drain_state, now) = (DrainState::default(), Instant::now());
        let drain = Directives { drain: true, ..Directives::default() };
        drain_state.follow(SignalAction::Quiet, now);
        drain_state.obey(&drain, now);
        drain_state.follow(SignalAction::Resume, now);
        assert_eq!(drain_state, DrainState { is_drained: true, ..DrainState::default() });
        drain_state.obey(&Directives::default(), now);
        assert_eq!(drain_state, DrainState::default());
        drain_state.follow(SignalAction::Resume, now);
        assert_eq!(drain_state, DrainState::default());
    }

    #[test]
    fn drain_state_keeps_the_first_deadline() {
        let (mut drain_state, now) = (DrainState::default(), Instant::now());
        let terminate = Directives { terminate: true, ..Directives::default() };
        drain_state.obey(&terminate, now);
        drain_state.obey(&terminate, now + Duration::from_secs(1));
        drain_state.follow(SignalAction::Drain, now + Duration::from_secs(2));
        drain_state.obey(&Directives::default(), now);
        assert_eq!(drain_state, DrainState { deadline: Some(now), ..DrainState::default() });
    }
}
