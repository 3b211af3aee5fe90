//! Pool of supervisors that wait for a job. A supervisor serves jobs of one profile.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use agenix_sandbox::{
    client::{Settings, SupervisorError},
    control_group::ControlGroups,
    profile::Profile,
};
use tracing::debug;

use super::{scratch::ScratchRoot, supervisor::ReadySupervisor};

/// Supervisors by the name of their profile.
#[derive(Debug, Clone)]
pub(super) struct SupervisorPool(Arc<SupervisorPoolState>);

#[derive(Debug)]
struct SupervisorPoolState {
    /// Settings of all supervisors, apart from profile, scratch directory and control group.
    settings: Settings,
    root: ScratchRoot,
    control_groups: Option<ControlGroups>,
    /// Number of supervisors for each profile that wait for a job.
    spares: u32,
    waiting: Mutex<BTreeMap<String, WaitingSupervisors>>,
}

#[derive(Debug, Default)]
struct WaitingSupervisors {
    idle: Vec<ReadySupervisor>,
    /// Number of spares that start.
    starting: u32,
}

impl SupervisorPool {
    pub(super) fn new(
        settings: Settings,
        root: ScratchRoot,
        control_groups: Option<ControlGroups>,
        spares: u32,
    ) -> Self {
        Self(Arc::new(SupervisorPoolState {
            settings,
            root,
            control_groups,
            spares,
            waiting: Mutex::default(),
        }))
    }

    /// Returns a supervisor that waits for a job of `profile`, or starts one. Starts a spare in the
    /// background if there are too few.
    pub(super) async fn take(&self, profile: &Profile) -> Result<ReadySupervisor, SupervisorError> {
        let idle = self.idle(profile);
        self.start_spare(profile);
        match idle {
            Some(supervisor) => Ok(supervisor),
            None => self.start(profile).await,
        }
    }

    /// Returns the control groups of the worker, if it has claimed some.
    pub(super) fn control_groups(&self) -> Option<&ControlGroups> {
        self.0.control_groups.as_ref()
    }

    /// Returns a supervisor whose job has ended to the pool.
    pub(super) fn put(&self, profile: &str, supervisor: ReadySupervisor) {
        self.waiting().entry(profile.to_owned()).or_default().idle.push(supervisor);
    }

    /// Ends all supervisors that wait for a job. Waits at most `bound` for them.
    pub(super) fn shut_down(&self, bound: Duration) {
        let end = Instant::now() + bound;
        let all = std::mem::take(&mut *self.waiting());
        let all: Vec<ReadySupervisor> = all.into_values().flat_map(|waiting| waiting.idle).collect();
        // All connections are closed before the first wait.
        all.iter().for_each(|supervisor| supervisor.commands.close());
        all.into_iter().for_each(|supervisor| supervisor.end(end.saturating_duration_since(Instant::now())));
    }

    /// Returns a waiting supervisor. Drops those that have ended.
    fn idle(&self, profile: &Profile) -> Option<ReadySupervisor> {
        loop {
            let supervisor = self.waiting().get_mut(&profile.name)?.idle.pop()?;
            if supervisor.is_idle() {
                return Some(supervisor);
            }
        }
    }

    /// Starts a supervisor outside the pool.
    pub(super) async fn start(&self, profile: &Profile) -> Result<ReadySupervisor, SupervisorError> {
        let groups = self.0.control_groups.as_ref();
        let control_group = groups.map(|groups| groups.create(&profile.limits)).transpose()?.map(Arc::new);
        let settings = Settings { profile: profile.clone(), control_group, ..self.0.settings.clone() };
        ReadySupervisor::start(settings, &self.0.root).await
    }

    fn start_spare(&self, profile: &Profile) {
        {
            let mut waiting = self.waiting();
            let waiting = waiting.entry(profile.name.clone()).or_default();
            if waiting.idle.len() as u64 + u64::from(waiting.starting) >= u64::from(self.0.spares) {
                return;
            }
            waiting.starting += 1;
        }
        let (pool, profile) = (self.clone(), profile.clone());
        tokio::spawn(async move {
            let started = pool.start(&profile).await;
            let mut waiting = pool.waiting();
            let waiting = waiting.entry(profile.name).or_default();
            waiting.starting -= 1;
            match started {
                Ok(supervisor) => waiting.idle.push(supervisor),
                // The next job starts a supervisor itself, and reports the error.
                Err(error) => debug!(%error, "a spare sandbox supervisor could not be started"),
            }
        });
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, WaitingSupervisors>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
