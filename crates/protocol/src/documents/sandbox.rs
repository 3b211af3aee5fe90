//! Sandboxes: profile that a plan asks for, profiles that a worker offers, and report of a task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prefix of the tag of workers that offer a sandbox profile, as `sandbox:reader`. Jobs whose plan
/// asks for the profile require the tag, so that older workers do not get these jobs.
const TAG_PREFIX: &str = "sandbox:";

/// Returns the tag of workers that offer the sandbox profile `profile`.
pub fn sandbox_tag(profile: &str) -> String {
    format!("{TAG_PREFIX}{profile}")
}

/// Returns the profile of a tag that [`sandbox_tag`] has returned.
pub fn profile_of_sandbox_tag(tag: &str) -> Option<&str> {
    tag.strip_prefix(TAG_PREFIX)
}

/// Maximum number of bytes of the name of a sandbox profile.
const MAX_PROFILE_NAME_BYTES: usize = 64;

/// Returns true if `name` is a legal name of a sandbox profile: 1 to 64 lower-case ASCII letters,
/// digits and `-`, `_`.
pub fn is_profile_name(name: &str) -> bool {
    let is_legal = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    (1..=MAX_PROFILE_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_legal)
}

/// Sandbox that a plan asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanSandbox {
    /// Name of the profile, which the owner of the worker defines.
    pub profile: String,
}

/// Sandbox of a worker, as the worker registers it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkerSandbox {
    /// Profile of jobs whose plan names none. Absent if these jobs run without a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_profile: Option<String>,
    /// Profiles by name. A profile with a text cannot be enforced on this machine; each text names
    /// a property, the reason and the remedy.
    pub profiles: BTreeMap<String, Vec<String>>,
    /// Properties that the machine enforces, with the mechanism of each.
    pub enforced: BTreeMap<String, String>,
    /// Properties that the machine cannot enforce.
    pub missing: BTreeMap<String, MissingProperty>,
}

/// Reason why a property of a sandbox does not hold, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingProperty {
    /// Reason.
    pub reason: String,
    /// Step that the owner of the machine can take.
    pub remedy: String,
}

/// Sandbox in which a task ran, made from the answers of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskSandbox {
    /// Name of the profile.
    pub profile: String,
    /// Properties that held, with the mechanism of each.
    pub enforced: BTreeMap<String, String>,
    /// Properties that did not hold, and that the profile does not need, with the reason of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// Number of processes that the job left behind and the worker ended. The last task of a job
    /// has the number.
    #[serde(skip_serializing_if = "is_zero")]
    pub strays: u64,
    /// Number of bytes in the scratch directory at the end of the job. The last task of a job has
    /// the number.
    #[serde(skip_serializing_if = "is_zero")]
    pub scratch_bytes: u64,
    /// Explanations of what the sandbox probably denied, from the end of the task and its stderr.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of skip_serializing_if")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::{is_profile_name, profile_of_sandbox_tag, sandbox_tag};

    #[test]
    fn tag_of_a_profile_has_its_name() {
        assert_eq!(sandbox_tag("reader"), "sandbox:reader");
        assert_eq!(profile_of_sandbox_tag("sandbox:reader"), Some("reader"));
        assert_eq!(profile_of_sandbox_tag("gpu"), None);
    }

    #[test]
    fn profile_names_have_lower_case_letters_digits_dashes_and_underscores() {
        for legal in ["reader", "a", "read-only_2", &"a".repeat(64)] {
            assert!(is_profile_name(legal), "{legal}");
        }
        for illegal in ["", "Reader", "a b", "a:b", "a.b", "é", &"a".repeat(65)] {
            assert!(!is_profile_name(illegal), "{illegal}");
        }
    }
}
