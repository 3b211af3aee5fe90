//! `agx_cancel`: ends jobs, also running ones.

use super::target::Target;
use crate::{arguments::TargetArguments, error::Result, queue::Queue, reports::ChangeReport};

pub(crate) async fn run(queue: &Queue, arguments: TargetArguments) -> Result<ChangeReport> {
    match arguments.target()? {
        Target::Action(id) => {
            let id = &id;
            let jobs = queue.call(|mut agq| async move { agq.cancel_action(id).await }).await?;
            let next = format!("call agx_results with action_id {id} for the jobs that had ended before");
            Ok(ChangeReport { jobs, next })
        }
        Target::Job(id) => {
            let id = &id;
            queue.call(|mut agq| async move { agq.cancel_job(id).await }).await?;
            Ok(ChangeReport { jobs: 1, next: "the other jobs of its action go on".into() })
        }
    }
}
