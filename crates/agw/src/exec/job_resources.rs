//! Resources of the worker that one job has while it runs, as its tasks see them.

use std::{any::Any, sync::Arc};

use crate::exec::memory_bound::MemoryBound;

/// Guard that keeps the resources of a job from other jobs. The last drop releases them.
pub(crate) type ResourceHold = Arc<dyn Any + Send + Sync>;

#[derive(Debug, Clone, Default)]
pub(crate) struct JobResources {
    /// Names and values of variables of all tasks of the job. A plan cannot change these variables.
    pub(crate) environment: Vec<(String, String)>,
    /// Names of variables that no task of the job inherits, or has from the plan.
    pub(crate) withheld: &'static [&'static str],
    /// Maximum memory of the job in bytes, if it wants a quantity of memory.
    pub(crate) memory: Option<u64>,
    /// Reason why the worker never has what the job wants.
    pub(crate) missing: Option<String>,
    /// Guard of the resources. A process that may outlive the job has a clone.
    pub(crate) hold: Option<ResourceHold>,
}

impl JobResources {
    /// Returns the resources of a job that this worker cannot run, because of `reason`.
    pub(crate) fn missing(reason: String) -> Self {
        Self { missing: Some(reason), ..Self::default() }
    }
}

/// Resources of a job whose tasks start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskResources<'j> {
    pub(crate) environment: &'j [(String, String)],
    pub(crate) withheld: &'static [&'static str],
    /// Bound of the memory. `None` also for a job in a sandbox, which has a bound of its own.
    pub(crate) memory: Option<&'j Arc<MemoryBound>>,
}
