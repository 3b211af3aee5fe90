//! `agx_check`: compiles and checks a plan, and stores nothing.

use agenix_protocol::{
    documents::{Plan, to_json},
    inputs::named_fields,
};
use agenix_rules::plan::needs;
use serde_json::{Map, Value};

use super::plan_source::{PipelineOptions, of_json, of_pipeline};
use crate::{
    arguments::CheckArguments,
    error::{Result, ToolError},
    reports::CheckReport,
    settings::McpServerSettings,
};

pub(crate) fn run(settings: &McpServerSettings, arguments: &CheckArguments) -> Result<CheckReport> {
    let plan = match (&arguments.pipeline, &arguments.plan) {
        (Some(pipeline), None) => of_pipeline(settings, pipeline, PipelineOptions::default())?,
        (None, Some(plan)) => of_json(plan)?,
        _ => {
            return Err(ToolError::new(
                "give pipeline or plan, and not both",
                "repeat the call with one of them",
            ));
        }
    };
    Ok(CheckReport {
        programs: needs(&plan).tools,
        input_fields: named_fields(&plan).iter().map(|field| field.field.clone()).collect(),
        plan: json_of(&plan),
        note: "agq and the worker judge the plan by their policies when it runs".into(),
    })
}

fn json_of(plan: &Plan) -> Map<String, Value> {
    serde_json::from_str(&to_json(plan)).unwrap_or_default()
}
