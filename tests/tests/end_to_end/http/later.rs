//! Deferred submissions: steps of workflows, and schedules.

use e2e::{Lab, eventually};
use serde_json::Value;

use super::client::Http;
use crate::support::RawConnection;

#[test]
fn outputs_of_one_step_are_the_inputs_of_the_next() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &[]);
    lab.submit_plan(&agq, r#"{"plan_id":"count","tasks":[{"task_number":1,"command":"wc","args":["-c"],"stdin":"{{input.text}}"}]}"#);
    lab.submit_plan(&agq, r#"{"plan_id":"say","tasks":[{"task_number":1,"command":"printf","args":["%s has %s","{{input.input.text}}","{{input.output}}"]}]}"#);
    let steps = r#"[{"plan_id":"count","inputs":[{"text":"four"},{"text":"seven77"}]},{"plan_id":"say"}]"#;
    let file = lab.file("workflow.json", &format!(r#"{{"name":"lengths","steps":{steps}}}"#));
    let begun = lab.agx(&agq, &["--json", "workflow", "submit", &file.display().to_string()]).expect(0);
    let begun: Value = serde_json::from_str(&begun.out).unwrap();
    let id = begun["data"]["workflow_id"].as_str().unwrap().to_owned();
    agq.kill();
    agq.start_again(&lab);
    let http = Http::of(&lab, &agq);
    let ended = eventually("the workflow has ended", || {
        let workflow = http.get(&format!("/workflows/{id}"))["workflow"].clone();
        (workflow["state"] != "running").then_some(workflow)
    });
    assert_eq!((&ended["state"], &ended["steps_completed"]), (&"completed".into(), &2.into()), "{ended}");
    let last = ended["steps"][1]["action_id"].as_str().unwrap();
    let results = lab.agx(&agq, &["action", "results", last, "--ordered"]).expect(0);
    assert_eq!(results.out, "four has 4\nseven77 has 7\n");
    let shown = lab.agx(&agq, &["workflow", "status", &id]).expect(0).out;
    assert!(shown.starts_with(&format!("workflow {id}: completed\n  step 1  completed  action ")), "{shown}");
}

#[test]
fn chain_stops_at_a_step_that_failed_and_calls_back() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let step =
        |name: &str| format!(r#"{{"type":"{name}","args":[],"options":{{"retry":{{"max_attempts":1}}}}}}"#);
    let body = format!(
        r#"{{"type":"chain","steps":[{},{},{}],"callbacks":{{"on_failure":{},"on_success":{}}}}}"#,
        step("one"),
        step("two"),
        step("three"),
        step("sorry"),
        step("hurray")
    );
    let id = http.post("/workflows", &body)["workflow"]["id"].as_str().unwrap().to_owned();
    let one = http.fetch("w", "default").unwrap();
    assert_eq!((&one["type"], &one["workflow_id"]), (&"one".into(), &id.as_str().into()));
    http.post(&format!("/jobs/{}/ack", one["id"].as_str().unwrap()), r#"{"result":{"n":1}}"#);
    let two = http.fetch("w", "default").unwrap();
    assert_eq!((&two["type"], &two["parent_results"][0]["n"]), (&"two".into(), &1.into()));
    let error = r#"{"error":{"code":"handler_error","message":"no"}}"#;
    http.post(&format!("/jobs/{}/nack", two["id"].as_str().unwrap()), error);
    assert_eq!(http.fetch("w", "default").unwrap()["type"], "sorry");
    let workflow = &http.get(&format!("/workflows/{id}"))["workflow"];
    assert_eq!((&workflow["state"], &workflow["steps"][2]["state"]), (&"failed".into(), &"waiting".into()));
    assert!(http.post("/workers/fetch", r#"{"queues":["default"]}"#)["jobs"][0].is_null());
}

#[test]
fn step_that_cannot_be_submitted_says_why() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let plan = |field: &str| {
        let task = format!(r#"{{"task_number":1,"command":"echo","args":["{{{{input.{field}}}}}"]}}"#);
        lab.submit_plan(&agq, &format!(r#"{{"plan_id":"say-{field}","tasks":[{task}]}}"#));
        format!(r#"{{"type":"chain","steps":[{{"type":"one","args":[]}},{{"plan_id":"say-{field}"}}]}}"#)
    };
    let refused = http.ask("POST", "/workflows", &plan("text"));
    assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{}", refused.text);
    assert!(
        refused.text.contains("steps[1]") && refused.text.contains("no field 'text'"),
        "{}",
        refused.text
    );
    let id = http.post("/workflows", &plan("output"))["workflow"]["id"].as_str().unwrap().to_owned();
    assert_eq!(RawConnection::open(&lab, &agq).ask("PLAN.DELETE say-output"), ":1");
    let one = http.fetch("w", "default").unwrap();
    http.post(&format!("/jobs/{}/ack", one["id"].as_str().unwrap()), r#"{"result":"seven"}"#);
    let failed = eventually("the workflow has failed", || {
        let workflow = http.get(&format!("/workflows/{id}"))["workflow"].clone();
        (workflow["state"] == "failed").then_some(workflow)
    });
    assert_eq!(failed["steps"][1]["error"], "Plan not found: say-output");
    let shown = lab.agx(&agq, &["workflow", "status", &id]).expect(0).out;
    assert!(shown.ends_with("\n          Plan not found: say-output\n"), "{shown}");
}

#[test]
fn keys_of_a_step_fit_what_the_step_before_leaves() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#);
    let refused = |options: &str| {
        let steps = format!(r#"[{{"type":"one","args":[]}},{{"plan_id":"p",{options}}}]"#);
        let refused = http.ask("POST", "/workflows", &format!(r#"{{"type":"chain","steps":{steps}}}"#));
        assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{}", refused.text);
        refused.text
    };
    let key = refused(r#""concurrency":{"key":"{{input.user}}"}"#);
    assert!(key.contains("no field 'user', which concurrency.key uses: use output, input, job_id"), "{key}");
    let left_out = refused(r#""inputs":[{}],"unique":{"on_conflict":"ignore"}"#);
    assert!(left_out.contains("unique.on_conflict is ignore"), "{left_out}");
    let twice = refused(r#""inputs":[{},{}],"unique":{}"#);
    assert!(twice.contains("inputs[1] has the same unique key as inputs[0]"), "{twice}");
}

#[test]
fn schedule_is_one_at_both_apis() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let cron = r#"{"name":"nightly","expression":"0 3 * * *","timezone":"Europe/Berlin","job_template":{"type":"a","args":[]}}"#;
    http.post("/cron", cron);
    let twice = http.ask("POST", "/cron", cron);
    assert_eq!((twice.status, twice.code()), (409, "duplicate"));
    assert_eq!(lab.agx(&agq, &["schedule", "list"]).expect(0).out, "nightly\n");
    let shown = lab.agx(&agq, &["schedule", "get", "nightly"]).expect(0).out;
    assert!(shown.contains(r#""expression": "0 3 * * *""#), "{shown}");
    lab.agx(&agq, &["schedule", "delete", "nightly"]).expect(0);
    assert_eq!(http.ask("GET", "/cron/nightly", "").status, 404);
    lab.agx(&agq, &["schedule", "delete", "nightly"]).expect(4);
}

/// Waits for the end of a workflow, and returns the workflow.
fn ended(http: &Http, id: &str) -> Value {
    eventually("the workflow has ended", || {
        let workflow = http.get(&format!("/workflows/{id}"))["workflow"].clone();
        (workflow["state"] != "running").then_some(workflow)
    })
}

#[test]
fn more_outputs_than_a_chunk_has_are_handed_on_whole_and_in_order() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &["--max-concurrent-jobs", "4"]);
    let http = Http::of(&lab, &agq);
    for (plan, field) in [("first", "input.n"), ("second", "input.output")] {
        let task = format!(r#"{{"task_number":1,"command":"printf","args":["%s","{{{{{field}}}}}"]}}"#);
        lab.submit_plan(&agq, &format!(r#"{{"plan_id":"{plan}","tasks":[{task}]}}"#));
    }
    let inputs: Vec<String> = (0..1100).map(|n| format!(r#"{{"n":"{n}."}}"#)).collect();
    let steps = format!(r#"[{{"plan_id":"first","inputs":[{}]}},{{"plan_id":"second"}}]"#, inputs.join(","));
    let begun = http.post("/workflows", &format!(r#"{{"type":"chain","steps":{steps}}}"#));
    let workflow = ended(&http, begun["workflow"]["id"].as_str().unwrap());
    assert_eq!(workflow["state"], "completed", "{workflow}");
    let last = workflow["steps"][1]["action_id"].as_str().unwrap();
    let results = lab.agx(&agq, &["action", "results", last, "--ordered"]).expect(0);
    assert_eq!(results.out, (0..1100).map(|n| format!("{n}.")).collect::<String>());
}

#[test]
fn results_that_are_too_large_for_one_job_fail_its_step() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-message-bytes", "20000"]);
    let _agw = lab.agw(&agq, "w", &["--tools", "seq"]);
    let http = Http::of(&lab, &agq);
    lab.submit_plan(
        &agq,
        r#"{"plan_id":"long","tasks":[{"task_number":1,"command":"seq","args":["2500"]}]}"#,
    );
    let steps = r#"[{"plan_id":"long","inputs":[{},{}]},{"type":"one","args":[]}]"#;
    let begun = http.post("/workflows", &format!(r#"{{"type":"chain","steps":{steps}}}"#));
    let workflow = ended(&http, begun["workflow"]["id"].as_str().unwrap());
    let error = workflow["steps"][1]["error"].as_str().unwrap();
    assert!(error.contains("the results of the step before have more than 20000 bytes together"), "{error}");
}

#[test]
fn callback_that_has_ended_is_shown_as_that() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let body = r#"{"type":"batch","jobs":[{"type":"one","args":[]},{"type":"one","args":[]}],
        "callbacks":{"on_complete":{"type":"over","args":[]}}}"#;
    let id = http.post("/workflows", body)["workflow"]["id"].as_str().unwrap().to_owned();
    let ack = |kind: &str| {
        let job = http.fetch("w", "default").unwrap();
        assert_eq!(job["type"], kind);
        http.post(&format!("/jobs/{}/ack", job["id"].as_str().unwrap()), "{}");
    };
    ack("one");
    let state = |of: &str| http.get(&format!("/workflows/{id}"))["workflow"].pointer(of).cloned();
    assert_eq!((state("/state"), state("/jobs_completed")), (Some("running".into()), Some(1.into())));
    ack("one");
    assert_eq!(
        (state("/state"), state("/callbacks/0/state")),
        (Some("completed".into()), Some("running".into()))
    );
    ack("over");
    assert_eq!(state("/callbacks/0/state"), Some("completed".into()));
}

#[test]
fn job_of_somebody_else_that_stands_for_a_step_is_not_cancelled_with_the_workflow() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let job = r#"{"type":"one","args":[],"options":{"unique":{"keys":["type"],"on_conflict":"ignore"}}}"#;
    let first = http.post("/jobs", job)["job"]["id"].as_str().unwrap().to_owned();
    let body = format!(r#"{{"type":"group","jobs":[{job},{{"type":"two","args":[]}}]}}"#);
    let workflow = http.post("/workflows", &body)["workflow"].clone();
    assert_eq!(workflow["jobs"][0]["job_id"], first.as_str(), "{workflow}");
    http.ask("DELETE", &format!("/workflows/{}", workflow["id"].as_str().unwrap()), "");
    assert_eq!(http.get(&format!("/jobs/{first}"))["job"]["state"], "available");
    let own = workflow["jobs"][1]["job_id"].as_str().unwrap();
    assert_eq!(http.get(&format!("/jobs/{own}"))["job"]["state"], "cancelled");
}

#[test]
fn numbers_in_a_schedule_stay_as_they_were_written() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let cron = r#"{"expression":"0 3 * * *","job_template":{"type":"a","args":[18446744073709551616,1.10]}}"#;
    let numbers = "[18446744073709551616,1.10]";
    for (method, path) in [("PUT", "/cron/n"), ("GET", "/cron/n"), ("GET", "/cron")] {
        let answer = http.ask(method, path, if method == "PUT" { cron } else { "" });
        assert!(answer.text.contains(numbers), "{}", answer.text);
    }
    assert!(lab.agx(&agq, &["--json", "schedule", "get", "n"]).expect(0).out.contains(numbers));
    let shown = lab.agx(&agq, &["schedule", "get", "n"]).expect(0).out;
    assert!(shown.contains("18446744073709551616,\n"), "{shown}");
}
