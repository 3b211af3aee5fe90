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

use super::{idle_supervisors::IdleSupervisors, scratch::ScratchRoot, supervisor::ReadySupervisor};

/// Supervisors that wait for a job, and settings by which further supervisors start.
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
    waiting: Mutex<WaitingSupervisors>,
}

#[derive(Debug)]
struct WaitingSupervisors {
    idle: IdleSupervisors<ReadySupervisor>,
    /// Number of spares that start, by the name of their profile.
    starting: BTreeMap<String, u32>,
}

impl SupervisorPool {
    /// Creates a pool in which `spares` supervisors of each profile, and at most `most_idle` in
    /// all, wait for a job.
    pub(super) fn new(
        settings: Settings,
        root: ScratchRoot,
        control_groups: Option<ControlGroups>,
        (spares, most_idle): (u32, usize),
    ) -> Self {
        let idle = IdleSupervisors::new(most_idle);
        let waiting = Mutex::new(WaitingSupervisors { idle, starting: BTreeMap::new() });
        Self(Arc::new(SupervisorPoolState { settings, root, control_groups, spares, waiting }))
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

    /// Returns a supervisor whose job has ended to the pool. Ends another supervisor if too many
    /// wait.
    pub(super) fn put(&self, profile: &str, supervisor: ReadySupervisor) {
        let excess = self.waiting().idle.put(profile, supervisor);
        drop(excess);
    }

    /// Ends the supervisors that wait for a job, but not those of the profile `kept`.
    pub(super) fn end_idle(&self, kept: Option<&str>) {
        let others = self.waiting().idle.take_others(kept);
        if !others.is_empty() {
            debug!(supervisors = others.len(), "ending idle sandbox supervisors, whose resources are needed");
        }
    }

    /// Ends all supervisors that wait for a job, and waits at most `bound` for their end.
    pub(super) fn shut_down(&self, bound: Duration) {
        let end = Instant::now() + bound;
        let all = self.waiting().idle.take_others(None);
        // All connections are closed before the first wait.
        all.iter().for_each(|supervisor| supervisor.commands.close());
        all.into_iter().for_each(|supervisor| supervisor.end(end.saturating_duration_since(Instant::now())));
    }

    /// Returns a waiting supervisor. Drops the supervisors that have ended, or whose scratch
    /// directory is missing.
    fn idle(&self, profile: &Profile) -> Option<ReadySupervisor> {
        loop {
            let supervisor = self.waiting().idle.take(&profile.name)?;
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
            let WaitingSupervisors { idle, starting } = &mut *waiting;
            let starting = starting.entry(profile.name.clone()).or_default();
            if idle.count(&profile.name) as u64 + u64::from(*starting) >= u64::from(self.0.spares) {
                return;
            }
            *starting += 1;
        }
        let (pool, profile) = (self.clone(), profile.clone());
        tokio::spawn(async move {
            let started = pool.start(&profile).await;
            if let Some(starting) = pool.waiting().starting.get_mut(&profile.name) {
                *starting -= 1;
            }
            match started {
                Ok(supervisor) => pool.put(&profile.name, supervisor),
                // The next job starts a supervisor itself, and reports the error.
                Err(error) => debug!(%error, "a spare sandbox supervisor could not be started"),
            }
        });
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingSupervisors> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
