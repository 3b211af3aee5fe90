//! Rules of plans (AGQ API spec §2), and the needs of the jobs that run a plan.

use std::collections::BTreeSet;

use agenix_protocol::{
    documents::{
        PROGRAM_PATHS, Plan, Quantities, Requires, Task, check_resource_variables, is_profile_name,
        profile_of_sandbox_tag, sandbox_tag, secret_tag,
    },
    ids::PlanId,
    limits::{Limits, exceeds},
    template,
};

use crate::{capability::Needs, input_type, limit::LimitTerms, memory_factor, rejection::Rejection};

/// Maximum of `max_retries` in a plan.
pub const MAX_RETRIES: u32 = 1000;

/// Checks the size of a plan document.
pub fn check_size(bytes: usize, limits: &Limits) -> Result<(), Rejection> {
    if exceeds(bytes, limits.max_plan_bytes) {
        return Err(Rejection::InvalidPlan(format!(
            "the plan has {bytes} bytes, max {}",
            limits.max_plan_bytes
        )));
    }
    Ok(())
}

/// Checks that the plan is legal. The error names the first invalid field and its place.
pub fn check(plan: &Plan, limits: &Limits) -> Result<(), Rejection> {
    let invalid = |text: String| Err(Rejection::InvalidPlan(text));
    if plan.tasks.is_empty() {
        return invalid("tasks is empty: a plan has at least one task".into());
    }
    if exceeds(plan.tasks.len(), limits.max_tasks) {
        return invalid(format!("tasks has {} tasks, max {}", plan.tasks.len(), limits.max_tasks));
    }
    if plan.max_retries > MAX_RETRIES {
        return invalid(format!("max_retries is {}, max {MAX_RETRIES}", plan.max_retries));
    }
    if plan.max_running == Some(0) {
        return invalid("max_running is 0: use 1 or more".into());
    }
    check_requires(&plan.requires).map_err(|reason| Rejection::InvalidPlan(format!("requires.{reason}")))?;
    check_sandbox(plan).map_err(Rejection::InvalidPlan)?;
    memory_factor::check_plan(plan).map_err(Rejection::InvalidPlan)?;
    plan.tasks.iter().enumerate().try_for_each(|(at, task)| {
        check_task(plan, at, task).map_err(|reason| Rejection::InvalidPlan(format!("tasks[{at}].{reason}")))
    })?;
    let is_used = |field: &str| plan.tasks.iter().any(|task| is_named(task, field));
    input_type::check_types(&plan.inputs, is_used)
        .map_err(|reason| Rejection::InvalidPlan(format!("inputs.{reason}")))
}

/// Returns true if a placeholder of the task names the field.
fn is_named(task: &Task, field: &str) -> bool {
    let names = |text: &str| template::fields(text).is_ok_and(|fields| fields.contains(&field));
    task.templates().any(|(_, text)| template::list(text) == Some(field) || names(text))
}

fn check_requires(requires: &Requires) -> Result<(), String> {
    for (at, tool) in requires.tools.iter().enumerate() {
        check_command(tool).map_err(|reason| format!("tools[{at}]: {reason}"))?;
    }
    check_resource_variables(&requires.resources).map_err(|error| format!("resources: {error}"))?;
    if let Some(at) = requires.tags.iter().position(String::is_empty) {
        return Err(format!("tags[{at}] is empty"));
    }
    if requires.labels.contains_key("") {
        return Err("labels has an empty name".into());
    }
    Ok(())
}

/// Checks the profile. The tag that stands for a profile may only repeat the profile of the plan,
/// so that one plan never asks for two sandboxes.
fn check_sandbox(plan: &Plan) -> Result<(), String> {
    let profile = plan.sandbox.as_ref().map(|sandbox| sandbox.profile.as_str());
    if let Some(profile) = profile.filter(|profile| !is_profile_name(profile)) {
        let shown = profile.escape_debug();
        return Err(format!(
            "sandbox.profile '{shown}' is not valid: use 1 to 64 lower-case letters, digits and '-', '_'"
        ));
    }
    let instead = "name the profile in the field sandbox of the plan instead";
    let own = profile.map(sandbox_tag);
    let is_other = |tag: &String| profile_of_sandbox_tag(tag).is_some() && Some(tag) != own.as_ref();
    if let Some(at) = plan.requires.tags.iter().position(is_other) {
        let shown = plan.requires.tags[at].escape_debug();
        return Err(format!("requires.tags[{at}] is '{shown}': {instead}"));
    }
    if let Some(label) = plan.requires.labels.keys().find(|label| profile_of_sandbox_tag(label).is_some()) {
        return Err(format!("requires.labels has '{}': {instead}", label.escape_debug()));
    }
    Ok(())
}

fn check_task(plan: &Plan, at: usize, task: &Task) -> Result<(), String> {
    let number = at + 1;
    if task.task_number as usize != number {
        return Err(format!(
            "task_number is {}, expected {number}: tasks are numbered from 1 without gaps",
            task.task_number
        ));
    }
    if task.is_program_path() && allows_paths(&plan.requires) {
        check_path(&task.command)?;
    } else {
        check_command(&task.command)?;
    }
    check_input(plan, at, task)?;
    if task.timeout_secs == Some(0) {
        return Err(
            "timeout_secs is 0: give at least 1 second, or leave it out for the default of 300".into()
        );
    }
    if task.idle_timeout_secs == Some(0) {
        return Err("idle_timeout_secs is 0: give at least 1 second, or leave it out for no limit".into());
    }
    if let Some(name) = task.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(format!("env has the name '{}', which no variable can have", name.escape_debug()));
    }
    for (place, text) in task.templates() {
        if text.contains('\0') && place != "stdin" {
            return Err(format!("{place} contains a NUL byte, which no process can be given"));
        }
        if place.starts_with("args[") && template::list(text).is_some() {
            continue;
        }
        if place.starts_with("env.") && template::secret(text).is_some() {
            continue;
        }
        template::fields(text).map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(())
}

