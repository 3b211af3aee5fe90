//! `agx_retry`: runs failed jobs again.

use super::target::Target;
use crate::{arguments::TargetArguments, error::Result, queue::Queue, reports::ChangeReport};

pub(crate) async fn run(queue: &Queue, arguments: TargetArguments) -> Result<ChangeReport> {
    match arguments.target()? {
        Target::Action(id) => {
            let id = &id;
            let jobs = queue.call_once(|mut agq| async move { agq.retry_action(id).await }).await?;
            Ok(ChangeReport { jobs, next: format!("call agx_wait with action_id {id}") })
        }
        Target::Job(id) => {
            let id = &id;
            queue.call_once(|mut agq| async move { agq.retry_job(id, true).await }).await?;
            Ok(ChangeReport { jobs: 1, next: "call agx_wait with the action_id of the job".into() })
        }
    }
}
