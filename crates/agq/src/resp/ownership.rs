//! Commands of agents on records that they do not own. The reply is that for a record that does not
//! exist, so that an agent cannot find out which ids others use.
//!
//! An agent that owns nothing under an id gets this reply whether or not another owner has the id:
//! the handler of the command is not called, and reads no other argument.

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId},
    request::{AgentAccess, Command, OutputCommand, Request},
    resp::Reply,
};
use agenix_rules::rejection::Rejection;

use crate::{
    app::{Agent, AppState},
    auth::keyring::Role,
    error::{CommandError, Result},
    service::owned,
};

/// Record that a command names, and the reply if it does not exist.
enum NamedRecord<'r> {
    Plan(&'r PlanId, Reply),
    Action(&'r ActionId, Option<Reply>),
    Job(&'r JobId, Option<Reply>),
    /// Action or job whose plan the command runs once more. Another plan may have got the id.
    ActionAndPlan(&'r ActionId),
    JobAndPlan(&'r JobId),
    /// No record of an owner: the handler adds records of the agent, or lists only records of the
    /// agent.
    HandlerFilters,
    /// The record is unknown, so a command on records of owners is refused.
    None,
}

/// Returns the reply to a command on a record that the agent does not own, and `None` if the
/// command may be carried out. Refuses a command that agents may not use, though the session does
/// so before.
pub(crate) async fn hidden(
    app: &AppState,
    agent: Agent<'_>,
    command: &Command,
    request: &Request,
) -> Result<Option<Reply>> {
    if !Role::Agent.may_use(command) {
        return Err(Role::Agent.refusal(command).into());
    }
    let (is_own, reply) = match named_record(request) {
        NamedRecord::HandlerFilters => return Ok(None),
        NamedRecord::None if command.agent == AgentAccess::Permitted => return Ok(None),
        NamedRecord::None => return Err(Role::Agent.refusal(command).into()),
        NamedRecord::Plan(plan_id, reply) => (owned::plan(app, agent.owner, plan_id).await?, Ok(reply)),
        NamedRecord::Action(action_id, reply) => {
            let is_own = owned::action(app, agent.owner, action_id).await?.is_some();
            (is_own, reply.ok_or_else(|| Rejection::ActionNotFound(action_id.clone())))
        }
        NamedRecord::Job(job_id, reply) => {
            let is_own = owned::job(app, agent.owner, job_id).await?.is_some();
            (is_own, reply.ok_or_else(|| Rejection::JobNotFound(job_id.clone())))
        }
        NamedRecord::ActionAndPlan(action_id) => match owned::action(app, agent.owner, action_id).await? {
            None => (false, Err(Rejection::ActionNotFound(action_id.clone()))),
            Some(action) => plan_of(app, agent, &action.plan_id).await?,
        },
        NamedRecord::JobAndPlan(job_id) => match owned::job(app, agent.owner, job_id).await? {
            None => (false, Err(Rejection::JobNotFound(job_id.clone()))),
            Some(job) => plan_of(app, agent, &job.plan_id).await?,
        },
    };
    if is_own { Ok(None) } else { reply.map(Some).map_err(CommandError::from) }
}

async fn plan_of(
    app: &AppState,
    agent: Agent<'_>,
    plan_id: &PlanId,
) -> Result<(bool, std::result::Result<Reply, Rejection>)> {
    let is_own = owned::plan(app, agent.owner, plan_id).await?;
    Ok((is_own, Err(Rejection::PlanNotFound(plan_id.clone()))))
}

/// Returns the record that a command names, if agents may use the command.
fn named_record(request: &Request) -> NamedRecord<'_> {
    match request {
        Request::PlanGet { plan_id } | Request::PlanStatus { plan_id } | Request::PlanOrder { plan_id } => {
            NamedRecord::Plan(plan_id, Reply::Nil)
        }
        Request::PlanDelete { plan_id } => NamedRecord::Plan(plan_id, Reply::Integer(0)),
        Request::ActionStatus { action_id } => NamedRecord::Action(action_id, Some(Reply::Nil)),
        Request::ActionClose { action_id } | Request::ActionCancel { action_id, .. } => {
            NamedRecord::Action(action_id, None)
        }
        Request::ActionAdd { action_id, .. } | Request::ActionRetry { action_id } => {
            NamedRecord::ActionAndPlan(action_id)
        }
        Request::JobList { action_id, .. } => NamedRecord::Action(action_id, Some(Reply::Array(Vec::new()))),
        Request::JobStatus { job_id }
        | Request::Output(OutputCommand::Result { job_id, .. } | OutputCommand::File { job_id, .. }) => {
            NamedRecord::Job(job_id, Some(Reply::Nil))
        }
        Request::JobCancel { job_id }
        | Request::JobForget { job_id }
        | Request::JobExplain { job_id }
        | Request::JobOutput { job_id, .. } => NamedRecord::Job(job_id, None),
        Request::JobRetry { job_id, .. } => NamedRecord::JobAndPlan(job_id),
        Request::PlanSubmit { .. }
        | Request::PlanList { .. }
        | Request::ActionSubmit { .. }
        | Request::ActionList { .. }
        | Request::JobsSearch { .. }
        | Request::Output(OutputCommand::WriteInput { .. } | OutputCommand::CommitInput { .. }) => {
            NamedRecord::HandlerFilters
        }
        _ => NamedRecord::None,
    }
}

#[cfg(test)]
mod tests;
