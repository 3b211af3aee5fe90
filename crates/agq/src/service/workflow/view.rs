//! JSON document of a workflow.

use agenix_rules::workflow::{Callback, Nested, StepState, Workflow, WorkflowKind, WorkflowStep};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct JobTypeField {
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub(crate) fn workflow_view(workflow: &Workflow) -> Value {
    let Workflow { kind, steps, callbacks, .. } = workflow;
    let mut document = parts(*kind, workflow.name.as_deref(), steps, callbacks);
    document.insert("id".into(), workflow.id.as_str().into());
    document.insert("state".into(), json!(workflow.stage));
    document.insert("created_at".into(), json!(workflow.created_at));
    let mut metadata = metadata(workflow);
    if let Some(at) = workflow.ended_at {
        let name = if workflow.stage == StepState::Cancelled { "cancelled_at" } else { "completed_at" };
        document.insert(name.into(), json!(at));
        metadata[name] = json!(at);
    }
    document.insert("metadata".into(), metadata);
    document.into()
}

/// Counts of jobs and actions on all levels, without callbacks, for clients of the Open Job Spec.
fn metadata(workflow: &Workflow) -> Value {
    let placed = workflow.placed();
    let steps = || placed.iter().filter(|placed| !placed.is_callback()).map(|placed| placed.step);
    let count = |stage: StepState| steps().filter(|step| step.stage == stage).count();
    json!({
        "created_at": workflow.created_at,
        "job_count": steps().count(),
        "completed_count": count(StepState::Completed),
        "failed_count": count(StepState::Failed),
    })
}

/// Returns the fields that outer and nested workflows have in common.
fn parts(
    kind: WorkflowKind,
    name: Option<&str>,
    steps: &[WorkflowStep],
    callbacks: &[Callback],
) -> Map<String, Value> {
    let count = |stage: StepState| steps.iter().filter(|step| step.stage == stage).count();
    let mut document = Map::new();
    document.insert("type".into(), json!(kind));
    if let Some(name) = name {
        document.insert("name".into(), name.into());
    }
    let list = kind.list();
    document.insert(list.into(), steps.iter().map(step).collect());
    document.insert(format!("{list}_total"), steps.len().into());
    document.insert(format!("{list}_completed"), count(StepState::Completed).into());
    document.insert(format!("{list}_failed"), count(StepState::Failed).into());
    if !callbacks.is_empty() {
        let callbacks = callbacks.iter().map(
            |callback| json!({"on": callback.when, "job_id": callback.step.id, "state": callback.step.stage}),
        );
        document.insert("callbacks".into(), callbacks.collect());
    }
    document
}

fn step(step: &WorkflowStep) -> Value {
    if let Some(Nested { kind, name, steps, callbacks }) = step.nested.as_deref() {
        let mut document = parts(*kind, name.as_deref(), steps, callbacks);
        document.insert("id".into(), step.id.as_str().into());
        document.insert("state".into(), json!(step.stage));
        return document.into();
    }
    let is_action = step.is_action();
    let mut document = json!({"state": step.stage});
    document[if is_action { "action_id" } else { "job_id" }] = step.id.as_str().into();
    let typed = serde_json::from_str::<JobTypeField>(step.document.get()).ok();
    if let Some(kind) = typed.filter(|_| !is_action).and_then(|typed| typed.kind) {
        document["type"] = kind.into();
    }
    if let Some(error) = &step.error {
        document["error"] = error.as_str().into();
    }
    document
}
