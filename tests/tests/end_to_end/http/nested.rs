//! Nested workflows, and workflows that are resumed.

use e2e::{Lab, eventually};
use serde_json::{Value, json};

use super::client::Http;
use crate::support::RawConnection;

/// Returns a job with a single attempt.
fn job(name: &str) -> Value {
    json!({"type": name, "args": [], "options": {"retry": {"max_attempts": 1}}})
}

/// Starts a workflow, and returns its id.
fn begin(http: &Http, workflow: &Value) -> String {
    http.post("/workflows", &workflow.to_string())["workflow"]["id"].as_str().unwrap().to_owned()
}

fn workflow(http: &Http, id: &str) -> Value {
    http.get(&format!("/workflows/{id}"))["workflow"].clone()
}

/// Waits for the end of a workflow, and returns the workflow.
fn ended(http: &Http, id: &str) -> Value {
    eventually("the workflow has ended", || {
        let workflow = workflow(http, id);
        (workflow["state"] != "running").then_some(workflow)
    })
}

/// Takes the next job, and checks its type.
fn take(http: &Http, name: &str) -> Value {
    let job = http.fetch("w", "default").unwrap_or_else(|| panic!("there is no job {name}"));
    assert_eq!(job["type"], name, "{job}");
    job
}

fn ack(http: &Http, job: &Value, result: &Value) {
    http.post(&format!("/jobs/{}/ack", job["id"].as_str().unwrap()), &json!({"result": result}).to_string());
}

fn nack(http: &Http, job: &Value) {
    http.post(&format!("/jobs/{}/nack", job["id"].as_str().unwrap()), r#"{"error":{"message":"no"}}"#);
}

fn retry(http: &Http, job: &Value) -> u16 {
    http.ask("POST", &format!("/jobs/{}/retry", job["id"].as_str().unwrap()), "").status
}

fn nothing_waits(http: &Http) {
    assert!(http.post("/workers/fetch", r#"{"queues":["default"]}"#)["jobs"][0].is_null());
}

#[test]
fn group_in_a_chain_gets_the_result_before_it_and_hands_its_results_on() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let inner = json!({"type": "chain", "steps": [job("c"), job("d")]});
    let group = json!({"type": "group", "name": "both", "jobs": [job("b"), inner]});
    let id = begin(&http, &json!({"type": "chain", "name": "fan", "steps": [job("a"), group, job("e")]}));
    ack(&http, &take(&http, "a"), &json!({"rows": 3}));
    let (b, c) = (take(&http, "b"), take(&http, "c"));
    for member in [&b, &c] {
        assert_eq!((&member["parent_results"], &member["workflow_id"]), (&json!([{"rows": 3}]), &json!(id)));
    }
    nothing_waits(&http);
    ack(&http, &b, &json!("B"));
    ack(&http, &c, &json!("C"));
    let shown = workflow(&http, &id);
    assert_eq!(shown["steps"][1]["jobs"][1]["steps_completed"], 1, "{shown}");
    agq.kill();
    agq.start_again(&lab);
    let http = Http::of(&lab, &agq);
    let d = take(&http, "d");
    assert_eq!(d["parent_results"], json!(["C"]));
    ack(&http, &d, &json!(18_446_744_073_709_551_615_u64));
    let e = take(&http, "e");
    assert_eq!(e["parent_results"], json!(["B", 18_446_744_073_709_551_615_u64]));
    ack(&http, &e, &json!(null));
    let shown = ended(&http, &id);
    let group = &shown["steps"][1];
    assert_eq!((&shown["state"], &shown["steps_completed"]), (&json!("completed"), &json!(3)), "{shown}");
    assert_eq!(
        (&group["type"], &group["name"], &group["state"], &group["jobs_completed"]),
        (&json!("group"), &json!("both"), &json!("completed"), &json!(2))
    );
    assert_eq!((&group["jobs"][0]["type"], &group["jobs"][0]["job_id"]), (&json!("b"), &b["id"]));
    let metadata = &shown["metadata"];
    let counts = ["job_count", "completed_count", "failed_count"].map(|name| metadata[name].as_u64());
    assert_eq!(counts, [Some(5), Some(5), Some(0)]);
    assert_eq!(metadata["completed_at"], shown["completed_at"]);
    let text = lab.agx(&agq, &["workflow", "status", &id]).expect(0).out;
    let lines: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "step 1 completed job",
        "step 2 completed group",
        "step 2.1 completed job",
        "step 2.2 completed chain",
        "step 2.2.1 completed job",
        "step 2.2.2 completed job",
        "step 3 completed job",
    ];
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn batch_in_a_chain_calls_back_with_the_results_of_all_its_jobs_before_the_chain_goes_on() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let callbacks = json!({"on_success": job("hurray"), "on_failure": job("sorry")});
    let batch = |jobs: Value| json!({"type": "batch", "jobs": jobs, "callbacks": callbacks});
    let id = begin(&http, &json!({"steps": [batch(json!([job("a"), job("b")])), job("c")]}));
    ack(&http, &take(&http, "a"), &json!(1));
    ack(&http, &take(&http, "b"), &json!([2]));
    let called = take(&http, "hurray");
    assert_eq!(called["parent_results"], json!([1, [2]]));
    nothing_waits(&http);
    ack(&http, &called, &json!(null));
    let c = take(&http, "c");
    assert_eq!(c["parent_results"], json!([1, [2]]));
    ack(&http, &c, &json!(null));
    assert_eq!(ended(&http, &id)["state"], "completed");
    let id = begin(&http, &batch(json!([job("a"), job("b")])));
    ack(&http, &take(&http, "a"), &json!(1));
    nack(&http, &take(&http, "b"));
    assert_eq!(take(&http, "sorry")["parent_results"], json!([1, null]));
    assert_eq!(ended(&http, &id)["state"], "failed");
}

#[test]
fn job_of_a_group_that_fails_lets_the_others_go_on_and_ends_the_chain() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let group = json!({"type": "group", "jobs": [job("a"), job("b")]});
    let id = begin(&http, &json!({"steps": [group, job("c")]}));
    nack(&http, &take(&http, "a"));
    let b = take(&http, "b");
    let shown = workflow(&http, &id);
    assert_eq!((&shown["state"], &shown["steps"][0]["state"]), (&json!("running"), &json!("running")));
    ack(&http, &b, &json!(null));
    let shown = ended(&http, &id);
    let states =
        ["/state", "/steps/0/state", "/steps/0/jobs/0/state", "/steps/0/jobs/1/state", "/steps/1/state"];
    let states = states.map(|at| shown.pointer(at).cloned().unwrap_or_default());
    assert_eq!(states, ["failed", "failed", "failed", "completed", "waiting"].map(Value::from), "{shown}");
    nothing_waits(&http);
}

