//! Signed orders: agx signs plans, agq stores the orders, and workers check them with the trust
//! file of their owner, independently of agq.

mod limits;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use e2e::{Agq, Agw, Editor, Lab, Ran, eventually};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::support::{RawConnection, ended};

const CLUSTER: &str = "test-eu";

/// Lab with an agq, a worker that trusts the key `ci`, and a proxy between both.
struct Trusting {
    lab: Lab,
    agq: Agq,
    editor: Editor,
    agw: Agw,
}

/// Runs agx without a server.
fn agx(lab: &Lab, args: &[&str]) -> Ran {
    Ran::from(lab.command("agx").args(args).output().unwrap())
}

/// Makes a key, and returns its public key.
fn new_key(lab: &Lab, name: &str) -> String {
    agx(lab, &["key", "new", name]).expect(0).out.split(' ').next().unwrap().to_owned()
}

/// Writes the configuration of a worker, and returns the path of the file.
fn config(lab: &Lab, signers: &str, sandbox: &str) -> String {
    let trust = lab.file("trust.toml", signers);
    let serials = lab.path().join("serials");
    let text = format!(
        "[trust]\nfile = \"{}\"\ncluster = \"{CLUSTER}\"\nserials = \"{}\"\n{sandbox}",
        trust.display(),
        serials.display()
    );
    lab.file("agw.toml", &text).display().to_string()
}

impl Trusting {
    fn new() -> Self {
        let lab = Lab::new();
        let signers = format!("[signers.ci]\nkey = \"{}\"\ntrust = \"full\"\n", new_key(&lab, "ci"));
        Self::with(lab, &signers, "")
    }

    fn with(lab: Lab, signers: &str, sandbox: &str) -> Self {
        fs::set_permissions(lab.path(), Permissions::from_mode(0o755)).unwrap();
        let agq = lab.agq(&[]);
        let editor = Editor::start(&agq.address());
        let config = config(&lab, signers, sandbox);
        let mut command = lab.command("agw");
        command.env("AGQ_ADDR", editor.address()).args(["--config", &config]);
        let agw = lab.agw_by("w1", command);
        Self { lab, agq, editor, agw }
    }

    /// Signs a plan, and stores it.
    fn submit(&self, plan: &Value, key: &str, terms: &[&str]) {
        let order = self.sign(plan, key, terms);
        self.lab.agx(&self.agq, &["plan", "submit", &order]).expect(0);
    }

    /// Signs a plan, and returns the path of the order.
    fn sign(&self, plan: &Value, key: &str, terms: &[&str]) -> String {
        let file = self.lab.file("plan.json", &plan.to_string()).display().to_string();
        let args = ["plan", "sign", &file, "--key", key, "--for", CLUSTER, "--hours", "1"];
        let signed = agx(&self.lab, &[&args, terms].concat()).expect(0);
        self.lab.file("order.json", &signed.out).display().to_string()
    }

    /// Runs a plan on one input, and returns the status of the job.
    fn run(&self, plan_id: &str, action: &str, input: &Value) -> Value {
        self.lab.submit_action(&self.agq, plan_id, action, &json!([input]).to_string());
        ended(&self.lab, &self.agq, action)
    }
}

/// Returns the settings of a worker that runs the plans of strangers in a sandbox.
fn untrusted() -> String {
    let user = if geteuid().is_root() { "user = \"nobody\"\n" } else { "" };
    format!("[sandbox]\nmode = \"untrusted\"\n{user}")
}

fn echo(plan_id: &str, args: &[&str]) -> Value {
    let task = json!({"task_number": 1, "command": "echo", "args": args});
    json!({"plan_id": plan_id, "max_retries": 3, "tasks": [task]})
}

/// Checks that a job was refused at its first attempt, with the reason.
#[track_caller]
fn assert_refused(job: &Value, reason: &str) {
    assert_eq!((&job["status"], &job["attempt"]), (&json!("failed"), &json!(1)), "{job}");
    let expected = format!("refused by worker w1: {reason}");
    assert!(job["error"].as_str().unwrap().starts_with(&expected), "{job}");
    assert_eq!(job["task_results"][0]["exit_code"], 78, "{job}");
}

