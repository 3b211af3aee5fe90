//! Sandboxes of the worker: decides the profile of each job, and begins the job.

use std::{collections::BTreeMap, io, path::Path, time::Duration};

use agenix_protocol::{
    byte_escape::encode_os,
    documents::{PlanSandbox, WorkerSandbox},
};
use agenix_sandbox::{
    client::{Settings, SupervisorError},
    fault::StepFault,
    profile::{Execute, Profile},
    property::PropertySet,
    report::Report,
    setup::Regime,
};
use anyhow::{Context, bail};
use tracing::{debug, info, warn};

use super::{
    job::JobSandbox,
    machine::{self, Examined},
    pool::SupervisorPool,
    scratch::ScratchRoot,
    settings::{Mode, SandboxSettings},
};
use crate::exec::{job_resources::ResourceHold, memory_bound::MemoryBounds, resource_wait::is_shortage};

/// Sandboxes of the worker.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    settings: SandboxSettings,
    /// Properties that this machine enforces.
    report: Report,
    /// Texts for the properties that a profile needs and this machine does not enforce.
    unmet: BTreeMap<String, Vec<String>>,
    pool: SupervisorPool,
}

impl Sandboxes {
    /// Examines this machine, and prepares sandboxes if `settings` have a mode that uses them.
    /// Returns an error if the profile of all jobs cannot be enforced. `slots` is the number of
    /// jobs that run at once.
    pub(crate) fn prepare(
        settings: SandboxSettings,
        (spool, slots): (&Path, u32),
    ) -> anyhow::Result<Option<Self>> {
        if settings.mode == Mode::Off {
            return Ok(None);
        }
        let user = machine::user_of_tasks(settings.user.as_deref())?;
        let directory = settings.scratch.as_deref().unwrap_or(spool);
        let created = || format!("cannot create a scratch directory in {}", directory.display());
        let root = ScratchRoot::create(directory, user).with_context(created)?;
        let Examined { regime, report, control_groups } = machine::examine(directory, user)?;
        let unmet = |profile: &Profile| {
            let needs = profile.needs();
            // Without a supervisor, a profile cannot be enforced even if it needs no property.
            let lacks_supervisor = regime.is_none() && needs.is_empty();
            report.unmet(&if lacks_supervisor { PropertySet::all() } else { needs })
        };
        let unmet: BTreeMap<_, _> =
            settings.profiles.iter().map(|(name, profile)| (name.clone(), unmet(profile))).collect();
        let regime = match (regime, unmet.get(&settings.strangers)) {
            (Some(regime), Some(texts)) if texts.is_empty() || settings.mode == Mode::Requested => regime,
            (None, _) if settings.mode == Mode::Requested => Regime::Namespaces,
            (_, texts) => {
                let texts = texts.map_or_else(String::new, |texts| texts.join("; "));
                bail!("this machine cannot enforce the sandbox profile '{}': {texts}", settings.strangers)
            }
        };
        let supervisors = Settings {
            executable: "/proc/self/exe".into(),
            profile: Profile::reader(),
            // Each supervisor gets a scratch directory of its own.
            scratch: directory.to_owned(),
            regime,
            user,
            // Each supervisor gets a control group of its own.
            control_group: None,
            without: machine::without()?,
        };
        let all_spares = (settings.spares as usize).saturating_mul(settings.profiles.len());
        let idle = (settings.spares, all_spares.max(slots as usize));
        let pool = SupervisorPool::new(supervisors, root, control_groups, idle);
        let sandboxes = Self { settings, report, unmet, pool };
        sandboxes.log();
        Ok(Some(sandboxes))
    }

    fn log(&self) {
        let enforced = self.report.properties();
        for (name, unmet) in &self.unmet {
            if unmet.is_empty() {
                info!("sandbox profile {name}: this machine enforces {enforced}");
            } else {
                warn!("sandbox profile {name} gets no jobs: {}", unmet.join("; "));
            }
        }
    }

    /// Returns the sandbox as the worker registers it.
    pub(crate) fn registration(&self) -> WorkerSandbox {
        let of_report = &self.report;
        WorkerSandbox {
            default_profile: self.default_profile().map(|profile| profile.name.clone()),
            profiles: self.unmet.clone(),
            enforced: of_report.enforced.iter().map(|(name, by)| (name.to_string(), by.clone())).collect(),
            missing: of_report.missing.iter().map(|(name, why)| (name.to_string(), why.clone())).collect(),
        }
    }

    /// Returns the means by which the memory of jobs without a sandbox is bounded.
    pub(crate) fn memory_bounds(&self) -> MemoryBounds {
        MemoryBounds::of(self.pool.control_groups().cloned())
    }

