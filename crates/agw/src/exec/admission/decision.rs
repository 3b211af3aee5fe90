//! Decision about one job: before the job waits for what it needs, and again when it starts.

use std::{
    io,
    sync::{Arc, PoisonError},
};

use agenix_protocol::documents::{JobDocument, Plan, PlanCache, parse};
use agenix_sandbox::profile::Profile;
use tracing::warn;

use super::{
    AdmissionControl, AdmissionRefusal, Unadmitted,
    admitted::JobAdmission,
    denied::Denied,
    rights::{Rights, WantedProfile},
};
use crate::{
    clock::now,
    exec::{programs::OfferedPrograms, sandbox::sandboxes::Sandboxes},
};

/// Programs, plans and sandboxes of the worker, by which it decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerPrograms<'s> {
    pub(crate) programs: &'s OfferedPrograms,
    pub(crate) plans: &'s PlanCache,
    pub(crate) sandboxes: Option<&'s Sandboxes>,
}

/// Job that may run.
#[derive(Debug)]
pub(crate) struct AdmittedJob<'s> {
    /// Plan of the job. With a trust file, a signed plan comes from the signed bytes.
    pub(crate) plan: Arc<Plan>,
    pub(crate) admission: JobAdmission,
    /// Sandbox profile. `None` if the job runs without a sandbox.
    pub(crate) profile: Option<&'s Profile>,
}

impl AdmissionControl {
    /// Decides about a job: its signers, its plan, its input, and its sandbox profile.
    pub(crate) fn admit_job<'s>(
        &self,
        job: &JobDocument,
        worker: WorkerPrograms<'s>,
    ) -> Result<AdmittedJob<'s>, Unadmitted> {
        let (plan, rights) = self.authorise(job, worker.plans)?;
        let allowed = self.admit(&plan, &job.inputs, worker.programs).map_err(Unadmitted::Refused)?;
        let wanted = WantedProfile { plan: plan.sandbox.as_ref(), policy: allowed.sandbox.as_ref() };
        let profile = self.sandbox_profile(job, &rights, worker.sandboxes, wanted)?;
        Ok(AdmittedJob { plan, admission: JobAdmission::new(allowed.rules, rights), profile })
    }

    /// Decides again about an admitted job whose attempt is about to start in the sandbox profile
    /// `prepared`, by the present policy, trust file and time: the job may have waited for long.
    /// Records the use of an order that limits its uses or its jobs. After an error, the attempt
    /// must not start. The outer error is that of the disk, and a later call may succeed.
    pub(crate) fn start(
        &self,
        job: &JobDocument,
        worker: WorkerPrograms<'_>,
        prepared: Option<&Profile>,
    ) -> io::Result<Result<JobAdmission, Unadmitted>> {
        if self.file.is_none() && self.trust.is_none() {
            return Ok(Ok(JobAdmission::default()));
        }
        let admission = match self.admit_again(job, worker, prepared) {
            Ok(admission) => admission,
            Err(unadmitted) => return Ok(Err(unadmitted)),
        };
        let Some(trust) = &self.trust else { return Ok(Ok(admission)) };
        let recorded = trust.record_use(admission.rights(), &job.job_id, now())?;
        Ok(recorded.map(|()| admission).map_err(|denied| self.unadmitted(denied, job)))
    }

    fn admit_again(
        &self,
        job: &JobDocument,
        worker: WorkerPrograms<'_>,
        prepared: Option<&Profile>,
    ) -> Result<JobAdmission, Unadmitted> {
        let AdmittedJob { admission, profile, .. } = self.admit_job(job, worker)?;
        if profile.map(|profile| &profile.name) != prepared.map(|prepared| &prepared.name) {
            let (before, after) = (place(prepared), place(profile));
            return Err(Unadmitted::Failed(format!(
                "the rights of the signers changed while the job waited: it was prepared to run {before}, and now has to run {after}; retry the job"
            )));
        }
        Ok(admission)
    }

    /// Returns the plan of a job, and the rights of its signers. With a trust file, a signed plan
    /// comes from the signed bytes.
    fn authorise(&self, job: &JobDocument, plans: &PlanCache) -> Result<(Arc<Plan>, Rights), Unadmitted> {
        let Some(trust) = &self.trust else {
            let plan = plans.read(job.plan.get());
            return Ok((
                plan.map_err(|error| format!("the plan cannot be read: {error}"))?,
                Rights::Unchecked,
            ));
        };
        trust.authorise(job, plans, now()).map_err(|denied| self.unadmitted(denied, job))
    }

    /// Returns the sandbox profile of a job, or `None` if the job runs without a sandbox.
    fn sandbox_profile<'s>(
        &self,
        job: &JobDocument,
        rights: &Rights,
        sandboxes: Option<&'s Sandboxes>,
        wanted: WantedProfile<'_>,
    ) -> Result<Option<&'s Profile>, Unadmitted> {
        let judged = wanted.plan.or(wanted.policy).map(|sandbox| sandbox.profile.as_str());
        let profile = rights.profile(sandboxes, wanted).and_then(|profile| {
            profile.map_or(Ok(()), |profile| self.check_unjudged_profile(&profile.name, judged))?;
            Ok(profile)
        });
        profile.map_err(|denied| self.unadmitted(denied, job))
    }

    /// Refuses a job in a sandbox profile that needs approval, if neither its plan nor the policy
    /// names the profile. The judgement of the plan, also that of agq, does not see a profile that
    /// an order, a signer or this worker chooses, so nobody has been asked.
    pub(super) fn check_unjudged_profile(&self, profile: &str, judged: Option<&str>) -> Result<(), Denied> {
        if judged == Some(profile) {
            return Ok(());
        }
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let asks = policy.as_ref().and_then(|file| file.policy.asks().about_profile(profile));
        asks.map_or(Ok(()), |reason| {
            Err(Denied::Refused(format!("{reason}: name the profile in the field sandbox of the plan")))
        })
    }

    fn unadmitted(&self, denied: Denied, job: &JobDocument) -> Unadmitted {
        match denied {
            Denied::Failed(reason) => Unadmitted::Failed(reason),
            Denied::Refused(reason) => {
                let worker = self.worker_id();
                warn!(job_id = %job.job_id, "the job is refused: {reason}");
                let plan = parse::<Plan>(job.plan.get().as_bytes()).ok();
                let task = plan.and_then(|plan| plan.tasks.into_iter().next());
                let command = task.map(|task| task.command).unwrap_or_default();
                Unadmitted::Refused(AdmissionRefusal { task_number: 1, command, reason, worker })
            }
        }
    }
}

/// Describes where a job runs.
fn place(profile: Option<&Profile>) -> String {
    profile.map_or_else(
        || "without a sandbox".to_owned(),
        |profile| format!("in the sandbox profile '{}'", profile.name),
    )
}
