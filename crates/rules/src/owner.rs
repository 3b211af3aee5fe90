//! Owners of plans, actions and jobs, and the rules of agents: an agent sees and changes only what
//! it owns.

use std::{collections::BTreeSet, fmt};

use agenix_protocol::{documents::ActionSubmission, ids::QueueName, reserved_keys::READY, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::rejection::Rejection;

/// Longest time from the submission of an agent's action to the start of its jobs, in milliseconds:
/// a day.
pub const MAX_AGENT_DELAY_MS: u64 = 86_400_000;

/// First part of the name of an owner that is an agent.
const AGENT: &str = "agent:";
/// First part of the name of an owner that is an admin.
const ADMIN: &str = "admin:";

/// Owner of a record: role and name of the key that submitted it, as `client:alice`. Nobody owns
/// what the session key submits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(Box<str>);

impl Owner {
    /// Returns the owner with a role and a name. Names have no colons.
    pub fn new(role: &str, name: &str) -> Self {
        Self(format!("{role}:{name}").into())
    }

    /// Returns role and name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the client or the agent, which alone can have a budget.
    pub fn budget_name(&self) -> Option<&str> {
        let (role, name) = self.0.split_once(':')?;
        matches!(role, "client" | "agent").then_some(name)
    }

    /// Returns true if the owner is an admin.
    pub fn is_admin(&self) -> bool {
        self.0.starts_with(ADMIN)
    }

    fn is_agent(&self) -> bool {
        self.0.starts_with(AGENT)
    }
}

impl From<String> for Owner {
    /// Returns the owner with this role and name, as a store has it.
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns true if both records can come from one submission that was repeated. People may repeat a
/// submission with another key. The submission of an agent is never that of another owner, because
/// the answer would disclose a record that the agent does not own.
pub fn may_be_repeated(known: Option<&Owner>, new: Option<&Owner>) -> bool {
    let is_of_agent = known.is_some_and(Owner::is_agent) || new.is_some_and(Owner::is_agent);
    known == new || !is_of_agent
}

/// Terms of the key of an agent, from the config file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentTerms {
    /// Queues of the agent's actions; `None` for any queue.
    pub queues: Option<BTreeSet<QueueName>>,
}

impl AgentTerms {
    /// Checks the queue and the time of an action that an agent submits at `now`.
    pub fn check(&self, action: &ActionSubmission, now: Timestamp) -> Result<(), Rejection> {
        self.check_queue(action.queue.as_ref().map_or(READY, QueueName::as_str))?;
        let latest = now.plus_ms(MAX_AGENT_DELAY_MS);
        #[expect(clippy::cast_precision_loss, reason = "a day in milliseconds is exact")]
        let is_far = action.delay_secs.is_some_and(|delay| delay * 1000.0 > MAX_AGENT_DELAY_MS as f64);
        if is_far || action.run_at.is_some_and(|at| at > latest) {
            let text = "This key is an agent's and may not delay an action by more than 24 hours";
            return Err(Rejection::NotPermitted(text.into()));
        }
        Ok(())
    }

    /// Checks the queue of an action that an agent submits or adds inputs to.
    pub fn check_queue(&self, queue: &str) -> Result<(), Rejection> {
        let Some(queues) = self.queues.as_ref().filter(|queues| !is_among(queues, queue)) else {
            return Ok(());
        };
        let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        let text = format!("This key may not use the queue {queue}, but only {}", names.join(", "));
        Err(Rejection::NotPermitted(text))
    }
}

fn is_among(queues: &BTreeSet<QueueName>, queue: &str) -> bool {
    queues.iter().any(|name| name.as_str() == queue)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{ActionSubmission, parse},
        time::Timestamp,
    };

    use super::{AgentTerms, MAX_AGENT_DELAY_MS, Owner, may_be_repeated};

    #[test]
    fn only_people_may_repeat_the_submission_of_somebody_else() {
        let alice = Owner::new("client", "alice");
        let root = Owner::new("admin", "root");
        let one = Owner::new("agent", "one");
        let other = Owner::new("agent", "other");
        for (known, new, expected) in [
            (None, None, true),
            (Some(&alice), None, true),
            (None, Some(&alice), true),
            (Some(&alice), Some(&root), true),
            (Some(&one), Some(&one), true),
            (Some(&one), Some(&other), false),
            (Some(&one), Some(&alice), false),
            (Some(&alice), Some(&one), false),
            (Some(&one), None, false),
            (None, Some(&one), false),
        ] {
            assert_eq!(may_be_repeated(known, new), expected, "{known:?} {new:?}");
        }
    }

    #[test]
    fn owners_of_one_name_and_two_roles_differ() {
        assert_ne!(Owner::new("admin", "claude-1"), Owner::new("agent", "claude-1"));
        assert_eq!(Owner::new("agent", "claude-1").to_string(), "agent:claude-1");
        let names = ["agent", "client", "admin", "worker"]
            .map(|role| Owner::new(role, "one").budget_name().map(str::to_owned));
        assert_eq!(names, [Some("one".into()), Some("one".into()), None, None]);
    }

    fn refused(terms: &AgentTerms, options: &str) -> Option<String> {
        let json = format!(r#"{{"plan_id":"p","inputs":[{{}}]{options}}}"#);
        let action: ActionSubmission = parse(json.as_bytes()).unwrap();
        terms.check(&action, Timestamp(1_000)).err().map(|rejection| rejection.line())
    }

    #[test]
    fn agents_use_their_queues_alone() {
        let any = AgentTerms::default();
        assert_eq!([refused(&any, ""), refused(&any, r#","queue":"gpu""#)], [None, None]);
        let queues = ["agents", "slow"].map(|name| name.parse().unwrap()).into();
        let bound = AgentTerms { queues: Some(queues) };
        assert_eq!(refused(&bound, r#","queue":"slow""#), None);
        let line =
            |queue: &str| format!("NOPERM This key may not use the queue {queue}, but only agents, slow");
        assert_eq!(refused(&bound, ""), Some(line("ready")));
        assert_eq!(refused(&bound, r#","queue":"gpu""#), Some(line("gpu")));
    }

    #[test]
    fn agents_delay_actions_by_a_day_at_most() {
        let terms = AgentTerms::default();
        let far = "NOPERM This key is an agent's and may not delay an action by more than 24 hours";
        let last = Timestamp(1_000).plus_ms(MAX_AGENT_DELAY_MS);
        assert_eq!(refused(&terms, &format!(r#","run_at":"{last}""#)), None);
        assert_eq!(refused(&terms, &format!(r#","run_at":"{}""#, last.plus_ms(1))).as_deref(), Some(far));
        assert_eq!(refused(&terms, r#","delay_secs":86400"#), None);
        assert_eq!(refused(&terms, r#","delay_secs":86400.001"#).as_deref(), Some(far));
    }
}
