//! Policies and orders that admitted jobs, for the results of the tasks of the jobs.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::documents::{PlanSandbox, TaskAdmission, TaskResult};

use super::rights::Rights;

/// Decision of the policy that a plan may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Sandbox profile that the policy names.
    pub(crate) sandbox: Option<PlanSandbox>,
    /// Rules that allowed the tasks. `None` without a policy.
    pub(crate) rules: Option<Arc<AppliedRules>>,
}

/// Rules of a policy that allowed the tasks of a plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedRules {
    /// SHA-256 of the policy, as `sha256:…`.
    pub(super) policy: Arc<str>,
    /// Rules by the numbers of the tasks.
    pub(super) rules: BTreeMap<u32, String>,
}

/// Policy and order by which a job runs.
#[derive(Debug, Default)]
pub(crate) struct JobAdmission {
    rules: Option<Arc<AppliedRules>>,
    rights: Rights,
}

impl JobAdmission {
    pub(crate) fn new(rules: Option<Arc<AppliedRules>>, rights: Rights) -> Self {
        Self { rules, rights }
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Sets the admission of each result. Without a policy and an order, nothing is set.
    pub(crate) fn mark(&self, results: &mut [TaskResult]) {
        let order = match &self.rights {
            Rights::Signed(verified) => Some(verified),
            Rights::Unchecked | Rights::Stranger => None,
        };
        if self.rules.is_none() && order.is_none() {
            return;
        }
        for result in results {
            let rules = self.rules.as_ref();
            result.admission = Some(TaskAdmission {
                policy: rules.map(|rules| rules.policy.to_string()),
                rule: rules.and_then(|rules| rules.rules.get(&result.task_number)).cloned(),
                order: order.map(|order| order.digest.to_string()),
                signers: order.map(|order| order.signers.clone()).unwrap_or_default(),
                approvers: order.map(|order| order.approvers.clone()).unwrap_or_default(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use agenix_protocol::documents::{TaskAdmission, TaskResult};

    use super::{AppliedRules, JobAdmission};
    use crate::exec::admission::rights::Rights;

    #[test]
    fn results_name_the_policy_and_the_rule_of_their_task() {
        let result = |task_number| TaskResult { task_number, ..TaskResult::default() };
        let mut results = [result(1), result(2)];
        JobAdmission::new(None, Rights::Stranger).mark(&mut results);
        assert_eq!(results, [result(1), result(2)], "nothing is known about a stranger's job");
        let rules = BTreeMap::from([(2, "tools.sort".to_owned())]);
        let rules = Arc::new(AppliedRules { policy: "sha256:ab".into(), rules });
        JobAdmission::new(Some(rules), Rights::Unchecked).mark(&mut results);
        let of_policy = TaskAdmission { policy: Some("sha256:ab".into()), ..TaskAdmission::default() };
        assert_eq!(results[0].admission.as_ref(), Some(&of_policy));
        let rule = Some("tools.sort".into());
        assert_eq!(results[1].admission, Some(TaskAdmission { rule, ..of_policy }));
    }
}
