//! Ways around an approval: a job of a plan that nobody has approved goes to nobody.

use std::process::Command;

use e2e::{Ran, eventually};
use serde_json::{Value, json};

use super::{Asked, alice, claude, robot};
use crate::support::{RawConnection, action, only_job};

/// Policy that asks about awk, allows cat, and is used with an agent.
const POLICY: &str = "version = 1\nuse = ['cat']\n[tools.awk]\nclass = 'interpreter'";

impl Asked {
    fn submit_plan(&self, key: &str, plan_id: &str, command: &str) {
        let plan = json!({"plan_id": plan_id, "tasks": [{"task_number": 1, "command": command}]});
        let reply = self.ask(key, &format!("PLAN.SUBMIT '{plan}'"));
        assert_eq!(reply, format!("+OK plan_id={plan_id}"));
    }

    fn submit_action(&self, key: &str, plan_id: &str, action_id: &str, rest: &str) -> String {
        let action = format!(r#"{{"action_id":"{action_id}","plan_id":"{plan_id}","inputs":[{{}}]{rest}}}"#);
        self.ask(key, &format!("ACTION.SUBMIT '{action}'"))
    }

    fn approval_of(&self, plan_id: &str) -> Value {
        let all = self.lab.agx(&self.agq, &["approve", "--json"]).expect(0).data();
        let mut all = all.as_array().unwrap().iter();
        all.find(|approval| approval["plan_id"] == plan_id).cloned().unwrap_or_default()
    }

    fn decide_about(&self, command: &str, plan_id: &str) -> String {
        let digest = self.approval_of(plan_id)["digest"].as_str().unwrap().to_owned();
        self.ask(&alice(), &format!("{command} {plan_id} {digest}"))
    }

    fn job_of(&self, action_id: &str) -> Value {
        only_job(&self.lab, &self.agq, action_id)
    }

    /// Claims a job, and returns its action, or "" if no job is ready.
    pub(super) fn claimed(&self) -> String {
        let mut raw = RawConnection::bare(&self.agq);
        assert_eq!(raw.ask(&format!("AUTH {}", alice())), "+OK");
        raw.send("RPOP queue:ready\n");
        match raw.bulk_or_nil() {
            None => String::new(),
            Some(json) => {
                let job: Value = serde_json::from_str(&json).unwrap();
                job["action_id"].as_str().unwrap().to_owned()
            }
        }
    }

    /// Sends a request of the Open Job Spec, and returns the answer.
    fn ojs(&self, key: &str, path: &str, body: &Value) -> Value {
        let url = format!("http://{}/ojs/v1/{path}", self.agq.http_address());
        let output = Command::new("curl")
            .args(["-s", "-X", "POST", "-H", &format!("Authorization: Bearer {key}")])
            .args(["-H", "Content-Type: application/openjobspec+json", "-d", &body.to_string(), &url])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn retry_releases_no_job_that_waits() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&claude(), "p", "awk");
    asked.submit_action(&claude(), "p", "a", "");
    let job = asked.job_of("a")["job_id"].as_str().unwrap().to_owned();
    assert_eq!(asked.ask(&claude(), &format!("JOB.CANCEL {job}")), "+OK job cancelled");
    let waits = "-ERR Plan p waits for approval: `agx approve p` shows it";
    assert_eq!(asked.ask(&claude(), &format!("JOB.RETRY {job} FORCE")), waits);
    assert_eq!(asked.ask(&claude(), "ACTION.RETRY a"), waits);
    assert_eq!(asked.decide_about("PLAN.REJECT", "p"), ":0");
    let rejected = "-ERR Approval of p is decided: rejected by admin:alice";
    assert_eq!(asked.ask(&claude(), &format!("JOB.RETRY {job} FORCE")), rejected);

    // The job of a plan that was replaced by one that waits.
    assert_eq!(asked.ask(&claude(), "PLAN.DELETE p"), ":1");
    asked.submit_plan(&claude(), "p", "awk");
    assert_eq!(asked.ask(&claude(), &format!("JOB.RETRY {job} FORCE")), waits);
    assert_eq!(asked.claimed(), "");
}

#[test]
fn client_cannot_activate_a_job_that_waits() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&robot(), "p", "awk");
    let job = asked.ojs(&robot(), "jobs", &json!({"type": "plan.p", "args": [{}]}));
    let id = job["job"]["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned();
    let refused = asked.ojs(&robot(), &format!("jobs/{id}/activate"), &json!({}));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("waits for approval"), "{refused}");
    assert_eq!(asked.claimed(), "");
}

