//! Approvals: a plan that the policy of agq asks about waits for an admin, through crashes.

use std::sync::LazyLock;

use e2e::{Agq, Agw, Lab, eventually};
use serde_json::{Value, json};

mod gate;

use crate::support::{RawConnection, action, ended, only_job};

const POLICY: &str = r#"
version = 1
use = ["cat"]
[tools.awk]
class = "interpreter"
"#;

static TRUE: LazyLock<Value> = LazyLock::new(|| json!({"task_number": 1, "command": "true"}));

fn robot() -> String {
    "c".repeat(64)
}

fn claude() -> String {
    "d".repeat(64)
}

fn alice() -> String {
    "a".repeat(64)
}

/// Lab with an agq that has a policy, a client `robot`, an agent `claude`, and an admin `alice`.
struct Asked {
    lab: Lab,
    agq: Agq,
}

impl Asked {
    fn new(args: &[&str]) -> Self {
        Self::with_policy(POLICY, args)
    }

    fn with_policy(policy: &str, args: &[&str]) -> Self {
        let lab = Lab::new();
        let policy = lab.file("policy.toml", policy).display().to_string();
        let keys = format!(
            "[clients]\nrobot = '{}'\n[admins]\nalice = '{}'\n[agents.claude]\nkey = '{}'\n",
            robot(),
            alice(),
            claude()
        );
        let config = lab.file("agq.toml", &keys).display().to_string();
        let agq = lab.agq(&[&["--config", &config, "--policy", &policy], args].concat());
        Self { lab, agq }
    }

    fn worker(&self) -> Agw {
        self.lab.agw(&self.agq, "w1", &[])
    }

    /// Sends commands of the owner of `key`, and returns the last reply.
    fn ask(&self, key: &str, command: &str) -> String {
        let mut raw = RawConnection::bare(&self.agq);
        assert_eq!(raw.ask(&format!("AUTH {key}")), "+OK");
        raw.ask(command)
    }

