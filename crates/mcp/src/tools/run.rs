//! `agx_run`: submits a plan over many inputs, and waits for a bounded time.
//!
//! The id of the action follows from `request_id` and the key, so that a repeated call finds the
//! action of the first one, from any process.

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{ActionStatus, ActionSubmission, to_json},
    errors::ErrorKind,
    ids::{ActionId, PlanId},
};
use serde_json::{Map, Value, json, value::RawValue, value::to_raw_value};

use super::{
    plan_source::{PipelineOptions, identified, of_json, of_pipeline},
    wait::until_event,
};
use crate::{
    action,
    arguments::{RunArguments, WaitUntil},
    error::{Result, ToolError},
    progress::Progress,
    queue::Queue,
    settings::Settings,
};

/// Submits the request, unless it was submitted before, and waits for `wait_secs` seconds.
pub(crate) async fn run(
    queue: &Queue,
    arguments: RunArguments,
    wait_secs: u64,
    progress: &mut Progress,
) -> Result<ActionStatus> {
    let action_id = action_id(&queue.settings, arguments.request_id.as_deref())?;
    // A repeated call is answered from what the first one has submitted, also if this version of
    // agx would compile the pipeline to another plan.
    let is_known = arguments.request_id.is_some() && action::find(queue, &action_id).await?.is_some();
    if !is_known {
        submit(queue, &action_id, arguments).await?;
    }
    until_event(queue, &action_id, (wait_secs, WaitUntil::Done), progress).await
}

fn action_id(settings: &Settings, request_id: Option<&str>) -> Result<ActionId> {
    let unique = uuid::Uuid::new_v4();
    let (purpose, text) = match request_id {
        Some(request_id) => ("request", request_id.as_bytes()),
        None => ("action", unique.as_bytes().as_slice()),
    };
    let digest = settings.server.secret_digest(purpose, text);
    ActionId::new(format!("mcp-{digest}"))
        .map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))
}

async fn submit(queue: &Queue, action_id: &ActionId, arguments: RunArguments) -> Result<()> {
    let plan_id = plan_id(queue, &arguments).await?;
    let inputs = inputs(arguments.lines, arguments.inputs)?;
    let action = ActionSubmission {
        action_id: Some(action_id.clone()),
        queue: queue.settings.queue.clone(),
        max_running: arguments.max_running,
        ..ActionSubmission::new(plan_id, inputs)
    };
    let action = &action;
    queue.call(|mut agq| async move { agq.submit_action(action).await }).await?;
    Ok(())
}

/// Stores the plan of a call, if it has one, and returns its id.
async fn plan_id(queue: &Queue, arguments: &RunArguments) -> Result<PlanId> {
    let plan = match (&arguments.pipeline, &arguments.plan, &arguments.plan_id) {
        (None, None, Some(plan_id)) => return Ok(plan_id.clone()),
        (Some(pipeline), None, None) => {
            let RunArguments { retries, timeout_secs, .. } = *arguments;
            of_pipeline(&queue.settings, pipeline, PipelineOptions { retries, timeout_secs })?
        }
        (None, Some(plan), None) => of_json(plan)?,
        _ => {
            let what = "give exactly one of pipeline, plan and plan_id";
            return Err(ToolError::new(what, "repeat the call with one of them"));
        }
    };
    let (plan_id, plan) = identified(&queue.settings, plan)?;
    let json = &to_json(&plan).into_bytes();
    let stored = queue.call(|mut agq| async move {
        match agq.submit_plan(json.clone()).await {
            // An earlier call has stored it, because the id follows from the content.
            Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::PlanExists => Ok(()),
            stored => stored.map(drop),
        }
    });
    stored.await?;
    Ok(plan_id)
}

/// Returns the inputs of the jobs; one empty input without lines and inputs.
fn inputs(lines: Option<Vec<String>>, inputs: Option<Vec<Map<String, Value>>>) -> Result<Vec<Box<RawValue>>> {
    let values: Vec<Value> = match (lines, inputs) {
        (Some(lines), None) => lines.into_iter().map(|line| json!({"line": line})).collect(),
        (None, Some(inputs)) => inputs.into_iter().map(Value::Object).collect(),
        (None, None) => vec![json!({})],
        (Some(_), Some(_)) => {
            let what = "give lines or inputs, and not both";
            return Err(ToolError::new(what, "repeat the call with one of them"));
        }
    };
    let raw = values.iter().map(to_raw_value).collect::<std::result::Result<_, _>>();
    raw.map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))
}