    /// Returns the profile of a job whose plan asks for `wanted`, or `None` if the job runs without
    /// a sandbox. The error is the reason why the job cannot run.
    pub(crate) fn profile_of(&self, wanted: Option<&PlanSandbox>) -> Result<Option<&Profile>, String> {
        let Some(wanted) = wanted else { return Ok(self.default_profile()) };
        let name = &wanted.profile;
        match (self.settings.profiles.get(name), self.unmet.get(name)) {
            (Some(profile), Some(unmet)) if unmet.is_empty() => Ok(Some(profile)),
            (Some(_), unmet) => {
                let unmet = unmet.map_or_else(String::new, |unmet| unmet.join("; "));
                Err(format!("this worker cannot enforce the sandbox profile '{name}': {unmet}"))
            }
            (None, _) => Err(format!("the owner of this worker defines no sandbox profile '{name}'")),
        }
    }

    /// Returns the profile of jobs whose plan names none.
    pub(crate) fn strangers(&self) -> &str {
        &self.settings.strangers
    }

    /// Returns true if also jobs of fully trusted signers run in a sandbox.
    pub(crate) fn confine_all(&self) -> bool {
        self.settings.mode == Mode::All
    }

    fn default_profile(&self) -> Option<&Profile> {
        match self.settings.mode {
            Mode::Off | Mode::Requested => None,
            Mode::Untrusted | Mode::All => self.settings.profiles.get(&self.settings.strangers),
        }
    }

    /// Begins a job of `profile` that may execute `programs`. The supervisor keeps `hold` until it
    /// has cleaned up after the job, or has ended. A shortage ends idle supervisors of other
    /// profiles, so that the next call may succeed.
    pub(crate) async fn begin(
        &self,
        profile: &Profile,
        programs: Vec<String>,
        hold: Option<ResourceHold>,
    ) -> io::Result<JobSandbox> {
        let taken = self.pool.take(profile).await.map_err(error_of);
        if taken.as_ref().is_err_and(is_shortage) {
            self.pool.end_idle(Some(&profile.name));
        }
        let mut supervisor = taken?;
        supervisor.set_hold(hold);
        JobSandbox::begin(supervisor, (profile, Some(self.pool.clone())), programs)
    }

    /// Begins the description of an agentic unit: as a job of `reader` that also reads the
    /// directory of the unit, and executes what it can read, because units are often scripts.
    pub(crate) async fn begin_description(&self, unit: &Path) -> io::Result<JobSandbox> {
        let directory = unit.canonicalize()?.parent().map(|parent| encode_os(parent.as_os_str()));
        let profile = Profile {
            name: "description".into(),
            read: directory.into_iter().collect(),
            execute: Execute::Any,
            needs: Some(self.report.properties()),
            ..Profile::reader()
        };
        let supervisor = self.pool.start(&profile).await.map_err(error_of)?;
        JobSandbox::begin(supervisor, (&profile, None), vec![encode_os(unit.as_os_str())])
    }

    /// Ends all supervisors that wait for a job, because a task needs their resources.
    pub(crate) fn end_idle(&self) {
        self.pool.end_idle(None);
    }

    /// Ends all supervisors, and waits at most `bound` for their end.
    pub(crate) fn shut_down(&self, bound: Duration) {
        self.pool.shut_down(bound);
    }
}

/// Returns the error of a supervisor that did not start. The error number of a shortage is kept,
/// also of one that the supervisor met: nothing of the job has run, so the start is repeated.
fn error_of(error: SupervisorError) -> io::Error {
    match error {
        SupervisorError::System(error) => error,
        SupervisorError::Fault(fault) => shortage_of(&fault).unwrap_or_else(|| io::Error::other(fault)),
        error => io::Error::other(error.to_string()),
    }
}

fn shortage_of(fault: &StepFault) -> Option<io::Error> {
    let shortage = fault.errno.map(io::Error::from_raw_os_error).filter(is_shortage)?;
    debug!("a sandbox meets a shortage while it sets itself up: {fault}");
    Some(shortage)
}

#[cfg(test)]
mod tests {
    use agenix_sandbox::{client::SupervisorError, fault::Step};
    use rustix::io::Errno;

    use super::{StepFault, error_of, is_shortage};

    #[test]
    fn set_up_is_repeated_only_after_a_shortage() {
        let error = |errno: Errno| {
            error_of(SupervisorError::Fault(StepFault::of(Step::Setup, "start the supervisor", errno)))
        };
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_shortage(&error(errno)), "{errno}");
        }
        let denied = error(Errno::ACCESS);
        assert!(!is_shortage(&denied));
        let text = "sandbox, step setup: start the supervisor: Permission denied (os error 13)";
        assert_eq!(denied.to_string(), text);
    }
}