#[test]
fn signed_plan_runs_and_agq_keeps_its_order() {
    let trusting = Trusting::new();
    let order = trusting.sign(&echo("p", &["{{input.n}}"]), "ci", &["--input", "n=int:1..9"]);
    trusting.lab.agx(&trusting.agq, &["plan", "submit", &order]).expect(0);
    let job = trusting.run("p", "a", &json!({"n": 7}));
    assert_eq!((&job["status"], &job["stdout"]), (&json!("completed"), &json!("7\n")), "{job}");
    let admission = &job["task_results"][0]["admission"];
    assert_eq!(admission["signers"], json!(["ci"]), "{job}");
    let digest = admission["order"].as_str().unwrap();
    let id = job["job_id"].as_str().unwrap();
    for command in ["status", "explain"] {
        let shown = trusting.lab.agx(&trusting.agq, &["job", command, id]).expect(0).out;
        assert!(shown.contains(&format!("admitted by the order {digest}, signed by ci\n")), "{shown}");
    }

    let mut raw = RawConnection::open(&trusting.lab, &trusting.agq);
    raw.send("PLAN.ORDER p\n");
    assert_eq!(raw.bulk(), fs::read_to_string(order).unwrap().trim_end());
    let verified = agx(&trusting.lab, &["plan", "verify", "order.json", "--trust", "trust.toml"]).expect(0);
    assert!(verified.out.starts_with("the order is valid: signed by ci, runs outside of the sandbox"));
}

#[test]
fn agq_that_edits_plans_and_inputs_is_refused_by_the_worker() {
    let trusting = Trusting::new();
    trusting.submit(&echo("p", &["{{input.n}}"]), "ci", &["--input", "n=int:1..9"]);
    let edited = |action: &str, edit: fn(&mut Value)| {
        trusting.editor.edit(edit);
        trusting.run("p", action, &json!({"n": 7}))
    };
    let differs = "the plan of the job is not the plan of its signed order";
    let plan = edited("plan", |job| job["plan"]["tasks"][0]["args"] = json!(["pwned"]));
    assert_refused(&plan, differs);
    let command = edited("command", |job| job["plan"]["tasks"][0]["command"] = json!("id"));
    assert_refused(&command, differs);
    let input = edited("input", |job| job["inputs"]["n"] = json!(10));
    assert_refused(&input, "the order does not permit this input: input.n is not between 1 and 9");
    let option = edited("option", |job| job["inputs"]["n"] = json!("-e"));
    assert_refused(&option, "the order does not permit this input: input.n is not a whole number");
    let stripped = edited("stripped", |job| {
        job["plan"]["tasks"][0]["args"] = json!(["pwned"]);
        job.as_object_mut().unwrap().remove("order");
    });
    assert_refused(&stripped, "nobody has signed the plan, and this worker has no sandbox");
    let payload = edited("payload", |job| {
        let payload = job["order"]["payload"].as_str().unwrap().replacen("ey", "eX", 1);
        job["order"]["payload"] = json!(payload);
    });
    assert_refused(&payload, "no signature of the order is valid");
    let other_type = edited("type", |job| job["order"]["payloadType"] = json!("text/plain"));
    assert_refused(&other_type, "no signature of the order is valid");
    let other_id = edited("id", |job| job["plan"]["plan_id"] = json!("q"));
    assert_refused(&other_id, differs);

    // The jobs that nobody edits still run, also with another hint about the key.
    let hint = edited("hint", |job| job["order"]["signatures"][0]["keyid"] = json!("0000000000000000"));
    assert_eq!(hint["status"], "completed", "{hint}");
    let honest = edited("honest", |_| {});
    assert_eq!(honest["status"], "completed", "{honest}");
}

#[test]
fn order_of_another_cluster_time_or_key_is_refused() {
    let trusting = Trusting::new();
    let refused = |plan_id: &str, order: &str, reason: &str| {
        trusting.lab.agx(&trusting.agq, &["plan", "submit", order]).expect(0);
        assert_refused(&trusting.run(plan_id, plan_id, &json!({})), reason);
    };
    let lab = &trusting.lab;
    new_key(lab, "stranger");
    refused(
        "stranger",
        &trusting.sign(&echo("stranger", &["x"]), "stranger", &[]),
        "no signature of the order is valid for a key of the trust file",
    );
    let plan = lab.file("other.json", &echo("other", &["x"]).to_string()).display().to_string();
    let signed =
        agx(lab, &["plan", "sign", &plan, "--key", "ci", "--for", "test-us", "--hours", "1"]).expect(0);
    let order = lab.file("other-order.json", &signed.out).display().to_string();
    refused("other", &order, "the order is for test-us, and this worker is in test-eu");

    // The example of the protocol is valid until 2099, and its key is no key of this trust file.
    let page = fs::read_to_string(Lab::repository("docs/protocol/plans.md")).unwrap();
    let example = page.lines().find(|line| line.starts_with("{\"payloadType\":")).unwrap();
    let example = lab.file("example.json", example).display().to_string();
    trusting.lab.agx(&trusting.agq, &["plan", "submit", &example]).expect(0);
    let job = trusting.run("lines", "lines", &json!({"file": "/data/a"}));
    assert_refused(&job, "no signature of the order is valid for a key of the trust file (21fe31dfa154a261)");

    let unsigned = lab.file("unsigned.json", &echo("unsigned", &["x"]).to_string()).display().to_string();
    refused("unsigned", &unsigned, "nobody has signed the plan");
}

