//! Setup: everything that a supervisor process has to know at its start.

use std::{collections::BTreeSet, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::profile::Profile;

/// First argument of an executable that has to become a supervisor.
pub const SUPERVISOR_ARGUMENT: &str = "--sandbox-supervisor";
/// Second argument of a task that attacks its sandbox for [`crate::probe`].
#[cfg(target_os = "linux")]
pub(crate) const ATTEMPT_ARGUMENT: &str = "attempt";
/// Environment variable of a supervisor with its [`Setup`] as JSON. Tasks do not get the variable.
pub const SETUP_VARIABLE: &str = "AGENIX_SANDBOX_SETUP";
/// Environment variable of a worker with mechanisms to do without, for tests of other machines.
pub const WITHOUT_VARIABLE: &str = "AGW_SANDBOX_WITHOUT";

/// Way in which a supervisor keeps its tasks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// PID 1 of a PID namespace of its own. One supervisor serves many jobs.
    Namespaces,
    /// Child subreaper with the signal scope of Landlock. One supervisor serves one job, because a
    /// task can signal the process that starts tasks.
    Subreaper,
}

/// Mechanism of the kernel that a test can withhold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// User, mount, PID, network and IPC namespaces.
    Namespaces,
    /// Landlock of any version.
    Landlock,
    /// Filters of system calls.
    Seccomp,
    /// Control groups of version 2.
    ControlGroups,
}

/// Error for a word that names no mechanism.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a mechanism: use namespaces, landlock, seccomp or control_groups")]
pub struct UnknownMechanism(String);

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(word: &str) -> Result<Self, UnknownMechanism> {
        match word {
            "namespaces" => Ok(Self::Namespaces),
            "landlock" => Ok(Self::Landlock),
            "seccomp" => Ok(Self::Seccomp),
            "control_groups" => Ok(Self::ControlGroups),
            _ => Err(UnknownMechanism(word.to_owned())),
        }
    }
}

/// Reads a list of mechanisms with commas, as of [`WITHOUT_VARIABLE`].
///
/// # Errors
///
/// Returns an error for an unknown word, because a test would otherwise test another machine.
pub fn mechanisms_of(list: &str) -> Result<BTreeSet<Mechanism>, UnknownMechanism> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Mechanism::from_str).collect()
}

/// Everything that a supervisor process has to know at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Profile of all jobs of the supervisor.
    pub profile: Profile,
    /// Scratch directory as a byte-escaped absolute path. The directory exists and is empty.
    pub scratch: String,
    /// Regime.
    pub regime: Regime,
    /// Directory of the control group as a byte-escaped absolute path, if there is one.
    #[serde(default)]
    pub control_group: Option<String>,
    /// Mechanisms to do without.
    #[serde(default)]
    pub without: BTreeSet<Mechanism>,
    /// Environment variables of every task: name and byte-escaped value.
    #[serde(default)]
    pub variables: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::{Mechanism, Regime, Setup, mechanisms_of};
    use crate::profile::Profile;

    #[test]
    fn mechanisms_are_read_from_a_list() {
        let two = [Mechanism::Namespaces, Mechanism::Landlock].into();
        assert_eq!(mechanisms_of("landlock, namespaces"), Ok(two));
        assert_eq!(mechanisms_of(""), Ok([].into()));
        assert!(mechanisms_of("landlok").is_err());
    }

    #[test]
    fn setup_is_read_as_it_is_written() {
        let setup = Setup {
            profile: Profile::reader(),
            scratch: "/scratch".into(),
            regime: Regime::Namespaces,
            control_group: Some("/group".into()),
            without: [Mechanism::Seccomp].into(),
            variables: vec![("LANG".into(), "C".into())],
        };
        let json = serde_json::to_string(&setup).unwrap();
        assert_eq!(serde_json::from_str::<Setup>(&json).unwrap(), setup);
        assert!(serde_json::from_str::<Setup>(&json.replace("scratch", "scrach")).is_err());
    }
}
