//! Provenance: a worker signs what it ran and which bytes came out, and agx does not trust an agq
//! that shows another result.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use e2e::{Agq, Agw, Editor, Lab, Ran};
use serde_json::{Value, json};

use crate::support::ended;

/// Lab with a worker that signs provenance, and a proxy between agq and agx.
struct Signing {
    lab: Lab,
    agq: Agq,
    editor: Editor,
    _agw: Agw,
    /// Path of the trust file.
    trust: String,
}

impl Signing {
    fn new() -> Self {
        let lab = Lab::on_files();
        let policy = lab.file("policy.toml", "version = 1\nuse = [\"seq\", \"wc\", \"echo\"]");
        let text = format!(
            "[provenance]\nkey = \"{}\"\n[policy]\nfile = \"{}\"\n",
            lab.path().join("worker.key").display(),
            policy.display()
        );
        let config = lab.file("agw.toml", &text).display().to_string();
        let agq = lab.agq(&[]);
        let editor = Editor::start(&agq.address());
        let agw = lab.agw(&agq, "w1", &["--config", &config]);
        let worker = lab.agx(&agq, &["worker", "get", "w1", "--json"]).expect(0).data();
        let key = worker["tags"]["provenance-key"].as_str().unwrap();
        assert!(agw.log().contains(&format!("signed with the key {key}")), "{}", agw.log());
        let trust = lab.file("trust.toml", &format!("[workers.w1]\nkey = \"{key}\"\n")).display().to_string();
        // The first task writes more than fits into a report, and the second one reads it.
        let (number, range) = (json!({"type": "int", "min": 1}), json!(["{{input.from}}", "{{input.to}}"]));
        let plan = json!({"plan_id": "p", "inputs": {"from": number, "to": number}, "tasks": [
            {"task_number": 1, "command": "seq", "args": range},
            {"task_number": 2, "command": "wc", "args": ["-l"], "input_from_task": 1},
            {"task_number": 3, "command": "seq", "args": range},
        ]});
        lab.submit_plan(&agq, &plan.to_string());
        Self { lab, agq, editor, _agw: agw, trust }
    }

    /// Runs the plan, and returns the status of the job.
    fn ended(&self, action: &str, from: u32, to: u32) -> Value {
        self.lab.submit_action(&self.agq, "p", action, &json!([{"from": from, "to": to}]).to_string());
        let job = ended(&self.lab, &self.agq, action);
        assert_eq!(job["status"], "completed", "{job}");
        job
    }

    /// Runs the plan, and returns the id of the job.
    fn run(&self, action: &str, to: u32) -> String {
        self.ended(action, 1, to)["job_id"].as_str().unwrap().to_owned()
    }

    /// Runs agx against the proxy.
    fn agx(&self, args: &[&str]) -> Ran {
        let mut command = self.lab.command("agx");
        Ran::from(command.env("AGQ_ADDR", self.editor.address()).args(args).output().unwrap())
    }

    fn verify(&self, job: &str) -> Ran {
        self.agx(&["provenance", "verify", job, "--trust", &self.trust])
    }

    /// Checks that agx refuses a job that agq shows with a change, and that it gives the reason.
    #[track_caller]
    fn assert_refused(&self, job: &str, reason: &str, edit: impl FnMut(&mut Value) + Send + 'static) {
        self.editor.edit(edit);
        let refused = self.verify(job).expect(1);
        assert!(refused.err.contains(&format!("not proved: {reason}")), "{}", refused.err);
        self.editor.edit(|_| {});
    }
}