#[test]
fn replayed_order_is_refused_also_after_a_restart() {
    let mut trusting = Trusting::new();
    trusting.submit(&echo("p", &["x"]), "ci", &["--uses", "2"]);
    let run = |trusting: &Trusting, action: &str| trusting.run("p", action, &json!({}));
    assert_eq!(run(&trusting, "first")["status"], "completed");
    trusting.agw.kill();
    let mut command = trusting.lab.command("agw");
    command.env("AGQ_ADDR", trusting.editor.address()).args(["--config", "agw.toml"]);
    trusting.agw = trusting.lab.agw_by("w2", command);
    assert_eq!(run(&trusting, "second")["status"], "completed");
    let third = run(&trusting, "third");
    assert!(third["error"].as_str().unwrap().contains("permits 2 uses"), "{third}");
    assert_eq!((&third["status"], &third["attempt"]), (&json!("failed"), &json!(1)), "{third}");
}

#[test]
fn trust_file_is_read_again_at_sighup() {
    let trusting = Trusting::new();
    trusting.submit(&echo("p", &["x"]), "ci", &[]);
    assert_eq!(trusting.run("p", "before", &json!({}))["status"], "completed");
    let trust = fs::read_to_string(trusting.lab.path().join("trust.toml")).unwrap();
    let key = trust.split('"').nth(1).unwrap();
    trusting.lab.file("trust.toml", &format!("{trust}\n[revoked]\nkeys = [\"{key}\"]\n"));
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(trusting.agw.pid().cast_signed()).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let revoked = eventually("the key is revoked", || {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        let job = trusting.run("p", &format!("after-{attempt}"), &json!({}));
        (job["status"] != "completed").then_some(job)
    });
    // The worker registers again after SIGHUP, so this may be the second claim of the job.
    let reason = "refused by worker w1: the key of 'ci' that signed the order is revoked";
    assert_eq!(revoked["error"], reason, "{revoked}");
}

#[test]
fn challenge_is_no_way_around_signatures() {
    let trusting = Trusting::new();
    let challenge = json!({"command": "sh", "args": ["-c", "echo out"]});
    let mut raw = RawConnection::open(&trusting.lab, &trusting.agq);
    let answer = raw.ask(&format!("WORKER.VERIFY sh '{challenge}'"));
    assert!(answer.contains("this worker only runs plans that are signed"), "{answer}");
}

#[test]
fn sandbox_of_a_job_depends_on_the_signers_of_its_plan() {
    let lab = Lab::new();
    let (full, builder) = (new_key(&lab, "full"), new_key(&lab, "builder"));
    let signers = format!(
        "[signers.full]\nkey = \"{full}\"\ntrust = \"full\"\n[signers.builder]\nkey = \"{builder}\"\nprofile = \"builder\"\n"
    );
    let trusting = Trusting::with(lab, &signers, &untrusted());
    let profile = |plan_id: &str| {
        let job = trusting.run(plan_id, plan_id, &json!({}));
        assert_eq!(job["status"], "completed", "{job}");
        job["task_results"][0]["sandbox"]["profile"].clone()
    };
    trusting.submit(&echo("full", &["x"]), "full", &[]);
    assert_eq!(profile("full"), Value::Null, "full trust needs no sandbox");
    trusting.submit(&echo("narrowed", &["x"]), "full", &["--sandbox", "reader"]);
    assert_eq!(profile("narrowed"), "reader");
    trusting.submit(&echo("builder", &["x"]), "builder", &[]);
    assert_eq!(profile("builder"), "builder");
    trusting.lab.submit_plan(&trusting.agq, &echo("stranger", &["x"]).to_string());
    assert_eq!(profile("stranger"), "reader");

    let mut wants = echo("wants", &["x"]);
    wants["sandbox"] = json!({"profile": "builder"});
    trusting.lab.submit_plan(&trusting.agq, &wants.to_string());
    let refused = trusting.run("wants", "wants", &json!({}));
    assert_refused(
        &refused,
        "a plan that nobody has signed runs in the sandbox profile 'reader', and not in 'builder'",
    );
    // An agq that removes the signature of a plan with full trust gets the sandbox of strangers.
    trusting.editor.edit(|job| drop(job.as_object_mut().unwrap().remove("order")));
    let stripped = trusting.run("full", "stripped", &json!({}));
    assert_eq!(stripped["task_results"][0]["sandbox"]["profile"], "reader", "{stripped}");
}