#[test]
fn approval_of_one_plan_leaves_the_jobs_of_another_alone() {
    let asked = Asked::with_policy(POLICY, &[]);
    for plan in ["good", "evil"] {
        asked.submit_plan(&claude(), plan, "awk");
    }
    assert_eq!(asked.decide_about("PLAN.APPROVE", "good"), ":0");
    asked.submit_action(&claude(), "evil", "x", "");
    let taken = asked.submit_action(&claude(), "good", "x", "");
    assert_eq!(taken, "-ERR Action already exists with other content: x");
    assert_eq!(asked.job_of("x")["state"], "staged");

    // A batch of the Open Job Spec has jobs of both plans.
    let job = |plan: &str| json!({"type": format!("plan.{plan}"), "args": [{}], "options": {"queue": "q"}});
    let batch = asked.ojs(&robot(), "jobs/batch", &json!({"jobs": [job("good"), job("evil")]}));
    let states: Vec<_> = batch["jobs"].as_array().unwrap().iter().map(|job| job["state"].clone()).collect();
    assert_eq!(states, ["available", "pending"], "{batch}");
}

#[test]
fn rejection_cancels_no_action_of_others() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&robot(), "own", "cat");
    let own = asked.submit_action(&robot(), "own", "victim", r#","delay_secs":3600"#);
    assert!(own.starts_with("+OK"), "{own}");
    asked.submit_plan(&claude(), "trap", "awk");
    let taken = asked.submit_action(&claude(), "trap", "victim", "");
    assert_eq!(taken, "-ERR Action already exists with other content: victim");
    assert_eq!(asked.decide_about("PLAN.REJECT", "trap"), ":0");
    assert_eq!(action(&asked.lab, &asked.agq, "victim")["pending"], 1);
}

#[test]
fn plan_is_stored_with_its_approval_whatever_is_submitted_beside_it() {
    let asked = Asked::with_policy(POLICY, &[]);
    let mut connections = [RawConnection::bare(&asked.agq), RawConnection::bare(&asked.agq)];
    for connection in &mut connections {
        assert_eq!(connection.ask(&format!("AUTH {}", claude())), "+OK");
    }
    for _try in 0..60 {
        for (connection, command) in connections.iter_mut().zip(["awk", "cat"]) {
            let plan = json!({"plan_id": "r", "tasks": [{"task_number": 1, "command": command}]});
            connection.send(&format!("PLAN.SUBMIT '{plan}'\n"));
        }
        let replies = connections.each_mut().map(RawConnection::line);
        let is_asked = replies[0] == "+OK plan_id=r";
        assert_ne!(is_asked, replies[1] == "+OK plan_id=r", "{replies:?}");
        assert_eq!(!asked.approval_of("r").is_null(), is_asked, "{replies:?}");
        assert_eq!(connections[0].ask("PLAN.DELETE r"), ":1");
        assert!(asked.approval_of("r").is_null());
    }
}

#[test]
fn approval_keeps_the_delay_of_an_action() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&claude(), "p", "awk");
    asked.submit_action(&claude(), "p", "later", r#","delay_secs":3600"#);
    assert_eq!(asked.decide_about("PLAN.APPROVE", "p"), ":1");
    let job = asked.job_of("later");
    assert_eq!(job["state"], "scheduled", "{job}");
    assert_eq!(asked.claimed(), "");
}

