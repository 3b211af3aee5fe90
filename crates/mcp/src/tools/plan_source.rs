//! Plans of calls: compiled from a pipeline, or as the model wrote them.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{Plan, PlanSandbox, Requires, Task, parse_object, sandbox_tag, to_json},
    ids::PlanId,
    limits::Limits,
    template,
};
use agenix_rules::plan::check;
use serde_json::{Map, Value};

use crate::{
    error::{Result, ToolError},
    settings::McpServerSettings,
};

/// Options of a plan from a pipeline.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PipelineOptions {
    pub(crate) retries: u32,
    pub(crate) timeout_secs: Option<u64>,
}

/// Compiles a pipeline. The error shows the place, and the nearest form that a plan can express.
pub(crate) fn of_pipeline(
    settings: &McpServerSettings,
    pipeline: &str,
    options: PipelineOptions,
) -> Result<Plan> {
    let tasks = (settings.compile)(pipeline)?;
    let of_settings = |task: Task| Task {
        timeout_secs: options.timeout_secs,
        // Braces in the path are text.
        cwd: settings.cwd.as_deref().map(template::literal).or(task.cwd),
        ..task
    };
    let mut requires = Requires::default();
    requires.tags.extend(settings.profile.as_deref().map(sandbox_tag));
    let plan = Plan {
        plan_id: None,
        plan_description: Some(pipeline.to_owned()),
        tasks: tasks.into_iter().map(of_settings).collect(),
        max_retries: options.retries,
        // The limits of the tasks replace the default of agq for an attempt.
        timeout_secs: options.timeout_secs.map(|_| 0),
        pipefail: false,
        requires,
        sandbox: settings.profile.clone().map(|profile| PlanSandbox { profile }),
        inputs: BTreeMap::new(),
        max_running: None,
        rate: None,
        retry_memory_factor: None,
    };
    check(&plan, &Limits::default())?;
    Ok(plan)
}

/// Reads a plan that the model wrote.
pub(crate) fn of_json(plan: &Map<String, Value>) -> Result<Plan> {
    let json = Value::Object(plan.clone()).to_string();
    let plan: Plan = parse_object(json.as_bytes()).map_err(|error| {
        ToolError::new(format!("plan: {error}"), "correct the field that the message names")
    })?;
    if plan.plan_id.is_some() {
        let help = "leave plan_id out of the plan; the argument plan_id names a plan that agq has";
        return Err(ToolError::new("plan: plan_id is not permitted here", help));
    }
    check(&plan, &Limits::default())?;
    Ok(plan)
}

/// Returns the plan with an id. The id depends on the content and on the key, so that equal calls
/// share a plan, and other keys cannot have taken the id.
pub(crate) fn identified(settings: &McpServerSettings, plan: Plan) -> Result<(PlanId, Plan)> {
    let digest = settings.server.secret_digest("plan", to_json(&plan).as_bytes());
    let plan_id = PlanId::new(format!("mcp-{digest}"))
        .map_err(|error| ToolError::new(error.to_string(), "report this as a fault of agx"))?;
    Ok((plan_id.clone(), Plan { plan_id: Some(plan_id), ..plan }))
}

#[cfg(test)]
mod tests {
    use agenix_client::Server;
    use agenix_protocol::{documents::Task, time::Timestamp};

    use super::{PipelineOptions, of_pipeline};
    use crate::settings::McpServerSettings;

    fn settings() -> McpServerSettings {
        McpServerSettings {
            server: Server::new("h:1", "k".repeat(64).into()).unwrap(),
            version: "0",
            queue: None,
            profile: None,
            cwd: Some("/a/{{cookiecutter.slug}}".into()),
            now: Timestamp::default,
            compile: |_| Ok(vec![Task { task_number: 1, command: "pwd".into(), ..Task::default() }]),
        }
    }

    #[test]
    fn braces_in_the_directory_of_pipelines_are_text() {
        let plan = of_pipeline(&settings(), "pwd", PipelineOptions::default()).unwrap();
        assert_eq!(plan.tasks[0].cwd.as_deref(), Some(r#"/a/{{"{{"}}cookiecutter.slug}}"#));
    }

    #[test]
    fn pipeline_with_a_timeout_of_tasks_has_no_shorter_one_of_the_attempt() {
        let limits = |timeout_secs| {
            let options = PipelineOptions { timeout_secs, ..PipelineOptions::default() };
            let plan = of_pipeline(&settings(), "pwd", options).unwrap();
            (plan.timeout_secs, plan.tasks[0].timeout_secs)
        };
        assert_eq!(limits(Some(7200)), (Some(0), Some(7200)));
        assert_eq!(limits(None), (None, None));
    }
}
