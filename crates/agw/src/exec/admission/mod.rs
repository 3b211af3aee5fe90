//! Admission: decides whether this worker may run a job, before anything of the job starts.
//!
//! The policy of the worker's owner judges each plan, and the types of the plan judge each input.
//! agq has checked both, and the worker trusts neither agq nor its clients, so the worker decides
//! again. With a trust file, the worker also checks who has signed the plan, and the signers decide
//! the sandbox.

mod admitted;
mod decision;
mod denied;
mod policy_file;
mod rights;
mod serial_file;
mod trust;

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use agenix_policy::{Decision, Finding, Judgement, TaskJudgement};
use agenix_protocol::{
    documents::{CapturedOutput, Plan, PlanSandbox, TaskResult},
    ids::WorkerId,
    inputs::{NamedField, check_input, named_fields},
};
use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use self::{
    admitted::JobAdmission,
    decision::{AdmittedJob, WorkerPrograms},
    trust::TrustSettings,
};
use self::{
    admitted::{Allowed, AppliedRules},
    policy_file::LoadedPolicy,
    trust::Trust,
};
use crate::exec::{program_file::ProgramFiles, programs::OfferedPrograms};

/// Exit code of a refused task: EX_CONFIG of sysexits.h, after which agq does not retry the job.
const REFUSED_EXIT_CODE: i32 = 78;
/// Reason of a refusal without a finding.
const NOT_ALLOWED: &str = "the policy of this worker does not allow it";
/// Maximum number of plans whose judgement is kept.
const MAX_PLANS: usize = 16;

/// Effect of a policy that asks for the approval of a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AskedPlans {
    /// The worker refuses the job.
    #[default]
    Refuse,
    /// The worker runs the job, because it trusts agq to have asked.
    LeaveToAgq,
}

/// Reason for which the worker refuses a job. Another attempt would be refused, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmissionRefusal {
    task_number: u32,
    command: String,
    reason: String,
    /// Worker that refuses the job as a whole, because of its order.
    worker: Option<WorkerId>,
}

/// Reason why a job does not start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unadmitted {
    /// The job fails. agq may try it again.
    Failed(String),
    /// The worker refuses the job.
    Refused(AdmissionRefusal),
}

impl From<String> for Unadmitted {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl AdmissionRefusal {
    /// Returns the reason of the job's failure, and the result of the refused task.
    pub(crate) fn into_results(self) -> (String, Vec<TaskResult>) {
        let Self { task_number, command, reason, worker } = self;
        let stderr = CapturedOutput::whole(format!("refused: {reason}\n").into());
        let reason = match worker {
            Some(worker) => format!("refused by worker {worker}: {reason}"),
            None => format!("refused: task {task_number} ({command}), {reason}"),
        };
        let result = TaskResult {
            task_number,
            command,
            exit_code: REFUSED_EXIT_CODE,
            stderr,
            ..TaskResult::default()
        };
        (reason, vec![result])
    }
}

/// Policy of the worker's owner, if there is one, and the plans that it has judged.
#[derive(Debug, Default)]
pub(crate) struct AdmissionControl {
    file: Option<PathBuf>,
    asked: AskedPlans,
    policy: RwLock<Option<LoadedPolicy>>,
    judged: Mutex<VecDeque<Arc<JudgedPlan>>>,
    programs: ProgramFiles,
    trust: Option<Trust>,
    /// Id of this worker, which the worker replaces if another worker has the same id.
    worker_id: Mutex<Option<WorkerId>>,
}

/// Plan, and the decision about it.
#[derive(Debug)]
struct JudgedPlan {
    plan: Arc<Plan>,
    fields: BTreeSet<NamedField>,
    decision: Result<AllowedPlan, AdmissionRefusal>,
}

/// Plan that may run, and its conditions.
#[derive(Debug, Default)]
struct AllowedPlan {
    allowed: Allowed,
    /// Programs that have to be certain files.
    pinned: Vec<PinnedProgram>,
}

/// Program of a task that the policy identifies.
#[derive(Debug)]
struct PinnedProgram {
    task_number: u32,
    command: String,
    path: String,
    sha256: Option<String>,
}

impl AdmissionControl {
    /// Reads the policy in `file`, if one is given.
    pub(crate) fn read(file: Option<PathBuf>, asked: AskedPlans) -> anyhow::Result<Self> {
        let policy = file.as_deref().map(policy_file::read).transpose()?;
        Ok(Self { file, asked, policy: RwLock::new(policy), ..Self::default() })
    }

    /// Reads the trust file, if one is given.
    pub(crate) fn with_trust(self, settings: Option<TrustSettings>) -> anyhow::Result<Self> {
        Ok(Self { trust: settings.map(Trust::read).transpose()?, ..self })
    }

    /// Sets the sandbox profiles that the trust file may grant when it is read again. `None` for a
    /// worker that runs no job in a sandbox.
    pub(crate) fn set_profiles(&mut self, profiles: Option<BTreeSet<String>>) {
        if let Some(trust) = &mut self.trust {
            trust.set_profiles(profiles);
        }
    }

    /// Returns true if the worker has a policy.
    pub(crate) fn has_policy(&self) -> bool {
        self.file.is_some()
    }

    /// Returns true if the worker has a trust file.
    pub(crate) fn has_trust(&self) -> bool {
        self.trust.is_some()
    }

    /// Returns the sandbox profiles that the trust file grants.
    pub(crate) fn trusted_profiles(&self) -> Vec<String> {
        self.trust.as_ref().map(Trust::profiles).unwrap_or_default()
    }

    /// Sets the id that refusals name.
    pub(crate) fn set_worker_id(&self, worker_id: &WorkerId) {
        *self.worker_id.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker_id.clone());
    }

