//! Budgets of named keys: how much a client or an agent may use in a sliding window.
//!
//! Jobs and plans are charged when they are submitted, and a submission that does not fit is
//! refused whole. The other amounts delay claims: a claim counts a running job and reserves the
//! [bound](RunBound) of its run, and the end of the run replaces the reservation with the reported
//! figures. Therefore concurrent workers cannot pass the budget together.
//!
//! A run that ends without a report (the worker was lost, the timeout passed, or the job was
//! cancelled) is charged its whole reservation, because agq cannot know how much the run used. A
//! claim is charged nothing if its worker gives it back or is lost before it has reported the
//! start.

mod options;
mod usage;

use std::borrow::Cow;

use agenix_protocol::{documents::Plan, time::Timestamp};
use serde::{Deserialize, Serialize};

pub use self::{
    options::{BudgetOptions, OptionError},
    usage::{BudgetAmount, Exhausted, Usage},
};
/// Number of runs that share the output bytes of a budget without a bound on running jobs.
const DEFAULT_SHARES: u64 = 16;

/// Terms of a budget. `None` stands for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Length of the sliding window, in hours.
    pub per_hours: u64,
    /// Maximum number of submitted jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    /// Maximum number of submitted plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plans: Option<u64>,
    /// Maximum number of jobs that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Maximum processor time of the tasks, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_secs: Option<u64>,
    /// Maximum number of bytes that tasks write to stdout and stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

impl Budget {
    /// Returns the maximum of an amount, in the unit of [`Usage::used`].
    pub fn limit(&self, amount: BudgetAmount) -> Option<u64> {
        match amount {
            BudgetAmount::Jobs => self.jobs,
            BudgetAmount::Plans => self.plans,
            BudgetAmount::Running => self.running,
            BudgetAmount::CpuMs => self.cpu_secs.map(|seconds| seconds.saturating_mul(1000)),
            BudgetAmount::OutputBytes => self.output_bytes,
        }
    }

    /// Returns the share of a run of the output bytes, if they are bounded. The share is not 0.
    fn output_share(&self) -> Option<u64> {
        let shares = self.running.unwrap_or(DEFAULT_SHARES).max(1);
        self.output_bytes.map(|bytes| bytes.div_ceil(shares).max(1))
    }

    /// Returns the bound of a run of `plan` whose attempts time out after `timeout_ms`.
    ///
    /// Tasks that stream run at the same time, so each counts with the whole timeout. The output
    /// bytes are an equal share of those of the budget. A bound is 0 if the budget does not limit
    /// its amount.
    pub fn run_bound(&self, plan: Option<&Plan>, timeout_ms: u64) -> RunBound {
        let tasks = plan.map_or(1, |plan| plan.tasks.len().max(1) as u64);
        RunBound {
            cpu_ms: self.cpu_secs.map_or(0, |_| timeout_ms.saturating_mul(tasks)),
            output_bytes: self.output_share().unwrap_or(0),
        }
    }

    /// Returns the reservation of a run with this bound: at most the processor time of the budget,
    /// and at most the share of one run of the output bytes of the budget. The budget may have
    /// become smaller since the submission of the job, which could otherwise never start. A bound
    /// of 0 is that of an amount that the budget did not limit then, so the run reserves the most.
    pub fn reservation(&self, bound: &RunBound) -> RunBound {
        let within = |bound: u64, limit: Option<u64>| match limit {
            None => bound,
            Some(limit) if bound == 0 => limit.max(1),
            // A bound of 0 stands for no bound, so a budget of 0 reduces other bounds to 1.
            Some(limit) => bound.min(limit.max(1)),
        };
        RunBound {
            cpu_ms: within(bound.cpu_ms, self.limit(BudgetAmount::CpuMs)),
            output_bytes: within(bound.output_bytes, self.output_share()),
        }
    }

