//! Admission: decides whether this worker may run a job, before anything of the job starts.
//!
//! The policy of the worker's owner judges each plan, and the types of the plan judge each input.
//! agq has checked both, and the worker trusts neither agq nor its clients, so the worker decides
//! again.

mod policy_file;
mod program_file;

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use agenix_policy::{Decision, Finding, Judgement, Policy, TaskJudgement};
use agenix_protocol::{
    documents::{CapturedOutput, Plan, PlanSandbox, TaskResult},
    inputs::{NamedField, check_input, named_fields},
};

use serde::Deserialize;

use self::program_file::ProgramFiles;
use crate::exec::programs::Programs;

/// Exit code of a refused task: EX_CONFIG of sysexits.h, after which agq does not retry the job.
const REFUSED_EXIT_CODE: i32 = 78;
/// Reason of a refusal without a finding.
const NOT_ALLOWED: &str = "the policy of this worker does not allow it";
/// Maximum number of plans whose judgement is kept.
const MOST_PLANS: usize = 16;

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
pub(crate) struct Refusal {
    task_number: u32,
    command: String,
    reason: String,
}

impl Refusal {
    /// Returns the reason of the job's failure, and the result of the refused task.
    pub(crate) fn into_results(self) -> (String, Vec<TaskResult>) {
        let Self { task_number, command, reason } = self;
        let stderr = CapturedOutput::whole(format!("refused: {reason}\n").into());
        let reason = format!("refused: task {task_number} ({command}), {reason}");
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
pub(crate) struct Admission {
    file: Option<PathBuf>,
    asked: AskedPlans,
    policy: RwLock<Option<Policy>>,
    judged: Mutex<VecDeque<Arc<JudgedPlan>>>,
    programs: ProgramFiles,
}

/// Plan, and the decision about it.
#[derive(Debug)]
struct JudgedPlan {
    plan: Arc<Plan>,
    fields: BTreeSet<NamedField>,
    decision: Result<AllowedPlan, Refusal>,
}

/// Plan that may run, and its conditions.
#[derive(Debug, Default)]
struct AllowedPlan {
    /// Sandbox profile that the policy names.
    sandbox: Option<PlanSandbox>,
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

impl Admission {
    /// Reads the policy in `file`, if one is given.
    pub(crate) fn read(file: Option<PathBuf>, asked: AskedPlans) -> anyhow::Result<Self> {
        let policy = file.as_deref().map(policy_file::read).transpose()?;
        Ok(Self { file, asked, policy: RwLock::new(policy), ..Self::default() })
    }

    /// Reads the policy again. After an error, the policy stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let policy = policy_file::read(file)?;
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().and_then(Policy::profile) != policy.profile() {
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
        policy.as_ref().and_then(Policy::profile).map(str::to_owned)
    }

    /// Decides about a job: its plan, and its input, which is JSON text. Returns the sandbox
    /// profile that the policy names, if the plan may run.
    pub(crate) fn admit(
        &self,
        plan: &Arc<Plan>,
        input: &str,
        programs: &Programs,
    ) -> Result<Option<PlanSandbox>, Refusal> {
        if self.file.is_none() && plan.inputs.is_empty() {
            return Ok(None);
        }
        let judged = self.judged(plan);
        let allowed = judged.decision.as_ref().map_err(Clone::clone)?;
        if !plan.inputs.is_empty() {
            check_input(input, &judged.fields, &plan.inputs)
                .map_err(|fault| refusal(plan, 1, format!("input{fault}")))?;
        }
        for PinnedProgram { task_number, command, path, sha256 } in &allowed.pinned {
            let offered = programs.path(command);
            self.programs
                .check(offered, path, sha256.as_deref())
                .map_err(|reason| refusal(plan, *task_number, reason))?;
        }
        Ok(allowed.sandbox.clone())
    }

    /// Decides about a command that is not part of a plan. The error is the reason of a refusal.
    pub(crate) fn admit_argv(&self, program: &str, args: &[String]) -> Result<(), String> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let Some(policy) = &*policy else { return Ok(()) };
        let judged = policy.judge_argv(program, args);
        if judged.decision == Decision::Allow {
            return Ok(());
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

    /// Turns a judgement into the decision of this worker.
    fn decide(&self, judgement: Judgement, plan: &Plan) -> Result<AllowedPlan, Refusal> {
        if self.allows(judgement.decision) {
            let sandbox = judgement.profile.map(|profile| PlanSandbox { profile });
            let pinned = judgement.tasks.into_iter().filter_map(pinned).collect();
            return Ok(AllowedPlan { sandbox, pinned });
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
        let decision = policy
            .as_ref()
            .map_or_else(|| Ok(AllowedPlan::default()), |policy| self.decide(policy.judge(plan), plan));
        let newest = JudgedPlan { plan: Arc::clone(plan), fields: named_fields(plan), decision };
        let newest = Arc::new(newest);
        judged.push_front(Arc::clone(&newest));
        judged.truncate(MOST_PLANS);
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

fn refusal(plan: &Plan, task_number: u32, reason: String) -> Refusal {
    let task = plan.tasks.iter().find(|task| task.task_number == task_number);
    let command = task.map(|task| task.command.clone()).unwrap_or_default();
    Refusal { task_number, command, reason }
}

#[cfg(test)]
mod tests;
