//! Tests of the rules of plans.

use agenix_protocol::{
    documents::{Plan, parse},
    limits::Limits,
};

use super::{check, check_size, limit, limit_of_job, needs};
use crate::limit::LimitTerms;

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
    assert!(refusal(&three(streamed, r#","input_from_task":1"#)).ends_with("already streams into task 2"));
    assert!(
        check(&plan(&three(streamed, r#","input_from_task":2,"stream":true"#)), &Limits::default()).is_ok()
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
fn secret_is_legal_only_as_the_value_of_a_variable() {
    let task = |rest: &str| format!(r#"{{"task_number":1,"command":"curl",{rest}}}"#);
    let legal = task(r#""env":{"A":"{{secret.TOKEN}}","B":"{{ secret.B_2 }}","C":"x"}"#);
    let plan = plan(&legal);
    assert!(check(&plan, &Limits::default()).is_ok());
    assert_eq!(needs(&plan).tags, ["secret:B_2:curl", "secret:TOKEN:curl"]);
    let whole = "stands for a secret, so it has to be the whole value of a variable in env";
    let unknown = "is not a placeholder";
    for (rest, place, why) in [
        (r#""args":["-H","{{secret.TOKEN}}"]"#, "args[1]", whole),
        (r#""args":["Bearer {{secret.TOKEN}}"]"#, "args[0]", whole),
        (r#""stdin":"{{secret.TOKEN}}""#, "stdin", whole),
        (r#""stdin_file":"{{secret.TOKEN}}""#, "stdin_file", whole),
        (r#""stdin_blob":"{{secret.TOKEN}}""#, "stdin_blob", whole),
        (r#""stdout":"/tmp/{{secret.TOKEN}}""#, "stdout", whole),
        (r#""stderr":"{{secret.TOKEN}}""#, "stderr", whole),
        (r#""cwd":"{{secret.TOKEN}}""#, "cwd", whole),
        (r#""env":{"A":"Bearer {{secret.TOKEN}}"}"#, "env.A", whole),
        (r#""env":{"A":"{{secret.{{input.x}}}}"}"#, "env.A", unknown),
        (r#""env":{"A":"{{secret.}}"}"#, "env.A", unknown),
        (r#""env":{"{{secret.TOKEN}}":"{{input.{{secret.TOKEN}}}}"}"#, "env.{{secret.TOKEN}}", unknown),
    ] {
        let refused = refusal(&task(rest));
        assert!(
            refused.contains(&format!("tasks[0].{place}: ")) && refused.contains(why),
            "{rest}: {refused}"
        );
    }
    let refused = refusal(r#"{"task_number":1,"command":"{{secret.TOKEN}}"}"#);
    assert!(refused.contains("it cannot hold a placeholder"), "{refused}");
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
        ("x", r#"{"tags":["program-paths"],"tools":["./x"]}"#, "requires.tools[0]: command is './x', a path"),
    ] {
        let refusal = check(&with(command, requires), &Limits::default()).unwrap_err().to_string();
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn sandbox_of_a_plan_is_one_profile() {
    let with = |rest: &str| {
        let text = format!(r#"{{"tasks":[{{"task_number":1,"command":"./a.sh"}}],{rest}}}"#);
        parse::<Plan>(text.as_bytes()).unwrap()
    };
    let reader = r#""sandbox":{"profile":"reader"}"#;
    // agx writes the tag, too.
    for tags in [r#"["program-paths"]"#, r#"["sandbox:reader","program-paths"]"#] {
        let plan = with(&format!(r#"{reader},"requires":{{"tags":{tags}}}"#));
        assert_eq!(check(&plan, &Limits::default()), Ok(()));
        assert_eq!(needs(&plan).tags, ["program-paths", "sandbox:reader"]);
    }
    let cases = [
        (
            r#""sandbox":{"profile":"Reader"}"#.to_owned(),
            "sandbox.profile 'Reader' is not valid: use 1 to 64 lower-case letters, digits and '-', '_'",
        ),
        (
            format!(r#"{reader},"requires":{{"tags":["program-paths","sandbox:net"]}}"#),
            "requires.tags[1] is 'sandbox:net': name the profile in the field sandbox of the plan instead",
        ),
        (
            r#""requires":{"tags":["sandbox:reader"]}"#.to_owned(),
            "requires.tags[0] is 'sandbox:reader': name the profile in the field sandbox of the plan instead",
        ),
        (
            format!(r#"{reader},"requires":{{"labels":{{"sandbox:reader":"true"}}}}"#),
            "requires.labels has 'sandbox:reader': name the profile in the field sandbox of the plan instead",
        ),
    ];
    for (rest, words) in cases {
        let refusal = check(&with(&rest), &Limits::default()).unwrap_err().to_string();
        assert_eq!(refusal, format!("Invalid plan schema: {words}"));
    }
}

#[test]
fn needs_are_distinct_and_sorted() {
    let plan = plan(
        r#"{"task_number":1,"command":"uniq"},{"task_number":2,"command":"sort"},{"task_number":3,"command":"uniq"}"#,
    );
    assert_eq!(needs(&plan).tools, ["sort", "uniq"]);
}

#[test]
fn types_of_inputs_are_legal_and_used() {
    let refusal = |inputs: &str| {
        let task = r#"{"task_number":1,"command":"cat","args":["{{input.file}}","{{input.more[]}}"]}"#;
        let plan: Plan = parse(format!(r#"{{"tasks":[{task}],"inputs":{inputs}}}"#).as_bytes()).unwrap();
        check(&plan, &Limits::default()).map_err(|rejection| rejection.to_string())
    };
    assert_eq!(refusal(r#"{"file":{"type":"path","under":"/data"},"more":{"type":"name"}}"#), Ok(()));
    for (inputs, reason) in [
        (r#"{"fil":{"type":"text"}}"#, "inputs.fil: no placeholder of the plan names this field"),
        (r#"{"file":{"type":"path","under":"data"}}"#, "inputs.file: under is not an absolute path"),
        (r#"{"file":{"type":"path","under":"/data/../etc"}}"#, "inputs.file: under is not an absolute path"),
        (r#"{"file":{"type":"int","min":2,"max":1}}"#, "inputs.file: min is greater than max"),
        (r#"{"file":{"type":"enum","values":[]}}"#, "inputs.file: values is empty"),
    ] {
        let refused = refusal(inputs).unwrap_err();
        assert!(refused.contains(reason), "{inputs}: {refused}");
    }
}

#[test]
fn plan_has_the_limit_of_its_bounds() {
    let plan_id = "p".parse().unwrap();
    let unbounded = plan(r#"{"task_number":1,"command":"a"}"#);
    let bounded = Plan { max_running: Some(2), ..unbounded.clone() };
    let (key, terms) = limit(&plan_id, &bounded).unwrap();
    assert_eq!((key.as_str(), terms.concurrency, limit(&plan_id, &unbounded)), ("plan:p", Some(2), None));
    let none = Plan { max_running: Some(0), ..unbounded };
    let refused = check(&none, &Limits::default()).unwrap_err().to_string();
    assert!(refused.ends_with("max_running is 0: use 1 or more"), "{refused}");
}

#[test]
fn job_has_the_limit_that_it_names_or_that_of_its_plan() {
    let plan: Plan = parse(br#"{"tasks":[{"task_number":1,"command":"a"}],"max_running":2}"#).unwrap();
    let unbounded = Plan { max_running: None, ..plan.clone() };
    let plan_id = "p".parse().unwrap();
    let given = || Some(("k".to_owned(), LimitTerms { concurrency: Some(1), ..LimitTerms::default() }));
    let of_plan = LimitTerms { concurrency: Some(2), ..LimitTerms::default() };
    assert_eq!(limit_of_job(None, Some((&plan_id, &plan))).unwrap(), Some(("plan:p".into(), of_plan)));
    for plan in [None, Some((&plan_id, &unbounded))] {
        assert_eq!(limit_of_job(given(), plan).unwrap(), given());
        assert_eq!(limit_of_job(None, plan).unwrap(), None);
    }
    let both = limit_of_job(given(), Some((&plan_id, &plan))).unwrap_err().to_string();
    assert!(both.contains("leave options.rate_limit out"), "{both}");
}

#[test]
fn quantities_of_a_plan_have_different_variables_and_memory_for_a_factor() {
    let refused = |fields: &str| {
        let json = format!(r#"{{"tasks":[{{"task_number":1,"command":"sort"}}],{fields}}}"#);
        let checked = check(&parse(json.as_bytes()).unwrap(), &Limits::default());
        checked.err().map(|rejection| rejection.to_string()).unwrap_or_default()
    };
    let both = refused(r#""requires":{"resources":{"a-b":1,"a_b":1}}"#);
    assert!(both.contains("requires.resources: 'a-b' and 'a_b' are both AGX_RESOURCE_A_B"), "{both}");
    let factor = refused(r#""retry_memory_factor":2"#);
    assert!(
        factor.starts_with("Invalid plan schema: retry_memory_factor is given, and a job wants no memory")
    );
    let legal = r#""requires":{"resources":{"a-b":1,"memory":"1G"}},"retry_memory_factor":2"#;
    assert_eq!(refused(legal), "");
}
