//! `agx workflow`

use std::path::{Path, PathBuf};

use clap::Subcommand;

use serde_json::{Value, value::RawValue};

use super::read;
use crate::{
    connection_args::ConnectionArgs,
    documents::{WorkflowBegun, WorkflowRef},
    error::{CliError, Result, WORKFLOW_HELP},
    output::{OutputFormat, counted},
    util::printable::one_line,
};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Submit a workflow
    Submit {
        /// Workflow in JSON: steps, each of them an action; - reads stdin
        file: PathBuf,
    },
    /// Show the states of a workflow and its steps
    Status { workflow_id: String },
    /// List the workflows
    List,
    /// Cancel a workflow: its running steps are cancelled, and no further step starts
    Cancel { workflow_id: String },
}

pub(crate) async fn run(
    server: &ConnectionArgs,
    command: WorkflowCommand,
    output: OutputFormat,
) -> Result<()> {
    match command {
        WorkflowCommand::Submit { file } => submit(server, &file, output).await,
        WorkflowCommand::Status { workflow_id } => status(server, &workflow_id, output).await,
        WorkflowCommand::List => output.list("workflow.list", &server.connect().await?.workflows().await?),
        WorkflowCommand::Cancel { workflow_id } => cancel(server, &workflow_id, output).await,
    }
}

async fn submit(server: &ConnectionArgs, file: &Path, output: OutputFormat) -> Result<()> {
    let json = read(file)?;
    let begun = server.connect().await?.submit_workflow(json).await?;
    let document = WorkflowBegun { workflow_id: begun.workflow_id.clone(), steps: begun.steps };
    let (id, steps) = (begun.workflow_id, counted(begun.steps, "step", "steps"));
    output.show("workflow.submit", &document, |_| format!("workflow {id} has begun: {steps}"))
}

async fn status(server: &ConnectionArgs, workflow_id: &str, output: OutputFormat) -> Result<()> {
    let workflow = server.connect().await?.workflow(workflow_id).await?;
    let workflow = workflow.ok_or_else(|| CliError::not_found("workflow", &workflow_id, WORKFLOW_HELP))?;
    output.show("workflow.status", &workflow, |workflow| text(workflow))
}

/// Returns a line for the workflow, and a line for each step, those of nested workflows included.
fn text(workflow: &RawValue) -> String {
    let workflow: Value = serde_json::from_str(workflow.get()).unwrap_or_default();
    let mut lines = vec![format!("workflow {}: {}", word(&workflow["id"]), word(&workflow["state"]))];
    add_steps(&workflow, "", &mut lines);
    lines.join("\n")
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the steps of a workflow. The field of the steps depends on the type of the workflow.
fn steps(workflow: &Value) -> Option<&Vec<Value>> {
    ["steps", "jobs"].into_iter().find_map(|name| workflow[name].as_array())
}

/// Adds the lines of the steps of a workflow. The numbers of the steps begin with `before`.
fn add_steps(workflow: &Value, before: &str, lines: &mut Vec<String>) {
    for (at, step) in steps(workflow).into_iter().flatten().enumerate() {
        let number = format!("{before}{}", at + 1);
        let (kind, id) = match &step["action_id"] {
            _ if steps(step).is_some() => (word(&step["type"]), &step["id"]),
            Value::Null => ("job", &step["job_id"]),
            action_id => ("action", action_id),
        };
        lines.push(format!("  step {number}  {:<9}  {kind} {}", word(&step["state"]), word(id)));
        if let Some(error) = step["error"].as_str() {
            lines.push(format!("          {}", one_line(error)));
        }
        add_steps(step, &format!("{number}."), lines);
    }
}

async fn cancel(server: &ConnectionArgs, workflow_id: &str, output: OutputFormat) -> Result<()> {
    server.connect().await?.cancel_workflow(workflow_id).await?;
    let document = WorkflowRef { workflow_id: workflow_id.to_owned() };
    output.show("workflow.cancel", &document, |_| format!("workflow {workflow_id} is cancelled"))
}