#[test]
fn signed_results_are_proved_also_large_ones() {
    let signing = Signing::new();
    let job = signing.run("a", 200_000);
    let proved = signing.verify(&job).expect(0);
    assert!(proved.out.ends_with("the outputs in agq are the signed ones: 3 statements are valid\n"));
    assert!(proved.out.contains("task 2 of 3 (wc): signed by w1\n"), "{}", proved.out);

    let data =
        signing.agx(&["provenance", "verify", &job, "--trust", &signing.trust, "--json"]).expect(0).data();
    let tasks = data["tasks"].as_array().unwrap();
    let sum = crate::outputs::sh(&signing.lab, "seq 200000 | sha256sum");
    let sum = sum.split(' ').next().unwrap();
    let stdout = |task: usize| &tasks[task]["streams"][0];
    assert_eq!((&stdout(2)["sha256"], &stdout(2)["bytes"]), (&json!(sum), &json!(1_288_895)), "{data}");
    assert_eq!((&stdout(0)["bytes"], &stdout(0)["total"]), (&json!(65_536), &json!(1_288_895)), "{data}");
    assert_eq!(tasks[1]["admission"]["rule"], "tools.wc", "{data}");
    let program = &tasks[1]["program"];
    let of_file = crate::outputs::sh(&signing.lab, "sha256sum < \"$(command -v wc)\"");
    assert_eq!(program["sha256"], of_file.split(' ').next().unwrap(), "{program}");

    // The digest of the input is that of its text, as it was submitted.
    signing.lab.submit_action(&signing.agq, "p", "spaced", r#"[{ "to":3 , "from":  1 }]"#);
    let spaced = ended(&signing.lab, &signing.agq, "spaced");
    signing.verify(spaced["job_id"].as_str().unwrap()).expect(0);

    let shown = signing.agx(&["provenance", "show", &job]).expect(0).out;
    assert!(shown.contains("a statement of agenix:worker/w1, which is not verified"), "{shown}");
}

#[test]
fn agq_that_edits_results_is_found_out() {
    let signing = Signing::new();
    let (job, other) = (signing.run("a", 20_000), signing.run("b", 3));
    let result =
        |job: &str| signing.lab.agx(&signing.agq, &["job", "status", job, "--json"]).expect(0).data();
    let of_other = result(&other)["task_results"].clone();

    let stdout = "task 2: its stdout in agq is not the signed one: ";
    signing.assert_refused(&job, stdout, |job| job["task_results"][1]["stdout"] = json!("20001\n"));
    let first = "task 3: its stdout in agq is not the signed one: ";
    signing.assert_refused(&job, first, |job| {
        let text = job["task_results"][2]["stdout"].as_str().unwrap().replacen('1', "7", 1);
        job["task_results"][2]["stdout"] = json!(text);
    });
    let partly = "task 3: agq has only the first 65536 of the 108894 bytes of its stdout";
    signing.assert_refused(&job, partly, |job| {
        job["task_results"][2].as_object_mut().unwrap().remove("stdout_blob");
    });
    let blob = "task 2: agq has a blob of its stdout, and the statement has none";
    signing.assert_refused(&job, blob, |job| job["task_results"][1]["stdout_blob"] = json!("0".repeat(64)));
    let longer = "task 2: agq says that its stdout has 9 bytes, and the statement says 6";
    signing.assert_refused(&job, longer, |job| job["task_results"][1]["stdout_bytes"] = json!(9));
    let stderr = "task 1: its stderr in agq is not the signed one: ";
    signing.assert_refused(&job, stderr, |job| job["task_results"][0]["stderr"] = json!("warning"));
    let end = "task 1: agq has another result than the signed one";
    signing.assert_refused(&job, end, |job| job["task_results"][0]["exit_code"] = json!(1));
    signing.assert_refused(&job, end, |job| {
        job["task_results"][0]["admission"]["rule"] = json!("tools.sh");
    });

    let replaced = of_other.clone();
    let id = format!("task 1: its statement is about job {other}, and agq has job {job}");
    signing.assert_refused(&job, &id, move |job| job["task_results"] = replaced.clone());
    let id = format!("task 2: its statement is about job {other}, and agq has job {job}");
    signing.assert_refused(&job, &id, move |job| {
        job["task_results"][1]["provenance"] = of_other[1]["provenance"].clone();
    });
    let swapped = "task 1: its statement is about task 3, and agq has task 1";
    signing.assert_refused(&job, swapped, |job| {
        job["task_results"][0]["provenance"] = job["task_results"][2]["provenance"].clone();
    });
    let attempt = "task 1: its statement is about attempt 1, and agq has attempt 2";
    signing.assert_refused(&job, attempt, |job| job["attempt"] = json!(2));
    let input = "task 1: its statement is about another input";
    signing.assert_refused(&job, input, |job| job["inputs"]["to"] = json!(4));
    let fewer = "the job has 3 tasks, and agq has results of 2";
    signing.assert_refused(&job, fewer, |job| drop(job["task_results"].as_array_mut().unwrap().pop()));

    let unsigned = "task 2: no worker has signed anything about it";
    signing.assert_refused(&job, unsigned, |job| {
        job["task_results"][1].as_object_mut().unwrap().remove("provenance");
    });
    let untrusted = "task 2: no signature of the statement is valid for the key of a worker";
    signing.assert_refused(&job, untrusted, |job| {
        let envelope = &mut job["task_results"][1]["provenance"];
        let payload = envelope["payload"].as_str().unwrap().replacen("ey", "eX", 1);
        envelope["payload"] = json!(payload);
    });
    signing.assert_refused(&job, "task 2: the type of the payload is 'text/plain'", |job| {
        job["task_results"][1]["provenance"]["payloadType"] = json!("text/plain");
    });
    signing.verify(&job).expect(0);
}

#[test]
fn large_output_of_another_job_is_found_out() {
    let signing = Signing::new();
    let [job, other] = [("a", 10_000), ("b", 20_000)].map(|(action, from)| {
        let job = signing.ended(action, from, from + 20_000);
        let blob = job["task_results"][2]["stdout_blob"].as_str().unwrap().to_owned();
        let files = crate::outputs::blobs(&signing.lab);
        let has_blob = |file: &PathBuf| file.display().to_string().contains(&blob);
        let file = files.into_iter().find(has_blob).unwrap();
        (job["job_id"].as_str().unwrap().to_owned(), file)
    });
    signing.verify(&job.0).expect(0);
    std::fs::copy(&other.1, &job.1).unwrap();
    let refused = signing.verify(&job.0).expect(1);
    let reason = "not proved: task 3: its stdout in agq is not the signed one: ";
    assert!(refused.err.contains(reason), "{}", refused.err);
    signing.verify(&other.0).expect(0);
}

#[test]
fn statements_are_verified_without_agq_and_with_known_keys_only() {
    let signing = Signing::new();
    let (lab, job) = (&signing.lab, signing.run("a", 3));
    let lines = signing.agx(&["provenance", "show", &job, "--envelopes"]).expect(0).out;
    lab.file("job.intoto.jsonl", &lines);
    let alone = |args: &[&str]| {
        Ran::from(lab.command("agx").args(["provenance", "verify"]).args(args).output().unwrap())
    };
    let proved = alone(&["--statements", "job.intoto.jsonl", "--trust", "trust.toml"]).expect(0);
    assert!(proved.out.ends_with("\n3 statements are valid\n"), "{}", proved.out);
    assert!(proved.out.contains(&format!("job {job}, attempt 1, task 3 of 3 (seq): signed by w1")));

    lab.file("changed.jsonl", &lines.replacen("ey", "eX", 1));
    let changed = alone(&["--statements", "changed.jsonl", "--trust", "trust.toml"]).expect(1);
    assert!(changed.err.contains("line 1: no signature of the statement is valid"), "{}", changed.err);

    let stranger = Ran::from(lab.command("agx").args(["key", "new", "stranger"]).output().unwrap()).expect(0);
    let key = stranger.out.split(' ').next().unwrap();
    let others = lab.file("others.toml", &format!("[workers.w2]\nkey = \"{key}\"\n")).display().to_string();
    let unknown = signing.agx(&["provenance", "verify", &job, "--trust", &others]).expect(1);
    assert!(unknown.err.contains("task 1: no signature of the statement is valid"), "{}", unknown.err);
    assert!(alone(&["--trust", "trust.toml"]).expect(2).err.contains("required"));
}

#[test]
fn worker_signs_nothing_unless_it_is_told_to() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &crate::support::plan("p", "echo", &["x"]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["task_results"][0]["provenance"], Value::Null, "{job}");
    let id = job["job_id"].as_str().unwrap();
    let nothing = lab.agx(&agq, &["provenance", "show", id]).expect(1);
    assert!(nothing.err.contains("no worker has signed anything about job"), "{}", nothing.err);
}