    /// Submits a plan that asks, and an action of it, with the key of `robot`.
    fn submit(&self, inputs: &str) {
        let plan = json!({"plan_id": "p", "tasks": [
            {"task_number": 1, "command": "awk", "args": ["BEGIN { print 1 }"]}]});
        assert_eq!(self.ask(&robot(), &format!("PLAN.SUBMIT '{plan}'")), "+OK plan_id=p");
        let action = format!(r#"{{"action_id":"a","plan_id":"p","inputs":{inputs}}}"#);
        let reply = self.ask(&robot(), &format!("ACTION.SUBMIT '{action}'"));
        assert!(reply.starts_with("+OK action_id=a"), "{reply}");
    }

    fn approval(&self) -> Value {
        self.lab.agx(&self.agq, &["approve", "--json"]).expect(0).data()[0].clone()
    }

    /// Decides about the plan with the key of alice, and returns the reply.
    fn decide(&self, command: &str) -> String {
        let digest = self.approval()["digest"].as_str().unwrap().to_owned();
        self.ask(&alice(), &format!("{command} p {digest}"))
    }

    fn job(&self) -> Value {
        only_job(&self.lab, &self.agq, "a")
    }
}

#[test]
fn job_of_a_plan_that_the_policy_asks_about_waits_for_an_admin() {
    let asked = Asked::new(&[]);
    let _agw = asked.worker();
    asked.submit("[{}]");
    let job = asked.job();
    assert_eq!((&job["status"], &job["state"]), (&json!("pending"), &json!("staged")), "{job}");
    let explained = asked.lab.agx(&asked.agq, &["job", "explain", job["job_id"].as_str().unwrap()]);
    assert!(explained.expect(0).out.contains("for the approval of an admin: `agx approve p`"));
    let approval = asked.approval();
    assert_eq!(approval["submitted_by"], "client:robot");
    assert_eq!(
        approval["reasons"][0],
        "task 1 (awk), command: tools.awk is an interpreter: it runs code of the plan"
    );
    assert_eq!(asked.decide("PLAN.APPROVE"), ":1");
    assert_eq!(ended(&asked.lab, &asked.agq, "a")["status"], "completed");
    let approval = asked.approval();
    assert_eq!((&approval["state"], &approval["decided_by"]), (&json!("approved"), &json!("admin:alice")));
    assert_eq!(asked.decide("PLAN.APPROVE"), ":0", "the same decision again changes nothing");
    let late = asked.decide("PLAN.REJECT");
    assert_eq!(late, "-ERR Approval of p is decided: approved by admin:alice");
}

#[test]
fn first_use_of_a_plan_by_an_agent_waits_for_an_admin() {
    let asked = Asked::with_policy("version = 1\nuse = ['true']\n[ask]\nagent_plans = true", &[]);
    let _agw = asked.worker();
    let plan = |id: &str| format!(r#"PLAN.SUBMIT '{}'"#, json!({"plan_id": id, "tasks": [TRUE.clone()]}));
    assert_eq!(asked.ask(&robot(), &plan("client")), "+OK plan_id=client");
    assert_eq!(asked.approval(), Value::Null, "only plans of agents wait");

    assert_eq!(asked.ask(&claude(), &plan("p")), "+OK plan_id=p");
    let submit =
        |id: &str| format!(r#"ACTION.SUBMIT '{{"action_id":"{id}","plan_id":"p","inputs":[{{}}]}}'"#);
    assert!(asked.ask(&claude(), &submit("a")).starts_with("+OK action_id=a"));
    assert_eq!(asked.job()["state"], "staged");
    let approval = asked.approval();
    assert_eq!(approval["submitted_by"], "agent:claude", "{approval}");
    assert_eq!(approval["reasons"], json!(["an agent has stored the plan"]));
    assert_eq!(asked.decide("PLAN.APPROVE"), ":1");
    assert_eq!(ended(&asked.lab, &asked.agq, "a")["status"], "completed");
    // The plan is known now.
    assert!(asked.ask(&claude(), &submit("b")).starts_with("+OK action_id=b"));
    assert_eq!(ended(&asked.lab, &asked.agq, "b")["status"], "completed");
}

#[test]
fn action_with_many_jobs_waits_for_an_admin() {
    let asked = Asked::with_policy("version = 1\nuse = ['true']\n[ask]\njobs_over = 2", &[]);
    let plan = json!({"plan_id": "p", "tasks": [TRUE.clone()]});
    assert_eq!(asked.ask(&robot(), &format!("PLAN.SUBMIT '{plan}'")), "+OK plan_id=p");
    let submit = |id: &str, inputs: &str, open: bool| {
        let action = format!(r#"{{"action_id":"{id}","plan_id":"p","open":{open},"inputs":{inputs}}}"#);
        let reply = asked.ask(&robot(), &format!("ACTION.SUBMIT '{action}'"));
        assert!(reply.starts_with(&format!("+OK action_id={id}")), "{reply}");
    };
    submit("few", "[{},{}]", true);
    assert_eq!(action(&asked.lab, &asked.agq, "few")["pending"], 2);
    assert_eq!(asked.approval(), Value::Null, "two jobs need no approval");
    let again = asked.ask(&robot(), "ACTION.ADD few '[{},{}]' AT 0");
    assert_eq!(again, "+OK action_id=few jobs_created=2 total_jobs=2");
    assert_eq!(asked.approval(), Value::Null, "repeated inputs count once");
    submit("many", "[{},{},{}]", false);
    let approval = asked.approval();
    assert_eq!((&approval["submitted_by"], &approval["actions"]), (&json!("client:robot"), &json!(["many"])));
    assert_eq!(approval["reasons"], json!(["an action has 3 jobs, and more than 2 need approval"]));
    // An action that grows beyond the number waits, too.
    let added = asked.ask(&robot(), "ACTION.ADD few '[{}]'");
    assert_eq!(added, "+OK action_id=few jobs_created=1 total_jobs=3");
    assert_eq!(asked.approval()["actions"], json!(["many", "few"]));
    assert_eq!(asked.claimed(), "", "all its jobs wait");
    submit("small", "[{}]", false);
    assert_eq!(asked.claimed(), "small");
    assert_eq!(asked.decide("PLAN.APPROVE"), ":6");
    let _agw = asked.worker();
    eventually("all jobs end", || (action(&asked.lab, &asked.agq, "many")["completed"] == 3).then_some(()));
    eventually("all jobs end", || (action(&asked.lab, &asked.agq, "few")["completed"] == 3).then_some(()));
}

#[test]
fn audit_log_has_the_verdict_of_the_policy_and_the_digest_of_the_approval() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let asked = Asked::new(&["--audit-log", &log.display().to_string()]);
    asked.submit("[{}]");
    let digest = asked.approval()["digest"].as_str().unwrap().to_owned();
    assert_eq!(asked.decide("PLAN.APPROVE"), ":1");
    let refused = json!({"tasks": [{"task_number": 1, "command": "sh"}]});
    assert!(asked.ask(&robot(), &format!("PLAN.SUBMIT '{refused}'")).starts_with("-ERR Plan refused"));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |command: &str| lines.iter().filter(|line| line["command"] == command).collect::<Vec<_>>();
    let submitted = of("PLAN.SUBMIT");
    let policy = format!("sha256:{}", asked.approval()["policy"].as_str().unwrap());
    assert_eq!((&submitted[0]["verdict"], &submitted[0]["policy"]), (&json!("ask"), &json!(policy)));
    assert_eq!((&submitted[1]["verdict"], &submitted[1]["target"]), (&json!("refuse"), &Value::Null));
    let approved = of("PLAN.APPROVE")[0];
    assert_eq!((&approved["who"], &approved["digest"]), (&json!("alice"), &json!(digest)), "{approved}");
}

#[test]
fn approval_cannot_be_faked() {
    let asked = Asked::new(&[]);
    asked.submit("[{}]");
    let digest = asked.approval()["digest"].as_str().unwrap().to_owned();
    let own = asked.ask(&robot(), &format!("PLAN.APPROVE p {digest}"));
    assert!(own.starts_with("-NOPERM"), "{own}");
    let other = format!("PLAN.APPROVE p {}", "0".repeat(64));
    let differs = asked.ask(&alice(), &other);
    assert_eq!(differs, format!("-ERR Approval of p has the digest {digest}: look at the plan again"));
    assert_eq!(asked.ask(&alice(), "PLAN.APPROVE q x"), "-ERR Plan not found: q");
    let plan = json!({"plan_id": "own", "tasks": [{"task_number": 1, "command": "awk"}]});
    assert_eq!(asked.ask(&alice(), &format!("PLAN.SUBMIT '{plan}'")), "+OK plan_id=own");
    let approvals = asked.lab.agx(&asked.agq, &["approve", "--json"]).expect(0).data();
    let of_own = approvals[0]["digest"].as_str().unwrap();
    let owner = asked.ask(&alice(), &format!("PLAN.APPROVE own {of_own}"));
    let reason = "-ERR Plan own was submitted by admin:alice, who cannot approve it: another admin has to";
    assert_eq!(owner, reason);
    assert_eq!(asked.job()["state"], "staged");
}

#[test]
fn digest_belongs_to_the_plan_that_is_stored() {
    let asked = Asked::new(&[]);
    asked.submit("[{}]");
    let old = asked.approval()["digest"].as_str().unwrap().to_owned();
    assert_eq!(asked.ask(&robot(), "ACTION.CANCEL a"), "+OK cancelled=1");
    assert_eq!(asked.ask(&robot(), "PLAN.DELETE p"), ":1");
    let plan = json!({"plan_id": "p", "tasks": [{"task_number": 1, "command": "awk", "args": ["other"]}]});
    assert_eq!(asked.ask(&robot(), &format!("PLAN.SUBMIT '{plan}'")), "+OK plan_id=p");
    let swapped = asked.ask(&alice(), &format!("PLAN.APPROVE p {old}"));
    assert!(swapped.starts_with("-ERR Approval of p has the digest "), "{swapped}");
}

#[test]
fn rejected_plan_runs_nothing() {
    let asked = Asked::new(&[]);
    let _agw = asked.worker();
    asked.submit("[{},{}]");
    assert_eq!(asked.decide("PLAN.REJECT"), ":2");
    assert_eq!(action(&asked.lab, &asked.agq, "a")["cancelled"], 2);
    let decided = "-ERR Approval of p is decided: rejected by admin:alice";
    let refused = asked.ask(&robot(), r#"ACTION.SUBMIT '{"plan_id":"p","inputs":[{}]}'"#);
    assert_eq!(refused, decided);
    assert_eq!(asked.ask(&robot(), "ACTION.ADD a '[{}]'"), decided);
    let again = r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{},{}]}'"#;
    assert_eq!(asked.ask(&robot(), again), "+OK action_id=a jobs_created=2", "its jobs are stored");
    let again = asked.ask(&robot(), "ACTION.ADD a '[{},{}]' AT 0");
    assert_eq!(again, "+OK action_id=a jobs_created=2 total_jobs=2");
}

#[test]
fn plan_that_nobody_approves_in_time_runs_nothing() {
    let asked = Asked::new(&["--approval-timeout", "0.5"]);
    let _agw = asked.worker();
    asked.submit("[{}]");
    assert_eq!(ended(&asked.lab, &asked.agq, "a")["status"], "cancelled");
    let late = asked.decide("PLAN.APPROVE");
    assert_eq!(late, "-ERR Approval of p is decided: expired");
}

#[test]
fn approval_and_its_jobs_survive_kills_of_agq() {
    let mut asked = Asked::new(&[]);
    // More inputs than one write stores.
    let inputs: Vec<String> = (0..1200).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    asked.submit(&format!("[{}]", inputs.join(",")));
    asked.agq.kill();
    asked.agq.start_again(&asked.lab);
    assert_eq!(action(&asked.lab, &asked.agq, "a")["pending"], 1200);
    assert_eq!(asked.approval()["state"], "waiting");
    assert_eq!(asked.decide("PLAN.APPROVE"), ":1200");
    asked.agq.kill();
    asked.agq.start_again(&asked.lab);
    let _agw = asked.worker();
    eventually("all jobs complete", || {
        (action(&asked.lab, &asked.agq, "a")["completed"] == 1200).then_some(())
    });
}

#[test]
fn kill_during_an_approval_releases_all_jobs_or_none() {
    let mut asked = Asked::new(&[]);
    let inputs: Vec<String> = (0..5000).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    asked.submit(&format!("[{}]", inputs.join(",")));
    let digest = asked.approval()["digest"].as_str().unwrap().to_owned();
    let mut raw = RawConnection::bare(&asked.agq);
    assert_eq!(raw.ask(&format!("AUTH {}", alice())), "+OK");
    raw.send(&format!("PLAN.APPROVE p {digest}\n"));
    eventually("the approval is stored", || (asked.approval()["state"] == "approved").then_some(()));
    asked.agq.kill();
    asked.agq.start_again(&asked.lab);
    assert_eq!(asked.approval()["state"], "approved");
    eventually("the reaper releases the rest", || {
        let stats = asked.lab.agx(&asked.agq, &["queue", "stats", "--json"]).expect(0).data();
        (stats["queue:ready"]["length"] == 5000).then_some(())
    });
}

#[test]
fn person_without_a_terminal_decides_by_the_digest_that_agx_shows() {
    let asked = Asked::new(&[]);
    let none = asked.lab.agx(&asked.agq, &["approve"]).expect(0).out;
    assert_eq!(none, "no plan waits for approval\n");
    asked.submit("[{}]");
    let listed = asked.lab.agx(&asked.agq, &["approve"]).expect(0).out;
    assert!(listed.contains("robot") && listed.contains("tools.awk is an interpreter"), "{listed}");
    let shown = asked.lab.agx(&asked.agq, &["approve", "p"]).expect(2).err;
    let digest = asked.approval()["digest"].as_str().unwrap().to_owned();
    for part in
        ["task 1  awk 'BEGIN { print 1 }'", "submitted by client:robot", &digest, "in words ", "--digest"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let approved = asked.lab.agx(&asked.agq, &["approve", "p", "--digest", &digest]).expect(0).out;
    assert_eq!(approved, "plan p is approved: 1 job released\n");
    asked.lab.agx(&asked.agq, &["reject", "nowhere"]).expect(4);
}

#[test]
fn job_of_the_open_job_spec_waits_too() {
    let asked = Asked::new(&[]);
    asked.submit("[{}]");
    let body = r#"{"type":"plan.p","args":[{}]}"#;
    let url = format!("http://{}/ojs/v1/jobs", asked.agq.http_address());
    let output = std::process::Command::new("curl")
        .args(["-s", "-X", "POST", "-H", &format!("Authorization: Bearer {}", robot())])
        .args(["-H", "Content-Type: application/openjobspec+json", "-d", body, &url])
        .output()
        .unwrap();
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["job"]["state"], "pending", "staged jobs are pending in the Open Job Spec: {reply}");
    assert_eq!(asked.decide("PLAN.APPROVE"), ":2");
}

#[test]
fn worker_leaves_decisions_of_ask_to_agq_if_its_owner_says_so() {
    let asked = Asked::new(&[]);
    let policy = asked.lab.file("own.toml", POLICY).display().to_string();
    let config = |ask: &str| format!("[policy]\nfile = '{policy}'\nask = '{ask}'\n");
    let file = asked.lab.file("agw.toml", &config("leave_to_agq")).display().to_string();
    let _agw = asked.lab.agw(&asked.agq, "w1", &["--config", &file]);
    asked.submit("[{}]");
    assert_eq!(asked.decide("PLAN.APPROVE"), ":1");
    assert_eq!(ended(&asked.lab, &asked.agq, "a")["status"], "completed");
}

#[test]
fn plan_is_approved_over_http_too() {
    let asked = Asked::new(&[]);
    asked.submit("[{}]");
    let digest = asked.approval()["digest"].as_str().unwrap().to_owned();
    let curl = |key: &str, args: &[&str]| -> Value {
        let output = std::process::Command::new("curl")
            .args(["-s", "-H", &format!("Authorization: Bearer {key}")])
            .args(["-H", "Content-Type: application/json"])
            .args(args)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let url = |path: &str| format!("http://{}/ojs/v1/approvals{path}", asked.agq.http_address());
    assert_eq!(curl(&robot(), &[&url("")])["approvals"][0]["state"], "waiting");
    let body = json!({"digest": digest}).to_string();
    let refused = curl(&robot(), &["-d", &body, &url("/p/approve")]);
    assert_eq!(refused["error"]["code"], "forbidden", "{refused}");
    let wrong = json!({"digest": "0"}).to_string();
    let differs = curl(&alice(), &["-d", &wrong, &url("/p/approve")]);
    assert!(differs["error"]["message"].as_str().unwrap().contains(&digest), "{differs}");
    let approved = curl(&alice(), &["-d", &body, &url("/p/approve")]);
    assert_eq!(approved, json!({"plan_id": "p", "state": "approved", "jobs": 1}));
}