    /// Checks that a run with this bound can begin in an unused window.
    pub fn check_bound(&self, bound: &RunBound) -> Result<(), Exhausted> {
        let limit = self.limit(BudgetAmount::CpuMs);
        match limit {
            // A job without a timeout has no bound.
            Some(limit) if bound.cpu_ms == 0 || bound.cpu_ms > limit => Err(Exhausted {
                amount: BudgetAmount::CpuMs,
                used: 0,
                limit,
                wanted: if bound.cpu_ms == 0 { u64::MAX } else { bound.cpu_ms },
                next: None,
            }),
            _ => Ok(()),
        }
    }
}

/// Upper bound of what a run uses, which its claim reserves. Durable and positional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunBound {
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// Number of bytes that the tasks write to stdout and stderr.
    pub output_bytes: u64,
}

/// Use of a run, as its worker reported it. Durable and positional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUse {
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// Number of bytes that the tasks wrote to stdout and stderr.
    pub output_bytes: u64,
}

/// Budget that a job is charged to. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobBudget {
    /// Name of the key that has the budget.
    pub name: String,
    /// Upper bound of what one run uses. A claim reduces the bound to its
    /// [reservation](Budget::reservation).
    pub bound: RunBound,
    /// Use of the current or last run, once it is known.
    pub used: Option<RunUse>,
    /// End of the last run.
    pub ended_at: Timestamp,
}

impl JobBudget {
    /// Returns the maximum number of bytes of the output of a run.
    pub fn max_output_bytes(&self) -> Option<u64> {
        Some(self.bound.output_bytes).filter(|bytes| *bytes > 0)
    }

    /// Returns the maximum processor time of a run, in milliseconds.
    pub fn max_cpu_ms(&self) -> Option<u64> {
        Some(self.bound.cpu_ms).filter(|ms| *ms > 0)
    }
}

/// Charge of a submission to a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmissionCharge {
    /// Name of the key that has the budget.
    pub name: String,
    /// Terms of the budget now.
    pub budget: Budget,
    /// Number of submitted jobs that the same write does not add: later chunks of the submission.
    pub later_jobs: u64,
    /// Time of the submission.
    pub now: Timestamp,
}

/// Effect of a change of a job on its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RunChange {
    /// A run began, with a reservation.
    Began { bound: RunBound, at: Timestamp },
    /// A run with a reservation ended.
    Ended { bound: RunBound, used: RunUse, at: Timestamp },
}

/// Figures of a task result.
#[derive(Deserialize)]
struct TaskFigures<'r> {
    user_ms: Option<u64>,
    system_ms: Option<u64>,
    stdout_bytes: Option<u64>,
    stderr_bytes: Option<u64>,
    #[serde(default, borrow)]
    stdout: Cow<'r, str>,
    #[serde(default, borrow)]
    stderr: Cow<'r, str>,
}

impl RunUse {
    /// Returns the use of a run that nobody has reported: all of its bound.
    pub fn whole(bound: &RunBound) -> Self {
        Self { cpu_ms: bound.cpu_ms, output_bytes: bound.output_bytes }
    }

    /// Returns the use of a run according to the `results` of its tasks. A figure that the results
    /// lack counts as the bound of the run.
    pub fn of_results(results: &str, bound: &RunBound) -> Self {
        use_of(results, bound)
    }
}

fn use_of(results: &str, bound: &RunBound) -> RunUse {
    let whole = RunUse::whole(bound);
    let Ok(tasks) = serde_json::from_str::<Vec<TaskFigures<'_>>>(results) else { return whole };
    let cpu = |task: &TaskFigures<'_>| Some(task.user_ms?.saturating_add(task.system_ms?));
    let output = |task: &TaskFigures<'_>| {
        // Without the number of bytes, the text is the whole stream.
        let stdout = task.stdout_bytes.unwrap_or(task.stdout.len() as u64);
        stdout.saturating_add(task.stderr_bytes.unwrap_or(task.stderr.len() as u64))
    };
    let cpu_ms = tasks.iter().try_fold(0, |sum: u64, task| Some(sum.saturating_add(cpu(task)?)));
    let output_bytes = tasks.iter().fold(0, |sum: u64, task| sum.saturating_add(output(task)));
    RunUse { cpu_ms: cpu_ms.unwrap_or(bound.cpu_ms), output_bytes }
}

#[cfg(test)]
mod tests;
