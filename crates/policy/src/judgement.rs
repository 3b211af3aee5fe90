//! Judgement of a plan: the decision, its reasons, and the files that the tasks read and write.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::Access;

/// Decision about a plan or a task. A stricter decision is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run.
    Allow,
    /// A person has to approve it first.
    Ask,
    /// It must not run.
    Refuse,
}

impl Decision {
    /// Returns the decision as a word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allowed",
            Self::Ask => "needs approval",
            Self::Refuse => "refused",
        }
    }
}

/// Reason for a decision other than [`Decision::Allow`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Decision.
    pub decision: Decision,
    /// Part of the task or of the plan, as `args[2]`, `stdout` or `env.LANG`.
    pub place: String,
    /// Index of the argument, if the part is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<usize>,
    /// Reason.
    pub reason: String,
    /// Nearest form that is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// File that a task reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileUse {
    /// Kind of access.
    pub access: Access,
    /// Part of the task that names the file, as `args[2]` or `stdout`.
    pub place: String,
    /// Index of the argument, if the part is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<usize>,
    /// Normalized path. A path with a placeholder is as in the plan.
    pub path: String,
}

/// Judgement of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TaskJudgement {
    /// Number of the task.
    pub task_number: u32,
    /// Command of the task.
    pub command: String,
    /// Strictest decision of the findings.
    pub decision: Decision,
    /// Rule that decided, as `tools.sort`. Absent for a tool that the policy does not list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Path of the program, if the policy names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// SHA-256 of the program, if the policy names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Reasons against the task.
    pub findings: Vec<Finding>,
    /// Files that the task reads and writes.
    pub files: Vec<FileUse>,
}

/// Judgement of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Judgement {
    /// Strictest decision of the findings and the tasks.
    pub decision: Decision,
    /// Sandbox profile that the plan has to run in, if the policy names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Reasons against the plan as a whole.
    pub findings: Vec<Finding>,
    /// Judgement of each task.
    pub tasks: Vec<TaskJudgement>,
}

impl Finding {
    pub(crate) fn strictest(findings: &[Self]) -> Decision {
        findings.iter().map(|finding| finding.decision).max().unwrap_or(Decision::Allow)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        self.instead.iter().try_for_each(|instead| write!(f, "; instead: {instead}"))
    }
}

impl TaskJudgement {
    /// Returns the first of the strictest findings, or `None` if the task is allowed.
    #[must_use]
    pub fn strictest_finding(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.decision == self.decision)
    }
}

impl Judgement {
    /// Returns the first of the strictest findings, with its task unless it is about the plan as a
    /// whole. Returns `None` if the plan is allowed.
    #[must_use]
    pub fn strictest_finding(&self) -> Option<(Option<&TaskJudgement>, &Finding)> {
        let of_plan = self.findings.iter().find(|finding| finding.decision == self.decision);
        let of_task = || {
            let task = self.tasks.iter().find(|task| task.decision == self.decision)?;
            Some((Some(task), task.strictest_finding()?))
        };
        of_plan.map(|finding| (None, finding)).or_else(of_task)
    }
}
