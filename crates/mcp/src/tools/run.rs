//! `agx_run`: submits a plan over many inputs, and waits for a bounded time.
//!
//! The id of the action follows from `request_id` and the key, so that a repeated call finds the
//! action of the first one, from any process.

use agenix_client::ClientError;
use agenix_protocol::{
    blob::BlobHash,
    documents::{ActionStatus, ActionSubmission, Plan, to_json},
    errors::ErrorKind,
    ids::{ActionId, PlanId},
};
use serde_json::{Map, Value, json, value::RawValue, value::to_raw_value};

use super::{
    joined_outputs::{self, STDIN_FIELD},
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
    let (plan_id, stdin) = match source(&queue.settings, &arguments)? {
        PlanSource::Stored(plan_id) => (plan_id, None),
        PlanSource::New(mut plan) => {
            let stdin = match &arguments.stdin_of {
                Some(action_id) => joined_outputs::read_by(queue, action_id, &mut plan).await?,
                None => None,
            };
            (store(queue, *plan).await?, stdin)
        }
    };
    let inputs = inputs(arguments.lines, arguments.inputs, stdin)?;
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

/// Plan of a call.
enum PlanSource {
    /// A plan that agq has.
    Stored(PlanId),
    New(Box<Plan>),
}

/// Returns the plan of a call. Checks which arguments the call has.
fn source(settings: &Settings, arguments: &RunArguments) -> Result<PlanSource> {
    let repeat = |what: &str| Err(ToolError::new(what, "repeat the call with one of them"));
    let RunArguments { lines, inputs, stdin_of, retries, timeout_secs, .. } = arguments;
    if [lines.is_some(), inputs.is_some(), stdin_of.is_some()].into_iter().filter(|given| *given).count() > 1
    {
        return repeat("give one of lines, inputs and stdin_of");
    }
    let plan = match (&arguments.pipeline, &arguments.plan, &arguments.plan_id) {
        (None, None, Some(_)) if stdin_of.is_some() => {
            return repeat("stdin_of needs a pipeline or a plan, and not a plan_id");
        }
        (None, None, Some(plan_id)) => return Ok(PlanSource::Stored(plan_id.clone())),
        (Some(pipeline), None, None) => {
            let options = PipelineOptions { retries: *retries, timeout_secs: *timeout_secs };
            of_pipeline(settings, pipeline, options)?
        }
        (None, Some(plan), None) => of_json(plan)?,
        _ => return repeat("give exactly one of pipeline, plan and plan_id"),
    };
    Ok(PlanSource::New(Box::new(plan)))
}

/// Stores a plan, and returns its id.
async fn store(queue: &Queue, plan: Plan) -> Result<PlanId> {
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

/// Returns the inputs of the jobs; one input without lines and inputs, which names the blob of
/// stdin if there is one.
fn inputs(
    lines: Option<Vec<String>>,
    inputs: Option<Vec<Map<String, Value>>>,
    stdin: Option<BlobHash>,
) -> Result<Vec<Box<RawValue>>> {
    let values: Vec<Value> = match (lines, inputs) {
        (Some(lines), _) => lines.into_iter().map(|line| json!({"line": line})).collect(),
        (None, Some(inputs)) => inputs.into_iter().map(Value::Object).collect(),
        (None, None) => vec![stdin.map_or_else(|| json!({}), |blob| json!({STDIN_FIELD: blob.to_string()}))],
    };
    let raw = values.iter().map(to_raw_value).collect::<std::result::Result<_, _>>();
    raw.map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))
}
