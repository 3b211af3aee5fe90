//! Rules of plans (AGQ API spec §2), and the needs of the jobs that run a plan.

use std::collections::BTreeSet;

use agenix_protocol::{
    documents::{PROGRAM_PATHS, Plan, Requires, Task},
    ids::PlanId,
    limits::{Limits, exceeds},
    template,
};

use crate::{capability::Needs, rejection::Rejection};

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
    check_requires(&plan.requires).map_err(|reason| Rejection::InvalidPlan(format!("requires.{reason}")))?;
    plan.tasks.iter().enumerate().try_for_each(|(at, task)| {
        check_task(plan, at, task).map_err(|reason| Rejection::InvalidPlan(format!("tasks[{at}].{reason}")))
    })
}

fn check_requires(requires: &Requires) -> Result<(), String> {
    for (at, tool) in requires.tools.iter().enumerate() {
        check_command(tool).map_err(|reason| format!("tools[{at}]: {reason}"))?;
    }
    if let Some(at) = requires.tags.iter().position(String::is_empty) {
        return Err(format!("tags[{at}] is empty"));
    }
    if requires.labels.contains_key("") {
        return Err("labels has an empty name".into());
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

/// Checks that a job with `needs` can run the plan that has the id of its plan now.
pub fn check_same_needs(plan: &Plan, plan_id: &PlanId, needs: &Needs) -> Result<(), Rejection> {
    // The limit belongs to the job, and not to its plan.
    let of_plan = Needs { limit: needs.limit.clone(), ..crate::plan::needs(plan) };
    if of_plan == *needs { Ok(()) } else { Err(Rejection::PlanReplaced(plan_id.clone())) }
}

/// Returns the needs of jobs that run the plan: its commands and its `requires`. Workers do not
/// declare paths: a plan with a path requires a tag instead.
pub fn needs(plan: &Plan) -> Needs {
    let sorted = |names: BTreeSet<&String>| names.into_iter().cloned().collect();
    let commands = plan.tasks.iter().filter(|task| !task.is_program_path()).map(|task| &task.command);
    Needs {
        tools: sorted(commands.chain(&plan.requires.tools).collect()),
        tags: sorted(plan.requires.tags.iter().collect()),
        labels: plan.requires.labels.clone(),
        limit: None,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Plan, parse},
        limits::Limits,
    };

    use super::{check, check_size, needs};

    fn plan(tasks: &str) -> Plan {
        parse(format!(r#"{{"tasks":[{tasks}]}}"#).as_bytes()).unwrap()
    }

    fn refusal(tasks: &str) -> String {
        check(&plan(tasks), &Limits::default()).unwrap_err().to_string()
    }

    #[test]
    fn plan_errors_name_field_and_reason() {
        let cases = [
            ("", "tasks is empty: a plan has at least one task"),
            (
                r#"{"task_number":2,"command":"a"}"#,
                "tasks[0].task_number is 2, expected 1: tasks are numbered from 1 without gaps",
            ),
            (r#"{"task_number":1,"command":""}"#, "tasks[0].command is empty"),
            (
                r#"{"task_number":1,"command":"/bin/sh"}"#,
                "tasks[0].command is '/bin/sh', a path: give the name of a program on the workers' PATH",
            ),
            (
                r#"{"task_number":1,"command":"{{input.x}}"}"#,
                "tasks[0].command is '{{input.x}}': it cannot hold a placeholder, for workers are chosen by it",
            ),
            (
                r#"{"task_number":1,"command":"sort | uniq"}"#,
                "tasks[0].command is 'sort | uniq': one program name, no shell line; its arguments go into args",
            ),
            (
                r#"{"task_number":1,"command":"a","input_from_task":1}"#,
                "tasks[0].input_from_task is 1: it must name a task before task 1",
            ),
            (r#"{"task_number":1,"command":"a","stream":true}"#, "tasks[0].stream needs input_from_task"),
            (
                r#"{"task_number":1,"command":"a","args":["{{x"]}"#,
                r#"tasks[0].args[0]: '{{' is never closed by '}}': write {{"{{"}} for these two characters as they are"#,
            ),
            (
                r#"{"task_number":1,"command":"a","args":["{{input.x[]}}","--f={{input.x[]}}"]}"#,
                "tasks[0].args[1]: '{{input.x[]}}' stands for a list of arguments, so it has to be a whole element of args: \
                 write {{input.x}} for the value as one text",
            ),
            (
                r#"{"task_number":1,"command":"a","env":{"X":"{{input.x[]}}"}}"#,
                "tasks[0].env.X: '{{input.x[]}}' stands for a list of arguments, so it has to be a whole element of args: \
                 write {{input.x}} for the value as one text",
            ),
            (
                r#"{"task_number":1,"command":"a","cwd":"{{input.x[]}}"}"#,
                "tasks[0].cwd: '{{input.x[]}}' stands for a list of arguments, so it has to be a whole element of args: \
                 write {{input.x}} for the value as one text",
            ),
            (
                r#"{"task_number":1,"command":"a","stdin":"","stdin_file":"f"}"#,
                "tasks[0].stdin and stdin_file are both given: a task has one stdin",
            ),
            (
                r#"{"task_number":1,"command":"a"},{"task_number":2,"command":"b","stdin_file":"f","input_from_task":1}"#,
                "tasks[1].stdin_file and input_from_task are both given: a task has one stdin",
            ),
            (
                r#"{"task_number":1,"command":"a","timeout_secs":0}"#,
                "tasks[0].timeout_secs is 0: give at least 1 second, or leave it out for the default of 300",
            ),
            (
                r#"{"task_number":1,"command":"a","idle_timeout_secs":0}"#,
                "tasks[0].idle_timeout_secs is 0: give at least 1 second, or leave it out for no limit",
            ),
        ];
        for (tasks, words) in cases {
            assert_eq!(refusal(tasks), format!("Invalid plan schema: {words}"));
        }
    }

    #[test]
    fn stream_has_one_reader_and_joins_neighbours() {
        let three = |second: &str, third: &str| {
            format!(
                r#"{{"task_number":1,"command":"a"}},{{"task_number":2,"command":"b"{second}}},{{"task_number":3,"command":"c"{third}}}"#
            )
        };
        let streamed = r#","input_from_task":1,"stream":true"#;
        assert!(refusal(&three("", streamed)).ends_with("input_from_task must be 2, not 1"));
        assert!(
            refusal(&three(streamed, r#","input_from_task":1"#)).ends_with("already streams into task 2")
        );
        assert!(
            check(&plan(&three(streamed, r#","input_from_task":2,"stream":true"#)), &Limits::default())
                .is_ok()
        );
    }

    #[test]
    fn plan_may_have_a_hundred_tasks_and_not_one_more() {
        let tasks = |n: usize| {
            let task = |n| format!(r#"{{"task_number":{n},"command":"true"}}"#);
            plan(&(1..=n).map(task).collect::<Vec<_>>().join(","))
        };
        assert!(check(&tasks(100), &Limits::default()).is_ok());
        let refused = check(&tasks(101), &Limits::default()).unwrap_err().to_string();
        assert_eq!(refused, "Invalid plan schema: tasks has 101 tasks, max 100");
    }

    #[test]
    fn plan_may_have_a_megabyte_and_not_one_byte_more() {
        assert!(check_size(1024 * 1024, &Limits::default()).is_ok());
        let refused = check_size(1024 * 1024 + 1, &Limits::default()).unwrap_err().to_string();
        assert_eq!(refused, "Invalid plan schema: the plan has 1048577 bytes, max 1048576");
    }

    #[test]
    fn plan_may_have_paths_if_it_requires_workers_that_run_them() {
        let with = |command: &str, requires: &str| {
            let task = format!(r#"{{"task_number":1,"command":"{command}"}}"#);
            parse::<Plan>(format!(r#"{{"tasks":[{task}],"requires":{requires}}}"#).as_bytes()).unwrap()
        };
        let paths = r#"{"tags":["program-paths"]}"#;
        for command in ["./a.sh", "/opt/my tools/x", "../x", "bin/x"] {
            let plan = with(command, paths);
            assert!(check(&plan, &Limits::default()).is_ok(), "{command}");
            let needs = needs(&plan);
            assert_eq!((needs.tools.len(), &*needs.tags), (0, &["program-paths".to_owned()][..]));
        }
        for (command, requires, words) in [
            ("./a.sh", r#"{"tags":["gpu"]}"#, "a path: give the name"),
            ("./{{input.x}}", paths, "command is './{{input.x}}': a path cannot hold a placeholder"),
            ("./a/", paths, "command is './a/', which is not the path of a program"),
            ("./a\\nb", paths, "which is not the path of a program"),
            ("a b", paths, "no shell line"),
            (
                "x",
                r#"{"tags":["program-paths"],"tools":["./x"]}"#,
                "requires.tools[0]: command is './x', a path",
            ),
        ] {
            let refusal = check(&with(command, requires), &Limits::default()).unwrap_err().to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn needs_are_distinct_and_sorted() {
        let plan = plan(
            r#"{"task_number":1,"command":"uniq"},{"task_number":2,"command":"sort"},{"task_number":3,"command":"uniq"}"#,
        );
        assert_eq!(needs(&plan).tools, ["sort", "uniq"]);
    }
}
