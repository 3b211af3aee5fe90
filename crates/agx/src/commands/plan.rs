//! `agx plan …`

use std::path::Path;

use agenix_protocol::{
    documents::{Plan, parse_object},
    ids::PlanId,
    limits::Limits,
};
use agenix_rules::plan as rules;

use super::read;
use crate::{
    cli::ServerArgs,
    documents::{PlanChecked, PlanRef},
    error::CliError,
    output::Output,
};

pub(super) async fn submit(server: &ServerArgs, file: &Path, output: Output) -> Result<(), CliError> {
    let json = read(file)?;
    let plan_id = server.connect().await?.submit_plan(json).await?;
    output.show("plan.submit", &PlanRef { plan_id }, |stored| format!("plan {} is stored", stored.plan_id))
}

pub(super) async fn get(server: &ServerArgs, plan_id: &PlanId, output: Output) -> Result<(), CliError> {
    let plan = server.connect().await?.plan(plan_id).await?;
    let plan =
        plan.ok_or_else(|| CliError::not_found("plan", plan_id, "see the plans with `agx plan list`"))?;
    output.show("plan.get", &plan, |plan| serde_json::to_string_pretty(plan).unwrap_or_default())
}

pub(super) async fn list(server: &ServerArgs, output: Output) -> Result<(), CliError> {
    let plans = server.connect().await?.plans().await?;
    output.show("plan.list", &plans, |plans| plans.iter().map(|id| format!("{id}\n")).collect())
}

/// Checks what agq would check, with its default limits.
pub(super) fn check(file: &Path, output: Output) -> Result<(), CliError> {
    let json = read(file)?;
    let limits = Limits::default();
    let wrong = |what: String| {
        CliError::usage(
            format!("{}: {what}", file.display()),
            "mend the plan; docs/protocol/plans.md describes it",
        )
    };
    rules::check_size(json.len(), &limits).map_err(|rejection| wrong(rejection.to_string()))?;
    let plan: Plan = parse_object(&json).map_err(|error| wrong(error.to_string()))?;
    rules::check(&plan, &limits).map_err(|rejection| wrong(rejection.to_string()))?;
    let (tasks, needs) = (plan.tasks.len(), rules::needs(&plan));

    let tags = needs.tags.iter().map(|tag| format!("the tag {tag}"));
    let labels = needs.labels.iter().map(|(label, value)| format!("the label {label}={value}"));
    let all: Vec<String> = needs.tools.iter().cloned().chain(tags).chain(labels).collect();
    let found = PlanChecked {
        valid: true,
        plan_id: plan.plan_id,
        tasks,
        tools: needs.tools,
        tags: needs.tags,
        labels: needs.labels,
    };
    output.show("plan.check", &found, |_| {
        format!("the plan is valid: {tasks} tasks; its workers need {}", all.join(", "))
    })
}
