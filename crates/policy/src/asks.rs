//! Table `[ask]` of a policy: what a person has to approve beside single tools.

use std::collections::BTreeSet;

use agenix_protocol::documents::is_profile_name;
use serde::Deserialize;

/// Questions of a policy to a person, beside those about single tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asks {
    /// Sandbox profiles whose plans need approval, such as those with a network.
    pub profiles: BTreeSet<String>,
    /// True if every plan that an agent stores needs approval.
    pub agent_plans: bool,
    /// Number of jobs of an action beyond which its plan needs approval. `None`: no number does.
    pub jobs_over: Option<u64>,
}

impl Asks {
    /// Checks the names of the profiles. The error is a reason.
    pub(crate) fn checked(self) -> Result<Self, String> {
        match self.profiles.iter().find(|profile| !is_profile_name(profile)) {
            Some(wrong) => Err(format!("'{}' is not the name of a sandbox profile", wrong.escape_debug())),
            None => Ok(self),
        }
    }

    /// Returns the reason for which a plan in the sandbox profile `profile` needs approval.
    #[must_use]
    pub fn about_profile(&self, profile: &str) -> Option<String> {
        self.profiles
            .contains(profile)
            .then(|| format!("plans in the sandbox profile '{profile}' need approval"))
    }

    /// Returns the reason for which an action with `jobs` jobs needs the approval of its plan.
    #[must_use]
    pub fn about_jobs(&self, jobs: u64) -> Option<String> {
        let most = self.jobs_over.filter(|most| jobs > *most)?;
        Some(format!("an action has {jobs} jobs, and more than {most} need approval"))
    }

    /// Returns the reason for which the plan of an agent needs approval.
    #[must_use]
    pub fn about_agent_plan(&self) -> Option<String> {
        self.agent_plans.then(|| "an agent has stored the plan".to_owned())
    }
}