#[test]
fn workflow_is_cancelled_with_what_is_nested_in_it() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let inner = json!({"type": "chain", "steps": [job("b"), job("c")]});
    let id = begin(&http, &json!({"steps": [{"type": "group", "jobs": [job("a"), inner]}, job("d")]}));
    let shown = http.ask("DELETE", &format!("/workflows/{id}"), "").body["workflow"].clone();
    assert_eq!((&shown["state"], &shown["steps"][0]["state"]), (&json!("cancelled"), &json!("cancelled")));
    let a = shown["steps"][0]["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    let b = shown["steps"][0]["jobs"][1]["steps"][0]["job_id"].as_str().unwrap().to_owned();
    assert_eq!([http.state(&a), http.state(&b)], ["cancelled", "cancelled"]);
    nothing_waits(&http);
    let refused = RawConnection::open(&lab, &agq).ask(&format!("JOB.RETRY {a} FORCE"));
    assert_eq!(refused, format!("-ERR Workflow already ended: {id}"));
    assert_eq!(http.state(&a), "cancelled", "nothing of a cancelled workflow runs again");
}

#[test]
fn errors_of_a_nested_workflow_name_their_place() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let refused = |step: Value| {
        let answer = http.ask("POST", "/workflows", &json!({"steps": [job("a"), step]}).to_string());
        assert_eq!((answer.status, answer.code()), (400, "invalid_request"), "{}", answer.text);
        answer.body["error"]["message"].as_str().unwrap().to_owned()
    };
    let message = refused(json!({"type": "group", "jobs": [job("b"), {"type": "NO", "args": []}]}));
    assert!(message.contains("steps[1].jobs[1]: "), "{message}");
    let deep = (0..5).fold(job("b"), |inner, _| json!({"type": "group", "jobs": [inner]}));
    let message = refused(deep);
    assert!(message.ends_with("workflows are nested more than 5 levels deep"), "{message}");
    nothing_waits(&http);
}

