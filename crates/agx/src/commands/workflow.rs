//! `agx workflow …`

use std::path::Path;

use serde_json::{Value, value::RawValue};

use super::read;
use crate::{
    cli::ServerArgs,
    documents::{OfWorkflow, WorkflowBegun},
    failure::Failure,
    output::Output,
    printable::one_line,
};

pub(super) async fn submit(server: &ServerArgs, file: &Path, output: Output) -> Result<(), Failure> {
    let json = read(file)?;
    let begun = server.connect().await?.submit_workflow(json).await?;
    let document = WorkflowBegun { workflow_id: begun.workflow_id.clone(), steps: begun.steps };
    output.show("workflow.submit", &document, |_| {
        format!("workflow {} has begun: {} steps", begun.workflow_id, begun.steps)
    })
}

pub(super) async fn status(server: &ServerArgs, workflow_id: &str, output: Output) -> Result<(), Failure> {
    let workflow = server.connect().await?.workflow(workflow_id).await?;
    let help = "see the workflows with `agx workflow list`";
    let workflow = workflow.ok_or_else(|| Failure::not_found("workflow", &workflow_id, help))?;
    output.show("workflow.status", &workflow, |workflow| text(workflow))
}

/// A line for the workflow, and one for each step.
fn text(workflow: &RawValue) -> String {
    let workflow: Value = serde_json::from_str(workflow.get()).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!("workflow {}: {}", word(&workflow["id"]), word(&workflow["state"]))];
    let steps = ["steps", "jobs"].into_iter().find_map(|name| workflow[name].as_array());
    for (at, step) in steps.into_iter().flatten().enumerate() {
        let (kind, id) = if step["action_id"].is_null() {
            ("job", &step["job_id"])
        } else {
            ("action", &step["action_id"])
        };
        lines.push(format!("  step {}  {:<9}  {kind} {}", at + 1, word(&step["state"]), word(id)));
        if let Some(error) = step["error"].as_str() {
            lines.push(format!("          {}", one_line(error)));
        }
    }
    lines.join("\n")
}

pub(super) async fn list(server: &ServerArgs, output: Output) -> Result<(), Failure> {
    let ids = server.connect().await?.workflows().await?;
    output.show("workflow.list", &ids, |ids| ids.iter().map(|id| format!("{id}\n")).collect())
}

pub(super) async fn cancel(server: &ServerArgs, workflow_id: &str, output: Output) -> Result<(), Failure> {
    server.connect().await?.cancel_workflow(workflow_id).await?;
    let document = OfWorkflow { workflow_id: workflow_id.to_owned() };
    output.show("workflow.cancel", &document, |_| format!("workflow {workflow_id} is cancelled"))
}