    pub(crate) fn worker_id(&self) -> Option<WorkerId> {
        self.worker_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the policy and the trust file again, each also after a fault of the other. A faulty
    /// file changes nothing. Returns the names and faults of the faulty files.
    pub(crate) fn reload(&self) -> Vec<(&'static str, anyhow::Error)> {
        let trust = self.trust.as_ref().map_or(Ok(()), Trust::reload);
        let read = [("policy", self.reload_policy()), ("trust file", trust)];
        read.into_iter().filter_map(|(name, read)| Some((name, read.err()?))).collect()
    }

    fn reload_policy(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let policy = policy_file::read(file)?;
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().and_then(LoadedPolicy::profile) != policy.profile() {
            anyhow::bail!("the policy names another sandbox profile than before: restart the worker");
        }
        *current = Some(policy);
        // The lock of the decisions comes before that of the policy.
        drop(current);
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// Returns the sandbox profile that the policy names.
    pub(crate) fn profile(&self) -> Option<String> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.as_ref().and_then(LoadedPolicy::profile).map(str::to_owned)
    }

    /// Decides about a job: its plan and its input. Returns the sandbox profile that the policy
    /// names, and the rules that allow the plan.
    fn admit(
        &self,
        plan: &Arc<Plan>,
        input: &RawValue,
        programs: &OfferedPrograms,
    ) -> Result<Allowed, AdmissionRefusal> {
        if self.file.is_none() && plan.inputs.is_empty() {
            return Ok(Allowed::default());
        }
        let judged = self.judged(plan);
        let AllowedPlan { allowed, pinned } = judged.decision.as_ref().map_err(Clone::clone)?;
        if !plan.inputs.is_empty() {
            check_input(input, &judged.fields, &plan.inputs)
                .map_err(|fault| refusal(plan, 1, format!("input{fault}")))?;
        }
        for PinnedProgram { task_number, command, path, sha256 } in pinned {
            let offered = programs.path(command);
            self.programs
                .check(offered, path, sha256.as_deref())
                .map_err(|reason| refusal(plan, *task_number, reason))?;
        }
        Ok(allowed.clone())
    }

    /// Decides about a command that is not part of a plan. The error is the reason of a refusal.
    pub(crate) fn admit_argv(
        &self,
        program: &str,
        args: &[String],
        programs: &OfferedPrograms,
    ) -> Result<(), String> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let Some(policy) = &*policy else { return Ok(()) };
        let judged = policy.policy.judge_argv(program, args);
        if judged.decision == Decision::Allow {
            return match pinned(judged) {
                Some(PinnedProgram { command, path, sha256, .. }) => {
                    self.programs.check(programs.path(&command), &path, sha256.as_deref())
                }
                None => Ok(()),
            };
        }
        Err(judged.strictest_finding().map_or_else(|| NOT_ALLOWED.to_owned(), reason_of))
    }

    /// Returns true if plans with this decision run.
    fn allows(&self, decision: Decision) -> bool {
        match decision {
            Decision::Allow => true,
            Decision::Ask => self.asked == AskedPlans::LeaveToAgq,
            Decision::Refuse => false,
        }
    }

    /// Turns a judgement by `policy` into the decision of this worker.
    fn decide(
        &self,
        judgement: Judgement,
        policy: &LoadedPolicy,
        plan: &Plan,
    ) -> Result<AllowedPlan, AdmissionRefusal> {
        if self.allows(judgement.decision) {
            let sandbox = judgement.profile.map(|profile| PlanSandbox { profile });
            let rule = |task: &TaskJudgement| Some((task.task_number, task.rule.clone()?));
            let rules = judgement.tasks.iter().filter_map(rule).collect();
            let rules = Some(Arc::new(AppliedRules { policy: Arc::clone(&policy.digest), rules }));
            let pinned = judgement.tasks.into_iter().filter_map(pinned).collect();
            return Ok(AllowedPlan { allowed: Allowed { sandbox, rules }, pinned });
        }
        let (task, reason) = match judgement.strictest_finding() {
            Some((task, finding)) => (task, reason_of(finding)),
            None => (None, NOT_ALLOWED.to_owned()),
        };
        Err(refusal(plan, task.map_or(1, |task| task.task_number), reason))
    }

    /// Returns the decision about a plan, from the cache if possible.
    fn judged(&self, plan: &Arc<Plan>) -> Arc<JudgedPlan> {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = judged.iter().find(|known| Arc::ptr_eq(&known.plan, plan)) {
            return Arc::clone(known);
        }
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let decision = policy.as_ref().map_or_else(
            || Ok(AllowedPlan::default()),
            |file| self.decide(file.policy.judge(plan), file, plan),
        );
        let newest = JudgedPlan { plan: Arc::clone(plan), fields: named_fields(plan), decision };
        let newest = Arc::new(newest);
        judged.push_front(Arc::clone(&newest));
        judged.truncate(MAX_PLANS);
        newest
    }
}

fn pinned(task: TaskJudgement) -> Option<PinnedProgram> {
    let TaskJudgement { task_number, command, sha256, .. } = task;
    Some(PinnedProgram { task_number, command, path: task.path?, sha256 })
}

/// Returns a finding as the reason of a refusal.
fn reason_of(finding: &Finding) -> String {
    let verb = match finding.decision {
        Decision::Ask => "asks for the approval of a person",
        Decision::Allow | Decision::Refuse => "refuses it",
    };
    format!("{finding}; the policy of this worker {verb}")
}

fn refusal(plan: &Plan, task_number: u32, reason: String) -> AdmissionRefusal {
    let task = plan.tasks.iter().find(|task| task.task_number == task_number);
    let command = task.map(|task| task.command.clone()).unwrap_or_default();
    AdmissionRefusal { task_number, command, reason, worker: None }
}

#[cfg(test)]
mod tests;
