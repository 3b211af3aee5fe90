//! Target of a change: an action, or a job.

use agenix_protocol::ids::{ActionId, JobId};

use crate::{
    arguments::TargetArguments,
    error::{Result, ToolError},
};

pub(crate) enum Target {
    Action(ActionId),
    Job(JobId),
}

impl TargetArguments {
    /// Returns the target. Exactly one argument has to be there.
    pub(crate) fn target(self) -> Result<Target> {
        match (self.action_id, self.job_id) {
            (Some(action_id), None) => Ok(Target::Action(action_id)),
            (None, Some(job_id)) => Ok(Target::Job(job_id)),
            _ => Err(ToolError::new(
                "give action_id or job_id, and not both",
                "repeat the call with one of them",
            )),
        }
    }
}