fn check_command(command: &str) -> Result<(), String> {
    if command.trim().is_empty() {
        return Err("command is empty".into());
    }
    if command.contains('/') {
        return Err(format!(
            "command is '{command}', a path: give the name of a program on the workers' PATH"
        ));
    }
    if command.contains("{{") {
        return Err(format!(
            "command is '{command}': it cannot hold a placeholder, for workers are chosen by it"
        ));
    }
    if command.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let shown = command.escape_debug();
        return Err(format!(
            "command is '{shown}': one program name, no shell line; its arguments go into args"
        ));
    }
    Ok(())
}

/// Returns true if only workers that run programs by path get jobs of the plan.
fn allows_paths(requires: &Requires) -> bool {
    requires.tags.iter().any(|tag| tag == PROGRAM_PATHS)
}

fn check_path(command: &str) -> Result<(), String> {
    let shown = command.escape_debug();
    if command.contains("{{") {
        return Err(format!("command is '{shown}': a path cannot hold a placeholder"));
    }
    if command.ends_with('/') || command.contains(char::is_control) {
        return Err(format!("command is '{shown}', which is not the path of a program"));
    }
    Ok(())
}

fn check_input(plan: &Plan, at: usize, task: &Task) -> Result<(), String> {
    let own = [("stdin", &task.stdin), ("stdin_blob", &task.stdin_blob), ("stdin_file", &task.stdin_file)];
    let mut given = own.into_iter().filter(|(_, text)| text.is_some()).map(|(name, _)| name);
    let own = given.next();
    if let (Some(one), Some(other)) = (own, given.next()) {
        return Err(format!("{one} and {other} are both given: a task has one stdin"));
    }
    let Some(from) = task.input_from_task else {
        return if task.stream { Err("stream needs input_from_task".into()) } else { Ok(()) };
    };
    let (from_at, this) = (from as usize, at + 1);
    if from_at == 0 || from_at >= this {
        return Err(format!("input_from_task is {from}: it must name a task before task {this}"));
    }
    if let Some(name) = own {
        return Err(format!("{name} and input_from_task are both given: a task has one stdin"));
    }
    if plan.tasks[from_at - 1].stdout.is_some() {
        return Err(format!("input_from_task is {from}, whose stdout goes to a file"));
    }
    if task.stream && from_at != at {
        return Err(format!(
            "stream joins a task with the one before it: input_from_task must be {at}, not {from}"
        ));
    }
    let streamed = |other: &&Task| other.stream && other.input_from_task == Some(from);
    match plan.tasks.iter().take(at).find(streamed) {
        Some(other) => Err(format!(
            "input_from_task is {from}, whose stdout already streams into task {}",
            other.task_number
        )),
        None => Ok(()),
    }
}

/// Checks that a plan can be deleted: it has no `active_jobs`, jobs that have not ended.
pub fn check_unused(active_jobs: u64) -> Result<(), Rejection> {
    if active_jobs > 0 { Err(Rejection::PlanInUse) } else { Ok(()) }
}

/// Returns the limit of all jobs that run the plan `plan_id`, and its key; `None` without bounds.
pub fn limit(plan_id: &PlanId, plan: &Plan) -> Option<(String, LimitTerms)> {
    let terms = LimitTerms::new(plan.max_running, plan.rate)?;
    Some((format!("plan:{plan_id}"), terms))
}

/// Returns the limit of a job of the Open Job Spec, and its key: the one that the job names, or
/// that of its plan. Rejects a job with both limits, because a job has one limit.
pub fn limit_of_job(
    given: Option<(String, LimitTerms)>,
    of_plan: Option<(&PlanId, &Plan)>,
) -> Result<Option<(String, LimitTerms)>, Rejection> {
    let Some((plan_id, plan)) = of_plan else { return Ok(given) };
    match (given, limit(plan_id, plan)) {
        (Some(_), Some(_)) => Err(Rejection::InvalidJob(format!(
            "options.rate_limit is given, and the plan {plan_id} has max_running or rate for all its jobs, and a job has one \
             limit: leave options.rate_limit out"
        ))),
        (given, of_plan) => Ok(given.or(of_plan)),
    }
}

/// Returns the needs of jobs that run the plan and have no options of their own: its commands, its
/// `requires`, and the tags of its sandbox profile and of the secrets of its tasks. Workers do not
/// declare paths: a plan with a path requires a tag instead.
pub fn needs(plan: &Plan) -> Needs {
    let sorted = |names: BTreeSet<&String>| names.into_iter().cloned().collect();
    let sandbox = plan.sandbox.as_ref().map(|sandbox| sandbox_tag(&sandbox.profile));
    let secrets: BTreeSet<String> = plan
        .tasks
        .iter()
        .flat_map(|task| task.secrets().map(|name| secret_tag(name, &task.command)))
        .collect();
    let resources = plan.requires.resources.overridden(&Quantities::default());
    let resources = Some(resources).filter(|resources| !resources.is_empty());
    let commands = plan.tasks.iter().filter(|task| !task.is_program_path()).map(|task| &task.command);
    Needs {
        tools: sorted(commands.chain(&plan.requires.tools).collect()),
        tags: sorted(plan.requires.tags.iter().chain(&sandbox).chain(&secrets).collect()),
        labels: plan.requires.labels.clone(),
        limit: None,
        budget: None,
        resources: resources.map(Box::new),
        share: None,
    }
}

#[cfg(test)]
mod tests;
