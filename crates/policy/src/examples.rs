//! Examples of a policy: command lines that it has to allow, and command lines that it has to
//! refuse.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    judgement::{Decision, TaskJudgement},
    library,
    policy::{InvalidPolicy, Policy},
    tool::Tool,
};

/// Example of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Name of the tool.
    pub tool: String,
    /// Arguments.
    pub args: Vec<String>,
    /// True if the policy has to allow the command, or to ask; false if it has to refuse it.
    pub is_ok: bool,
}

/// Example whose judgement differs from its list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedExample {
    /// Name of the tool.
    pub tool: String,
    /// Arguments.
    pub args: Vec<String>,
    /// List that has the example: `ok` or `no`.
    pub list: &'static str,
    /// Decision.
    pub decision: Decision,
    /// Reason of the decision, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Policy {
    /// Parses a file that decides about plans: the policy has to judge its examples as the file
    /// demands.
    ///
    /// # Errors
    ///
    /// Returns the place and the reason of the first error, or the first example that fails.
    pub fn parse_with_examples(text: &str) -> Result<Self, InvalidPolicy> {
        let policy = Self::parse(text)?;
        if let Some(FailedExample { tool, args, list, .. }) = policy.failed_examples().first() {
            let reason = format!("the example {args:?} is judged otherwise");
            return Err(InvalidPolicy { place: format!("tools.{tool}.{list}: "), reason });
        }
        Ok(policy)
    }

    /// Returns the examples of the file.
    #[must_use]
    pub fn examples(&self) -> Vec<Example> {
        self.own_tools().flat_map(examples_of).collect()
    }

    /// Returns the examples of the file whose judgement is wrong.
    #[must_use]
    pub fn failed_examples(&self) -> Vec<FailedExample> {
        self.examples().into_iter().filter_map(|example| self.failure(example)).collect()
    }

    fn failure(&self, example: Example) -> Option<FailedExample> {
        let TaskJudgement { decision, findings, .. } = self.judge_argv(&example.tool, &example.args);
        if example.is_ok == (decision != Decision::Refuse) {
            return None;
        }
        Some(FailedExample {
            tool: example.tool,
            args: example.args,
            list: if example.is_ok { "ok" } else { "no" },
            decision,
            reason: findings.into_iter().next().map(|finding| finding.reason),
        })
    }
}

/// Returns the examples of the library. The examples are meant for a policy that reads the working
/// directory, and writes the directory `out` in it.
#[must_use]
pub fn library_examples() -> Vec<Example> {
    library::tools().flat_map(examples_of).collect()
}

fn examples_of(tool: &Tool) -> impl Iterator<Item = Example> {
    let examples = |list: &[Vec<String>], is_ok| -> Vec<Example> {
        let example = |args: &Vec<String>| Example { tool: tool.name.clone(), args: args.clone(), is_ok };
        list.iter().map(example).collect()
    };
    examples(&tool.ok, true).into_iter().chain(examples(&tool.no, false))
}