#[test]
fn group_of_actions_hands_its_outputs_on_to_an_action() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &[]);
    let http = Http::of(&lab, &agq);
    for (plan, field) in [("first", "input.n"), ("second", "input.output")] {
        let task = format!(r#"{{"task_number":1,"command":"printf","args":["%s.","{{{{{field}}}}}"]}}"#);
        lab.submit_plan(&agq, &format!(r#"{{"plan_id":"{plan}","tasks":[{task}]}}"#));
    }
    let first = |numbers: &[u8]| {
        let inputs: Vec<Value> = numbers.iter().map(|n| json!({"n": n})).collect();
        json!({"plan_id": "first", "inputs": inputs})
    };
    let group = json!({"type": "group", "jobs": [first(&[1, 2]), first(&[3])]});
    let id = begin(&http, &json!({"steps": [group, {"plan_id": "second"}]}));
    let shown = ended(&http, &id);
    assert_eq!(shown["state"], "completed", "{shown}");
    let last = shown["steps"][1]["action_id"].as_str().unwrap();
    assert_eq!(lab.agx(&agq, &["action", "results", last, "--ordered"]).expect(0).out, "1..2..3..");
}

#[test]
fn step_that_is_tried_again_by_hand_takes_its_workflow_up_again() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let callbacks = json!({"on_failure": job("sorry"), "on_success": job("hurray")});
    let group = json!({"type": "group", "jobs": [job("a"), job("b")]});
    let id = begin(&http, &json!({"steps": [group, job("c")], "callbacks": callbacks}));
    let a = take(&http, "a");
    nack(&http, &a);
    ack(&http, &take(&http, "b"), &json!(2));
    ack(&http, &take(&http, "sorry"), &json!(null));
    assert_eq!(ended(&http, &id)["state"], "failed");
    assert_eq!(retry(&http, &a), 200);
    let shown = workflow(&http, &id);
    assert_eq!((&shown["state"], &shown["completed_at"]), (&json!("running"), &Value::Null), "{shown}");
    ack(&http, &take(&http, "a"), &json!(1));
    let c = take(&http, "c");
    assert_eq!(c["parent_results"], json!([1, 2]));
    nack(&http, &c);
    eventually("the workflow has failed again", || (workflow(&http, &id)["state"] == "failed").then_some(()));
    nothing_waits(&http);
    assert_eq!(retry(&http, &c), 200);
    ack(&http, &take(&http, "c"), &json!(3));
    take(&http, "hurray");
    assert_eq!(ended(&http, &id)["state"], "completed");
}

#[test]
fn action_that_is_tried_again_by_hand_takes_its_workflow_up_again() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let mut raw = RawConnection::open(&lab, &agq);
    let task = r#"{"task_number":1,"command":"true"}"#;
    for (plan, bound) in [("p", ""), ("bounded", r#""max_running":1,"#)] {
        lab.submit_plan(&agq, &format!(r#"{{"plan_id":"{plan}",{bound}"max_retries":0,"tasks":[{task}]}}"#));
    }
    let all = [
        ("p", "JOB.RETRY", false),
        ("p", "ACTION.RETRY", false),
        ("p", "ACTION.RETRY", true),
        ("bounded", "JOB.RETRY", false),
        ("bounded", "ACTION.RETRY", false),
    ];
    for (plan, retry, open) in all {
        let action = json!({"plan_id": plan, "inputs": [{}], "open": open});
        let id = begin(&http, &json!({"steps": [action, job("after")]}));
        let action_id = workflow(&http, &id)["steps"][0]["action_id"].as_str().unwrap().to_owned();
        let mut end = |status: &str| {
            raw.send("BRPOP queue:ready 10\n");
            let given = raw.bulk();
            let given: Value = serde_json::from_str(&given).unwrap();
            let job_id = given["job_id"].as_str().unwrap().to_owned();
            let update = format!(r#"JOB.UPDATE {job_id} '{{"status":"{status}"}}'"#);
            assert_eq!(raw.ask(&update), "+OK");
            job_id
        };
        let job_id = end("failed");
        let mut admin = RawConnection::open(&lab, &agq);
        if open {
            assert!(admin.ask(&format!("ACTION.CLOSE {action_id}")).starts_with("+OK"));
        }
        assert_eq!(ended(&http, &id)["state"], "failed");
        let target = if retry == "JOB.RETRY" { format!("{job_id} FORCE") } else { action_id };
        assert!(admin.ask(&format!("{retry} {target}")).starts_with("+OK"));
        assert_eq!(workflow(&http, &id)["state"], "running");
        end("completed");
        ack(&http, &take(&http, "after"), &json!(null));
        assert_eq!(ended(&http, &id)["state"], "completed");
    }
}
