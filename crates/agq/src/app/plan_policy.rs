//! Policy of agq: judges plans before they are stored. Each worker decides again, by its own
//! policy.

use std::{
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use agenix_policy::{Decision, Judgement, Policy};
use agenix_protocol::documents::Plan;
use agenix_rules::rejection::Rejection;
use anyhow::Context;
use sha2::{Digest, Sha256};

/// Policy of agq, if it has one.
#[derive(Debug, Default)]
pub(crate) struct PlanPolicy {
    file: Option<PathBuf>,
    policy: RwLock<Option<DigestedPolicy>>,
}

#[derive(Debug)]
struct DigestedPolicy {
    policy: Policy,
    /// SHA-256 of the file, in hexadecimal digits.
    digest: String,
}

/// Decision about a plan that may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanDecision {
    /// Jobs of the plan may run.
    Allowed,
    /// A person has to approve the plan.
    NeedsApproval(Question),
}

/// Question of a policy to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// Reasons of the policy to ask, each with its place.
    pub(crate) reasons: Vec<String>,
    /// Digest of the policy.
    pub(crate) policy: String,
}

impl PlanPolicy {
    /// Reads the policy in `file`, if one is given.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let policy = file.map(read).transpose()?;
        Ok(Self { file: file.map(Path::to_path_buf), policy: RwLock::new(policy) })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the digest of the policy, in hexadecimal digits.
    pub(crate) fn digest(&self) -> Option<String> {
        let current = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|policy| policy.digest.clone())
    }

    /// Reads the policy again. After an error, the policy stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let policy = self.file.as_deref().map(read).transpose()?;
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        Ok(())
    }

    /// Judges a plan, which an agent stores if `is_of_agent`. Fails if the policy refuses the plan.
    pub(crate) fn check(&self, plan: &Plan, is_of_agent: bool) -> Result<PlanDecision, Rejection> {
        let current = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let Some(DigestedPolicy { policy, digest }) = &*current else { return Ok(PlanDecision::Allowed) };
        let judgement = policy.judge(plan);
        if judgement.decision == Decision::Refuse {
            let reason = judgement.strictest_finding().map(|(task, finding)| {
                let place = task.map(|task| format!("task {} ({}), ", task.task_number, task.command));
                format!("{}{finding}", place.unwrap_or_default())
            });
            return Err(Rejection::RefusedByPolicy(reason.unwrap_or_default()));
        }
        let of_agent = policy.asks().about_agent_plan().filter(|_| is_of_agent);
        let reasons: Vec<String> = of_agent.into_iter().chain(findings(&judgement)).collect();
        if reasons.is_empty() {
            return Ok(PlanDecision::Allowed);
        }
        Ok(PlanDecision::NeedsApproval(Question { reasons, policy: digest.clone() }))
    }

    /// Returns the question about an action that would have `jobs` jobs.
    pub(crate) fn about_jobs(&self, jobs: u64) -> Option<Question> {
        let current = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let DigestedPolicy { policy, digest } = current.as_ref()?;
        let reason = policy.asks().about_jobs(jobs)?;
        Some(Question { reasons: vec![reason], policy: digest.clone() })
    }
}

/// Returns the findings that need an approval, each with its place.
fn findings(judgement: &Judgement) -> impl Iterator<Item = String> {
    let of_plan = judgement.findings.iter().map(ToString::to_string);
    let of_tasks = judgement.tasks.iter().flat_map(|task| {
        let named = move |finding| format!("task {} ({}), {finding}", task.task_number, task.command);
        task.findings.iter().map(named)
    });
    of_plan.chain(of_tasks)
}

fn read(file: &Path) -> anyhow::Result<DigestedPolicy> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the policy {shown}"))?;
    let advice = || format!("policy {shown} (`agx policy check` shows all its faults)");
    let policy = Policy::parse_with_examples(&text).with_context(advice)?;
    let digest = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(DigestedPolicy { policy, digest })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Plan, parse};

    use super::{PlanDecision, PlanPolicy, Question};

    fn plan(command: &str, args: &str) -> Plan {
        let json = format!(r#"{{"tasks": [{{"task_number": 1, "command": "{command}", "args": {args}}}]}}"#);
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn plan_is_refused_with_the_place_and_the_nearest_allowed_form() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        let text = "version = 1\n[tools.sort]\noptions = ['-n']\n[tools.awk]\nclass = 'interpreter'";
        std::fs::write(&file, text).unwrap();
        let policy = PlanPolicy::read(Some(&file)).unwrap();
        let reason =
            |command: &str, args: &str| policy.check(&plan(command, args), false).unwrap_err().to_string();
        assert_eq!(policy.check(&plan("sort", r#"["-n"]"#), false), Ok(PlanDecision::Allowed));
        assert_eq!(
            reason("sort", r#"["-o", "x"]"#),
            "Plan refused by policy: task 1 (sort), args[0]: the option '-o' is not listed; instead: leave -o out: [-n]"
        );
        let asked = policy.check(&plan("awk", r#"["1"]"#), false).unwrap();
        let PlanDecision::NeedsApproval(Question { reasons, policy: digest }) = asked else {
            panic!("{asked:?}")
        };
        let reason = "task 1 (awk), command: tools.awk is an interpreter: it runs code of the plan";
        assert_eq!((reasons, digest.len()), (vec![reason.to_owned()], 64));
        std::fs::write(&file, "version = 1\nuse = ['sh']").unwrap();
        assert!(policy.reload().is_err());
        assert!(policy.check(&plan("sort", r#"["-n"]"#), false).is_ok(), "the policy stays as it was");
        std::fs::write(&file, "version = 1").unwrap();
        policy.reload().unwrap();
        assert!(policy.check(&plan("sort", r#"["-n"]"#), false).is_err());
    }

    #[test]
    fn policy_asks_about_the_plans_of_agents_and_many_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        let text = "version = 1\nuse = ['true']\n[ask]\nagent_plans = true\njobs_over = 2";
        std::fs::write(&file, text).unwrap();
        let policy = PlanPolicy::read(Some(&file)).unwrap();
        assert_eq!(policy.check(&plan("true", "[]"), false), Ok(PlanDecision::Allowed));
        let asked = policy.check(&plan("true", "[]"), true);
        assert!(matches!(asked, Ok(PlanDecision::NeedsApproval(asked)) if asked.reasons.len() == 1));
        assert!(policy.about_jobs(2).is_none() && policy.about_jobs(3).is_some());
        assert!(PlanPolicy::default().about_jobs(u64::MAX).is_none());
    }

    #[test]
    fn agq_without_a_policy_accepts_every_plan() {
        assert_eq!(
            PlanPolicy::default().check(&plan("sh", r#"["-c", "id"]"#), true),
            Ok(PlanDecision::Allowed)
        );
    }
}
