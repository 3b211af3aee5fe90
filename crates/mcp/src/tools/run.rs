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
    progress::ProgressNotifier,
    queue::Queue,
    settings::McpServerSettings,
};

/// Submits the request, unless it was submitted before, and waits for `wait_secs` seconds.
pub(crate) async fn run(
    queue: &Queue,
    arguments: RunArguments,
    wait_secs: u64,
    progress: &mut ProgressNotifier,
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

fn action_id(settings: &McpServerSettings, request_id: Option<&str>) -> Result<ActionId> {
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
    let (plan_id, new, stdin) = match source(&queue.settings, &arguments)? {
        PlanSource::Stored(plan_id) => (plan_id, None, None),
        PlanSource::New(mut plan) => {
            let stdin = match &arguments.stdin_of {
                Some(action_id) => joined_outputs::read_by(queue, action_id, &mut plan).await?,
                None => None,
            };
            let (plan_id, plan) = identified(&queue.settings, *plan)?;
            store(queue, &plan).await?;
            (plan_id, Some(plan), stdin)
        }
    };
    let inputs = inputs(arguments.lines, arguments.inputs, stdin)?;
    let action = ActionSubmission {
        action_id: Some(action_id.clone()),
        queue: queue.settings.queue.clone(),
        max_running: arguments.max_running,
        ..ActionSubmission::new(plan_id.clone(), inputs)
    };
    let mut expired = submit_action(queue, &action).await?;
    if expired.is_some()
        && let Some(plan) = &new
        && delete(queue, &plan_id).await?
    {
        // Nobody has decided in time. agq asks again about a plan that is stored again.
        store(queue, plan).await?;
        expired = submit_action(queue, &action).await?;
    }
    expired.map_or(Ok(()), |reason| Err(ClientError::Rejected(reason).into()))
}

/// Submits an action. Returns the error line of agq if the approval of its plan has expired.
async fn submit_action(queue: &Queue, action: &ActionSubmission) -> Result<Option<String>> {
    let submitted = queue.call(|mut agq| async move {
        match agq.submit_action(action).await {
            Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::ApprovalExpired => {
                Ok(Some(reason))
            }
            submitted => submitted.map(|_| None),
        }
    });
    submitted.await
}

/// Deletes a plan. Returns false if agq refuses that, because jobs of the plan have not ended.
async fn delete(queue: &Queue, plan_id: &PlanId) -> Result<bool> {
    let deleted = queue.call(|mut agq| async move {
        match agq.delete_plan(plan_id).await {
            Err(ClientError::Rejected(_)) => Ok(false),
            // A plan that is gone already is deleted, too.
            deleted => deleted.map(|_| true),
        }
    });
    deleted.await
}

/// Plan of a call.
enum PlanSource {
    /// A plan that agq has.
    Stored(PlanId),
    New(Box<Plan>),
}

/// Returns the plan of a call. Checks which arguments the call has.
fn source(settings: &McpServerSettings, arguments: &RunArguments) -> Result<PlanSource> {
    let repeat = |problem: &str| Err(ToolError::new(problem, "repeat the call with one of them"));
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

/// Stores a plan with an id.
async fn store(queue: &Queue, plan: &Plan) -> Result<()> {
    let json = &to_json(plan).into_bytes();
    let stored = queue.call(|mut agq| async move {
        match agq.submit_plan(json.clone()).await {
            // An earlier call has stored the plan, because the id follows from the content.
            Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::PlanExists => Ok(()),
            stored => stored.map(drop),
        }
    });
    stored.await
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
        (None, Some(inputs)) => {
            check_numbers(&inputs)?;
            inputs.into_iter().map(Value::Object).collect()
        }
        (None, None) => vec![stdin.map_or_else(|| json!({}), |blob| json!({STDIN_FIELD: blob.to_string()}))],
    };
    let raw = values.iter().map(to_raw_value).collect::<std::result::Result<_, _>>();
    raw.map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))
}

/// Checks that no number of the inputs has been rounded. In the parsed message of a client, an
/// integer of more than 64 bits is a float.
fn check_numbers(inputs: &[Map<String, Value>]) -> Result<()> {
    for (at, input) in inputs.iter().enumerate() {
        if let Some((name, _)) = input.iter().find(|(_, value)| has_rounded_number(value)) {
            let problem = format!("inputs[{at}].{name}: a number of more than 64 bits would lose digits");
            return Err(ToolError::new(problem, "write the number as a string, which keeps its digits"));
        }
    }
    Ok(())
}

fn has_rounded_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let is_exact = number.is_i64() || number.is_u64();
            !is_exact && number.as_f64().is_none_or(|float| float.abs() >= 2_f64.powi(63))
        }
        Value::Array(items) => items.iter().any(has_rounded_number),
        Value::Object(fields) => fields.values().any(has_rounded_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    #[test]
    fn number_of_an_input_keeps_its_digits_or_is_refused() {
        let inputs = |json: &str| {
            let inputs: Vec<Map<String, Value>> = serde_json::from_str(json).unwrap();
            super::inputs(None, Some(inputs), None)
        };
        let json = r#"[{"n":18446744073709551615},{"n":-9223372036854775808},{"n":0.25},{"n":1.0}]"#;
        let kept: Vec<String> = inputs(json).unwrap().iter().map(|input| input.get().to_owned()).collect();
        assert_eq!(format!("[{}]", kept.join(",")), json);
        for number in ["18446744073709551616", r#"{"m":[-123456789012345678901234567890]}"#] {
            let refused = inputs(&format!(r#"[{{}},{{"n":{number}}}]"#)).unwrap_err().to_string();
            assert!(refused.starts_with("inputs[1].n: a number of more than 64 bits"), "{refused}");
        }
    }
}