#[test]
fn approval_releases_each_job_of_a_batch_at_its_own_time() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&claude(), "p", "awk");
    let job = |options: Value| json!({"type": "plan.p", "args": [{}], "options": options});
    let later = job(json!({"scheduled_at": "2199-01-01T00:00:00Z"}));
    let jobs = [later, job(json!({})), job(json!({"pending": true}))];
    let batch = asked.ojs(&robot(), "jobs/batch", &json!({"jobs": jobs}));
    let ids: Vec<_> = (0..3).map(|at| batch["jobs"][at]["id"].as_str().unwrap().to_owned()).collect();
    let state = |id: &String| {
        let job = asked.lab.agx(&asked.agq, &["job", "status", id, "--json"]).expect(0).data();
        job["state"].clone()
    };
    let states = || ids.iter().map(state).collect::<Vec<_>>();
    assert_eq!(states(), ["staged", "staged", "staged"], "{batch}");
    assert_eq!(asked.decide_about("PLAN.APPROVE", "p"), ":2");
    assert_eq!(states(), ["scheduled", "available", "staged"], "{batch}");
    asked.ojs(&robot(), &format!("jobs/{}/activate", ids[2]), &json!({}));
    assert_eq!(states(), ["scheduled", "available", "available"], "{batch}");
}

#[test]
fn rejection_of_an_action_that_arrives_in_chunks_stops_nothing_else() {
    let asked = Asked::with_policy(POLICY, &[]);
    asked.submit_plan(&claude(), "p", "awk");
    let inputs = vec!["{}"; 20_000].join(",");
    let mut raw = RawConnection::bare(&asked.agq);
    assert_eq!(raw.ask(&format!("AUTH {}", claude())), "+OK");
    raw.send(&format!("ACTION.SUBMIT '{{\"action_id\":\"a\",\"plan_id\":\"p\",\"inputs\":[{inputs}]}}'\n"));
    eventually("the action waits", || (asked.approval_of("p")["actions"] == json!(["a"])).then_some(()));
    assert!(asked.decide_about("PLAN.REJECT", "p").starts_with(':'));
    let _answer = raw.line();
    eventually("all its jobs are cancelled", || {
        let status = action(&asked.lab, &asked.agq, "a");
        (status["pending"] == 0 && status["cancelled"] == status["total_jobs"]).then_some(())
    });
    // The reaper continues: the reaper starts jobs whose time has come.
    asked.submit_plan(&robot(), "own", "cat");
    asked.submit_action(&robot(), "own", "soon", r#","delay_secs":1"#);
    eventually("a delayed job is ready", || (asked.claimed() == "soon").then_some(()));
    assert_eq!(asked.ask(&robot(), "PLAN.DELETE p"), ":1");
}

#[test]
fn agent_does_not_see_the_order_of_another_plan() {
    let asked = Asked::with_policy(POLICY, &[]);
    let agx = |args: &[&str]| Ran::from(asked.lab.command("agx").args(args).output().unwrap()).expect(0).out;
    agx(&["key", "new", "robot"]);
    let plan = json!({"plan_id": "signed", "tasks": [{"task_number": 1, "command": "cat"}]}).to_string();
    let file = asked.lab.file("plan.json", &plan).display().to_string();
    let order = agx(&["plan", "sign", &file, "--key", "robot", "--for", "here", "--hours", "1"]);
    let submit = format!("PLAN.SUBMIT '{{\"order\":{}}}'", order.trim());
    assert_eq!(asked.ask(&robot(), &submit), "+OK plan_id=signed");
    assert!(asked.ask(&robot(), "PLAN.ORDER signed").starts_with('$'));
    assert_eq!(asked.ask(&claude(), "PLAN.ORDER signed"), "$-1");
}