#[test]
fn order_for_some_inputs_runs_them_and_no_others() {
    let trusting = Trusting::new();
    let lab = &trusting.lab;
    let inputs: Vec<Value> = (0..7).map(|n| json!({"n": n})).collect();
    let file = lab.file("inputs.json", &json!(inputs).to_string()).display().to_string();
    let proved = lab.path().join("proved.json").display().to_string();
    trusting.submit(
        &echo("p", &["{{input.n}}"]),
        "ci",
        &["--only-inputs", &file, "--proved-inputs", &proved],
    );
    let submit = ["action", "submit", "p", "--id", "a", "--inputs", &proved, "--wait"];
    lab.agx(&trusting.agq, &submit).expect(0);
    let results = lab.agx(&trusting.agq, &["action", "results", "a"]).expect(0).out;
    assert_eq!(results.lines().count(), 7, "{results}");

    let reason =
        "the order does not permit this input: input is none of those that inputs_sha256 of the terms names";
    assert_refused(&trusting.run("p", "plain", &json!({"n": 3})), reason);
    let proved: Vec<Value> = serde_json::from_str(&fs::read_to_string(proved).unwrap()).unwrap();
    let mut changed = proved[3].clone();
    changed["n"] = json!(8);
    assert_refused(&trusting.run("p", "changed", &changed), reason);
    let mut moved = proved[3].clone();
    moved["$proof"] = proved[4]["$proof"].clone();
    assert_refused(&trusting.run("p", "moved", &moved), reason);
    assert_eq!(trusting.run("p", "again", &proved[3])["stdout"], "3\n");
}

#[test]
fn worker_without_a_trust_file_ignores_orders() {
    let lab = Lab::new();
    new_key(&lab, "ci");
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.file("plan.json", &echo("p", &["x"]).to_string());
    let args = ["plan", "sign", "plan.json", "--key", "ci", "--for", "elsewhere", "--hours", "1"];
    lab.file("order.json", &agx(&lab, &args).expect(0).out);
    lab.agx(&agq, &["plan", "submit", "order.json"]).expect(0);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["status"], "completed");
    assert_eq!(job["task_results"][0]["admission"], Value::Null, "{job}");
}

#[test]
fn plan_is_signed_only_with_terms_and_bounds() {
    let lab = Lab::on_files();
    new_key(&lab, "ci");
    new_key(&lab, "second");
    lab.file("plan.json", &echo("p", &["{{input.n}}"]).to_string());
    let sign =
        |args: &[&str], code: i32| agx(&lab, &[&["plan", "sign", "plan.json"], args].concat()).expect(code);
    let terms = ["--key", "ci", "--for", CLUSTER, "--hours", "1"];
    let unbound = sign(&terms, 2);
    assert!(unbound.err.contains("the input 'n' may have any value"), "{}", unbound.err);
    assert!(sign(&terms[..4], 2).err.contains("--hours is missing"));
    assert!(sign(&["--key", "no", "--for", "x", "--hours", "1"], 2).err.contains("there is no key 'no'"));
    sign(&[&terms[..], &["--any-input"]].concat(), 0);
    let only = sign(&[&terms[..], &["--only-input", r#"{"n": 1}"#]].concat(), 0);
    lab.file("order.json", &only.out);

    // Another person signs the same bytes.
    let both = agx(&lab, &["plan", "sign", "order.json", "--key", "second"]).expect(0);
    lab.file("both.json", &both.out);
    let verified = agx(&lab, &["plan", "verify", "both.json", "--json"]).expect(0).data();
    assert_eq!(verified["signers"], json!(["ci", "second"]), "{verified}");
    let late = agx(&lab, &["plan", "sign", "order.json", "--key", "second", "--uses", "1"]).expect(2);
    assert!(late.err.contains("its terms cannot change"), "{}", late.err);
    let elsewhere = agx(&lab, &["plan", "verify", "both.json", "--cluster", "prod"]).expect(1);
    assert!(
        elsewhere.err.contains("the order is for test-eu, and this worker is in prod"),
        "{}",
        elsewhere.err
    );

    let key = lab.path().join("agx-home/.keys/ci.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    assert!(agx(&lab, &["key", "show", "ci"]).expect(2).err.contains("others may read or write the key"));
}

#[test]
fn worker_does_not_start_with_a_wrong_trust_file() {
    let lab = Lab::on_files();
    let start = |signers: &str, sandbox: &str| {
        let config = config(&lab, signers, sandbox);
        Ran::from(lab.command("agw").args(["--config", &config]).output().unwrap()).expect(2).err
    };
    let key = new_key(&lab, "ci");
    let full = format!("[signers.ci]\nkey = \"{key}\"\ntrust = \"full\"\n");
    assert!(
        start("[signers.ci]\nkey = \"ssh-rsa AAAA\"\ntrust = \"full\"", "")
            .contains("'ssh-rsa' is not a type")
    );
    assert!(start(&format!("{full}best_effort = true"), "").contains("unknown field `best_effort`"));
    let requested = start(&full, "[sandbox]\nmode = \"requested\"\n");
    assert!(requested.contains("sandbox.mode is 'requested'"), "{requested}");
}
