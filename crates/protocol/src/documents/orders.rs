//! What agq wants of a worker: it comes with the answer to a heartbeat, as `OK orders={…}`.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// Orders for a worker. They are repeated with every heartbeat until they are obeyed or void; empty ones are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// Take no more jobs, and stay.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// Take no more jobs, finish those that run, and end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub terminate: bool,
    /// Kill what runs of these jobs within a second, and report nothing of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<JobId>,
    /// Run these commands, and say what came of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<Challenge>,
}

impl Orders {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        !self.drain && !self.terminate && self.cancel.is_empty() && self.verify.is_empty()
    }
}

/// A command that a worker runs to show that it has what it says (worker spec §7.3).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Challenge {
    /// What the answer is to be sent under.
    pub challenge_id: String,
    /// One of the worker's tools or agentic units.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// What came of a [`Challenge`]: what `WORKER.ANSWER` takes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChallengeAnswer {
    /// The exit code as a shell has it: 124 out of time, 126 not runnable, 127 not among the worker's tools.
    pub exit_code: i32,
    /// What the command wrote to stdout, or to stderr when that is empty; at most 4096 bytes.
    pub output: String,
}

#[cfg(test)]
mod tests {
    use super::{Challenge, Orders};
    use crate::documents::{parse, to_json};

    #[test]
    fn only_what_is_wanted_is_written() {
        assert!(Orders::default().is_empty());
        assert_eq!(to_json(&Orders::default()), "{}");
        let challenge =
            Challenge { challenge_id: "c1".into(), command: "sort".into(), args: vec!["--version".into()] };
        let orders = Orders { drain: true, verify: vec![challenge], ..Orders::default() };
        let json = to_json(&orders);
        assert_eq!(
            json,
            r#"{"drain":true,"verify":[{"challenge_id":"c1","command":"sort","args":["--version"]}]}"#
        );
        assert_eq!(parse::<Orders>(json.as_bytes()).unwrap(), orders);
    }

    #[test]
    fn orders_of_a_newer_agq_are_understood_as_far_as_they_are_known() {
        let orders = parse::<Orders>(br#"{"terminate":true,"dance":"waltz","cancel":["job-1"]}"#).unwrap();
        assert!(orders.terminate && !orders.drain);
        assert_eq!(orders.cancel, ["job-1".parse().unwrap()]);
    }
}
