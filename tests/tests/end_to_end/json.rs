//! agx prints every kind of document that the published schema names, and no other kind. Every test
//! that runs agx also checks its output against the schema.

use std::collections::BTreeSet;

use e2e::{ChatAnswer, ChatServer, Lab, Ran};
use serde_json::Value;

use crate::support::{DownOnDrop, plan};

/// Returns the kinds of the published schema.
fn published() -> BTreeSet<String> {
    let schema = std::fs::read_to_string(Lab::repository("docs/agx-1.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let kinds = schema["oneOf"].as_array().unwrap().iter();
    kinds.map(|line| line["properties"]["kind"]["const"].as_str().unwrap().to_owned()).collect()
}

/// Returns the kinds of the printed documents.
fn kinds(ran: &Ran) -> impl Iterator<Item = String> {
    let lines = ran.out.lines().chain(ran.err.lines());
    let documents = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    documents.filter_map(|document| Some(document["kind"].as_str()?.to_owned()))
}

/// Writes the documents that the commands submit.
fn write_documents(lab: &Lab) {
    lab.file("true.json", &plan("p", "true", &[]));
    lab.file("other.json", &plan("q", "true", &[]));
    lab.file("inputs.json", "[{}]");
    // The first test key of RFC 8032, and the example of docs/protocol/plans.md.
    let page = std::fs::read_to_string(Lab::repository("docs/protocol/plans.md")).unwrap();
    lab.file("order.json", page.lines().find(|line| line.starts_with(r#"{"payloadType":"#)).unwrap());
    let key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    lab.file("trust.toml", &format!("[signers.a]\nkey = \"{key}\"\ntrust = \"full\"\n"));
    lab.file("policy.toml", "version = 1\nuse = [\"true\"]\n");
    lab.file("audit.log", "{}\n");
    lab.file("schedule.json", r#"{"name":"s","expression":"@daily","action":{"plan_id":"p","inputs":[{}]}}"#);
    lab.file("workflow.json", r#"{"steps":[{"plan_id":"p","inputs":[{}]}]}"#);
}

/// Commands on a server, in an order in which each one has what it needs.
const COMMANDS: [&str; 48] = [
    "plan check true.json",
    "plan submit true.json",
    "plan submit other.json",
    "plan get p",
    "plan status p",
    "plan list",
    "plan delete q",
    "key new k",
    "key list",
    "key show k",
    "plan sign true.json --key k --for test --hours 1",
    "plan verify order.json --trust trust.toml",
    "key rotate k",
    "approve",
    "policy check policy.toml",
    "policy test policy.toml -- true",
    "audit verify audit.log",
    "action submit p --inputs inputs.json --id a --wait",
    "action submit p --inputs inputs.json --id later --delay 3600",
    "action submit p --inputs inputs.json --id once --delay 3600",
    "action submit p --open --id inbox",
    "action add inbox x y",
    "action close inbox",
    "action status a",
    "action list",
    "action results a",
    "action diff a a",
    "action retry a",
    "logs a",
    "job list a",
    "queue stats",
    "budget",
    "queue pause ready",
    "queue resume ready",
    "worker list",
    "worker get w1",
    "worker drain w1",
    "worker resume w1",
    "scale --max 1 --once --dry-run --up true",
    "schedule set schedule.json",
    "schedule get s",
    "schedule list",
    "schedule delete s",
    "workflow list",
    "doctor",
    "history",
    "",
    "plan get nothing",
];

#[test]
fn every_kind_that_is_published_is_printed_and_no_other() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let key = lab.path().join("worker.key");
    let config = lab.file("agw.toml", &format!("[provenance]\nkey = \"{}\"\n", key.display()));
    let agw = lab.agw(&agq, "w1", &["--config", config.to_str().unwrap()]);
    let mut seen = BTreeSet::new();
    let mut see = |line: &str| {
        let args: Vec<&str> = ["--json"].into_iter().chain(line.split_whitespace()).collect();
        let ran = lab.agx(&agq, &args);
        seen.extend(kinds(&ran));
        ran
    };
    write_documents(&lab);
    for line in COMMANDS {
        see(line);
    }
    let own = |ran: &Ran, field: &str| ran.data()[field].as_str().unwrap().to_owned();
    let begun = own(&see("workflow submit workflow.json").expect(0), "workflow_id");
    see(&format!("workflow status {begun}"));
    see("queue pause ready");
    let begun = own(&see("workflow submit workflow.json").expect(0), "workflow_id");
    see(&format!("workflow cancel {begun}"));
    let job = see("job list later").expect(0).data()[0].as_str().unwrap().to_owned();
    for line in ["job status", "job explain", "job cancel", "job retry --force", "job cancel", "job forget"] {
        see(&format!("{line} {job}")).expect(0);
    }
    see("action cancel once").expect(0);
    lab.submit_plan(&agq, &plan("writes", "echo", &["words"]));
    see("queue resume ready");
    see("action submit writes --inputs inputs.json --id words --wait").expect(0);
    see("logs words").expect(0);
    let key = see("worker get w1").expect(0).data()["tags"]["provenance-key"].as_str().unwrap().to_owned();
    lab.file("workers.toml", &format!("[workers.w1]\nkey = \"{key}\"\n"));
    let job = see("job list words").expect(0).data()[0].as_str().unwrap().to_owned();
    see(&format!("provenance show {job}")).expect(0);
    see(&format!("provenance verify {job} --trust workers.toml")).expect(0);
    see("map --dry-run -- echo ::: 1").expect(0);
    let model = ChatServer::start([ChatAnswer::Text(plan("r", "true", &[]))]);
    see(&format!("plan new --ask nothing --ask-url {} --ask-model small", model.url())).expect(0);
    drop((agw, agq));
    approvals(&lab, &mut seen);
    on_ones_own(&lab, &mut seen);
    assert_eq!(seen, published());
}

/// Approves a plan, and rejects another one.
fn approvals(lab: &Lab, seen: &mut BTreeSet<String>) {
    let policy =
        lab.file("asks.toml", "version = 1\n[tools.awk]\nclass = \"interpreter\"").display().to_string();
    let (robot, keys) = ("c".repeat(64), lab.path().join("keys.toml"));
    std::fs::write(&keys, format!("[clients]\nrobot = '{robot}'\n")).unwrap();
    let agq = lab.agq(&["--policy", &policy, "--config", keys.to_str().unwrap()]);
    for (id, verb) in [("asked", "approve"), ("refused", "reject")] {
        let file = lab.file("asked.json", &plan(id, "awk", &["1"])).display().to_string();
        let mut submit = lab.command("agx");
        submit.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", &robot);
        Ran::from(submit.args(["plan", "submit", &file]).output().unwrap()).expect(0);
        let all = lab.agx(&agq, &["approve", "--json"]).expect(0).data();
        let of_plan = all.as_array().unwrap().iter().find(|approval| approval["plan_id"] == id).unwrap();
        let digest = of_plan["digest"].as_str().unwrap();
        seen.extend(kinds(&lab.agx(&agq, &["--json", verb, id, "--digest", digest]).expect(0)));
    }
}

/// Collects the kinds of documents of the commands that work without the agq of the lab.
fn on_ones_own(lab: &Lab, seen: &mut BTreeSet<String>) {
    let mut see = |args: &[&str]| {
        let ran = Ran::from(lab.command("agx").args(args).arg("--json").output().unwrap()).expect(0);
        seen.extend(kinds(&ran));
        ran
    };
    let up = Ran::from(
        lab.command("agx").args(["up", "--json", "--", "--port", "0", "--http", "off"]).output().unwrap(),
    );
    let mut down = lab.command("agx");
    down.arg("down");
    let _up = DownOnDrop(down);
    let address = up.data()["agq"].as_str().unwrap().to_owned();
    see(&["profile", "set", "other", "--agq", "elsewhere:6380"]);
    see(&["profile", "list"]);
    see(&["profile", "use", "other"]);
    see(&["profile", "remove", "other"]);
    let key = lab.path().join("agx-home/local/session-key");
    let mut token = lab.command("agq");
    // The key in the environment belongs to another agq.
    token.env_remove("AGQ_SESSION_KEY").args(["token", "--agq", &address, "--session-key-file"]).arg(key);
    let token = Ran::from(token.output().unwrap()).expect(0).out;
    see(&["join", token.trim().strip_prefix("agx join ").unwrap(), "--no-worker"]);
    see(&["down"]);
    seen.extend(kinds(&up));
}
