//! Rights of a job: the sandbox profile in which it runs, by the signers of its plan.

use agenix_order::{Grant, OrderLimits, Verified};
use agenix_protocol::documents::PlanSandbox;
use agenix_sandbox::profile::Profile;

use super::denied::Denied;
use crate::exec::sandbox::sandboxes::Sandboxes;

/// Rights of a job.
#[derive(Debug, Clone, Default)]
pub(crate) enum Rights {
    /// The worker has no trust file, so the sandbox settings and the plan decide.
    #[default]
    Unchecked,
    /// Nobody has signed the plan.
    Stranger,
    /// Trusted keys have signed the plan.
    Signed(Box<Verified>),
}

/// Sandbox profiles that are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WantedProfile<'p> {
    /// Profile that the plan asks for.
    pub(crate) plan: Option<&'p PlanSandbox>,
    /// Profile that the policy of the worker's owner asks for.
    pub(crate) policy: Option<&'p PlanSandbox>,
}

impl Rights {
    pub(crate) fn limits(&self) -> OrderLimits {
        match self {
            Self::Unchecked | Self::Stranger => OrderLimits::default(),
            Self::Signed(verified) => verified.order.terms.limits,
        }
    }

    /// Returns the profile of the job, or `None` if the job runs without a sandbox.
    pub(super) fn profile<'s>(
        &self,
        sandboxes: Option<&'s Sandboxes>,
        wanted: WantedProfile<'_>,
    ) -> Result<Option<&'s Profile>, Denied> {
        let asked = wanted.plan.or(wanted.policy);
        match self {
            Self::Unchecked => of_sandboxes(sandboxes, asked),
            Self::Stranger => {
                let Some(sandboxes) = sandboxes else {
                    let reason = "nobody has signed the plan, and this worker has no sandbox for the plans of strangers";
                    return Err(Denied::Refused(reason.into()));
                };
                let granted = [Some(sandboxes.strangers()), policy_of(wanted)];
                check(asked, &granted, "a plan that nobody has signed")?;
                of_sandboxes(Some(sandboxes), asked)
            }
            Self::Signed(verified) => signed(verified, sandboxes, wanted),
        }
    }
}

fn signed<'s>(
    verified: &Verified,
    sandboxes: Option<&'s Sandboxes>,
    wanted: WantedProfile<'_>,
) -> Result<Option<&'s Profile>, Denied> {
    let of_terms = verified.order.terms.profile.clone().map(|profile| PlanSandbox { profile });
    let of_plan = wanted.plan.or(wanted.policy);
    if let (Some(terms), Some(plan)) = (&of_terms, of_plan)
        && terms != plan
    {
        let (terms, plan) = (&terms.profile, &plan.profile);
        let reason = format!("the order names the sandbox profile '{terms}', and its plan runs in '{plan}'");
        return Err(Denied::Refused(reason));
    }
    let asked = of_terms.as_ref().or(of_plan);
    match &verified.grant {
        Grant::Full => match (asked, sandboxes) {
            (None, Some(sandboxes)) if !sandboxes.confine_all() => Ok(None),
            (asked, sandboxes) => of_sandboxes(sandboxes, asked),
        },
        Grant::Profile(granted) => {
            let own = PlanSandbox { profile: granted.clone() };
            let strangers = sandboxes.map(Sandboxes::strangers);
            let signers = format!("a plan that {} signed", verified.signers.join(", "));
            check(asked, &[Some(granted), strangers, policy_of(wanted)], &signers)?;
            of_sandboxes(sandboxes, Some(asked.unwrap_or(&own)))
        }
    }
}

fn policy_of<'p>(wanted: WantedProfile<'p>) -> Option<&'p str> {
    wanted.policy.map(|policy| policy.profile.as_str())
}

/// Checks that the profile that is asked for is one of the granted ones.
fn check(asked: Option<&PlanSandbox>, granted: &[Option<&str>], subject: &str) -> Result<(), Denied> {
    let Some(asked) = asked else { return Ok(()) };
    let profile = asked.profile.as_str();
    if granted.contains(&Some(profile)) {
        return Ok(());
    }
    let mut granted: Vec<&str> = granted.iter().flatten().copied().collect();
    granted.dedup();
    let granted = granted.join("' or '");
    Err(Denied::Refused(format!("{subject} runs in the sandbox profile '{granted}', and not in '{profile}'")))
}

fn of_sandboxes<'s>(
    sandboxes: Option<&'s Sandboxes>,
    asked: Option<&PlanSandbox>,
) -> Result<Option<&'s Profile>, Denied> {
    match (sandboxes, asked) {
        (Some(sandboxes), asked) => sandboxes.profile_of(asked).map_err(Denied::Failed),
        (None, Some(asked)) => Err(Denied::Failed(no_sandbox(&asked.profile))),
        (None, None) => Ok(None),
    }
}

/// Returns the reason why a job does not run. agq gives a job with a sandbox profile to no worker
/// without a sandbox.
fn no_sandbox(profile: &str) -> String {
    format!("the plan asks for the sandbox profile '{profile}', and this worker runs no job in a sandbox")
}
