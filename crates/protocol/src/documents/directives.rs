//! Directives for a worker, as a part of the answer to a heartbeat: `OK orders={…}`.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// Directives for a worker. Every heartbeat repeats a directive until the worker has followed the
/// directive or the directive is void. Empty fields are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Directives {
    /// Claim no more jobs, and keep running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// Claim no more jobs, finish the running ones, and exit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub terminate: bool,
    /// Kill the processes of these jobs within a second, and report nothing of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<JobId>,
    /// Run these commands, and send the results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<Challenge>,
}

impl Directives {
    /// Returns true if there are no directives.
    pub fn is_empty(&self) -> bool {
        !self.drain && !self.terminate && self.cancel.is_empty() && self.verify.is_empty()
    }
}

/// Command that a worker runs to prove a capability (worker spec §7.3).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Challenge {
    /// Id for the answer.
    pub challenge_id: String,
    /// One of the tools or agentic units of the worker.
    pub command: String,
    /// Arguments of the command.
    pub args: Vec<String>,
}

/// Result of a [`Challenge`], for `WORKER.ANSWER`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChallengeAnswer {
    /// Exit code as in a shell: 124 for a timeout, 126 if not executable, 127 if not among the
    /// tools of the worker.
    pub exit_code: i32,
    /// Stdout of the command, or its stderr if stdout is empty; at most 4096 bytes.
    pub output: String,
}

#[cfg(test)]
mod tests {
    use super::{Challenge, Directives};
    use crate::documents::{parse, to_json};

    #[test]
    fn directives_leave_out_empty_fields() {
        assert!(Directives::default().is_empty());
        assert_eq!(to_json(&Directives::default()), "{}");
        let challenge =
            Challenge { challenge_id: "c1".into(), command: "sort".into(), args: vec!["--version".into()] };
        let directives = Directives { drain: true, verify: vec![challenge], ..Directives::default() };
        let json = to_json(&directives);
        assert_eq!(
            json,
            r#"{"drain":true,"verify":[{"challenge_id":"c1","command":"sort","args":["--version"]}]}"#
        );
        assert_eq!(parse::<Directives>(json.as_bytes()).unwrap(), directives);
    }

    #[test]
    fn directives_ignore_unknown_fields() {
        let directives =
            parse::<Directives>(br#"{"terminate":true,"dance":"waltz","cancel":["job-1"]}"#).unwrap();
        assert!(directives.terminate && !directives.drain);
        assert_eq!(directives.cancel, ["job-1".parse().unwrap()]);
    }
}