#[test]
fn statement_names_the_sandbox_of_a_task_that_cannot_read_the_key() {
    let lab = Lab::new();
    fs::set_permissions(lab.path(), Permissions::from_mode(0o755)).unwrap();
    let key_file = lab.path().join("worker.key").display().to_string();
    let config = lab.file("agw.toml", &format!("[provenance]\nkey = \"{key_file}\"\n"));
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--sandbox", "reader", "--config", &config.display().to_string()]);
    let script = format!("cat '{key_file}' || echo kept");
    lab.submit_plan(&agq, &crate::support::plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    let result = &job["task_results"][0];
    assert_eq!(result["stdout"], "kept\n", "{job}");

    let worker = lab.agx(&agq, &["worker", "get", "w1", "--json"]).expect(0).data();
    let key = worker["tags"]["provenance-key"].as_str().unwrap();
    let trust = lab.file("trust.toml", &format!("[workers.w1]\nkey = \"{key}\"\n")).display().to_string();
    let id = job["job_id"].as_str().unwrap();
    let proved = lab.agx(&agq, &["provenance", "verify", id, "--trust", &trust, "--json"]).expect(0).data();
    assert_eq!(proved["tasks"][0]["profile"], result["sandbox"]["profile"], "{proved}");
    assert_eq!(proved["tasks"][0]["profile"], "reader", "{proved}");

    let editor = Editor::start(&agq.address());
    editor.edit(|job| job["task_results"][0]["sandbox"]["profile"] = json!("builder"));
    let mut command = lab.command("agx");
    command.env("AGQ_ADDR", editor.address()).args(["provenance", "verify", id, "--trust", &trust]);
    let refused = Ran::from(command.output().unwrap()).expect(1);
    assert!(refused.err.contains("task 1: agq has another result than the signed one"), "{}", refused.err);
}
