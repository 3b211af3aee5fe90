//! Agents: their keys reach what they own, and nothing else.

use std::{fs::File, process::Stdio};

use e2e::{Agq, Lab, Ran, eventually};
use serde_json::Value;

use crate::support::{RawConnection, ended, plan};

const REFUSED: &str = "-NOPERM This key is an agent's and may not use ";

fn key(letter: &str) -> String {
    letter.repeat(64)
}

/// Starts an agq with a client and two agents, one of which has a queue of its own.
fn start(lab: &Lab) -> Agq {
    let [alice, one, two, worker] = ["c", "1", "2", "w"].map(key);
    let text = format!(
        "[clients]\nalice = '{alice}'\n[workers]\nw1 = '{worker}'\n\
         [agents]\none = {{ key = '{one}', queues = ['agents'] }}\ntwo = '{two}'\n"
    );
    let file = lab.file("agq.toml", &text).display().to_string();
    lab.agq(&["--config", &file, "--max-connections-per-ip", "0"])
}

/// Opens a connection and logs in with the key `letter`.
fn with_key(agq: &Agq, letter: &str) -> RawConnection {
    let mut raw = RawConnection::bare(agq);
    assert_eq!(raw.ask(&format!("AUTH {}", key(letter))), "+OK");
    raw
}

fn bulk(raw: &mut RawConnection, command: &str) -> Value {
    raw.send(&format!("{command}\n"));
    serde_json::from_str(&raw.bulk()).unwrap()
}

/// Stores a plan and an action in the queue of the agent.
fn submit(raw: &mut RawConnection, id: &str) {
    assert_eq!(
        raw.ask(&format!("PLAN.SUBMIT '{}'", plan(id, "printf", &["done"]))),
        format!("+OK plan_id={id}")
    );
    let action = format!(r#"{{"action_id":"{id}","plan_id":"{id}","inputs":[{{}}],"queue":"agents"}}"#);
    let reply = format!("+OK action_id={id} jobs_created=1");
    assert_eq!(raw.ask(&format!("ACTION.SUBMIT '{action}'")), reply);
}

#[test]
fn agent_sees_its_own_work_and_people_see_whose_it_is() {
    let lab = Lab::new();
    let agq = start(&lab);
    let _agw = lab.agw(&agq, "w9", &["--queues", "agents"]);
    let (mut one, mut two) = (with_key(&agq, "1"), with_key(&agq, "2"));
    submit(&mut one, "of-one");
    submit(&mut two, "of-two");
    let job = ended(&lab, &agq, "of-one");
    assert_eq!((&job["status"], &job["owner"]), (&"completed".into(), &"agent:one".into()));
    let job_id = job["job_id"].as_str().unwrap();
    let text = lab.agx(&agq, &["job", "status", job_id]).expect(0).out;
    assert!(text.contains("\n  owner      agent:one\n"), "{text}");
    let text = lab.agx(&agq, &["action", "status", "of-two"]).expect(0).out;
    assert!(text.contains("\n  owner      agent:two\n"), "{text}");

    assert_eq!(bulk(&mut one, "PLAN.STATUS of-one")["owner"], "agent:one");
    assert_eq!(two.ask("PLAN.STATUS of-one"), "$-1");
    let text = lab.agx(&agq, &["plan", "status", "of-one"]).expect(0).out;
    assert!(text.ends_with("\n  owner      agent:one\n"), "{text}");
    let status = bulk(&mut one, "ACTION.STATUS of-one");
    assert_eq!((&status["completed"], &status["owner"]), (&1.into(), &"agent:one".into()));
    assert_eq!(bulk(&mut one, &format!("JOB.STATUS {job_id}"))["stdout"], "done");
    assert_eq!(two.ask(&format!("JOB.STATUS {job_id}")), "$-1");
    assert_eq!(two.ask("ACTION.STATUS of-one"), "$-1");
    assert_eq!(two.ask("ACTION.CANCEL of-one"), "-ERR Action not found: of-one");
    for list in ["PLAN.LIST", "ACTION.LIST"] {
        assert_eq!(two.ask(list), "*1");
        assert_eq!(two.bulk(), "of-two");
    }
    assert_eq!(two.ask("JOBS.SEARCH"), "*1");
    assert_ne!(two.bulk(), job_id);
    // People see all objects of agents.
    let mut alice = with_key(&agq, "c");
    assert_eq!(bulk(&mut alice, "ACTION.STATUS of-one")["owner"], "agent:one");
    submit(&mut alice, "of-alice");
    assert_eq!(ended(&lab, &agq, "of-alice")["owner"], "client:alice");
    assert_eq!(alice.ask("ACTION.LIST of-*"), "*3");
    assert_eq!([alice.bulk(), alice.bulk(), alice.bulk()], ["of-alice", "of-one", "of-two"]);
    // A schedule and a workflow submit in the name of their owner.
    let steps = r#"{"steps":[{"plan_id":"of-alice","inputs":[{}],"queue":"agents"}]}"#;
    let begun = alice.ask(&format!("WORKFLOW.SUBMIT '{steps}'"));
    let id = begun.strip_prefix("+OK workflow_id=").unwrap().split(' ').next().unwrap();
    let step = bulk(&mut alice, &format!("WORKFLOW.STATUS {id}"))["steps"][0]["action_id"].clone();
    let status = bulk(&mut alice, &format!("ACTION.STATUS {}", step.as_str().unwrap()));
    assert_eq!(status["owner"], "client:alice");
    // The session key owns nothing.
    lab.submit_plan(&agq, &plan("of-nobody", "true", &[]));
    lab.submit_action(&agq, "of-nobody", "of-nobody", "[{}]");
    let status = lab.agx(&agq, &["action", "status", "of-nobody", "--json"]).expect(0).data();
    assert!(status.get("owner").is_none(), "{status}");
}

#[test]
fn agx_submits_waits_and_reads_results_with_the_key_of_an_agent() {
    let lab = Lab::new();
    let agq = start(&lab);
    let _agw = lab.agw(&agq, "w9", &["--queues", "agents"]);
    let agx = |args: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGQ_SESSION_KEY", key("1")).env("AGQ_ADDR", agq.address()).args(args);
        Ran::from(command.output().unwrap())
    };
    let file = |name: &str, text: &str| lab.file(name, text).display().to_string();
    agx(&["plan", "submit", &file("p.json", &plan("p", "printf", &["done"]))]).expect(0);
    let inputs = file("inputs.json", "[{}]");
    let submit = ["action", "submit", "p", "--id", "a", "--inputs", &inputs];
    let refused = agx(&submit);
    assert!(refused.code != 0 && refused.err.contains("may not use the queue ready"), "{refused:?}");
    agx(&[&submit[..], &["--queue", "agents", "--wait"]].concat()).expect(0);
    assert!(agx(&["action", "results", "a"]).expect(0).out.contains("done"));
    assert!(agx(&["logs", "a"]).expect(0).out.contains("done"));
    assert_eq!(agx(&["action", "list", "--json"]).expect(0).data()[0]["action_id"], "a");
    let refused = agx(&["worker", "list"]);
    assert!(refused.code != 0 && refused.err.contains("may not use WORKER.LIST"), "{refused:?}");
}

#[test]
fn tries_of_an_agent_to_do_more_are_refused() {
    let lab = Lab::new();
    let agq = start(&lab);
    let mut alice = with_key(&agq, "c");
    submit(&mut alice, "secret");
    assert_eq!(alice.ask("JOB.LIST secret"), "*1");
    let job = alice.bulk();
    let mut one = with_key(&agq, "1");
    submit(&mut one, "mine");
    let action = |more: &str| format!(r#"ACTION.SUBMIT '{{"plan_id":"mine","inputs":[{{}}]{more}}}'"#);
    let secret = plan("secret", "printf", &["done"]);
    let far = "-NOPERM This key is an agent's and may not delay an action by more than 24 hours";
    let tries = [
        (format!("JOB.STATUS {job}"), "$-1".to_owned()),
        (format!("JOB.RESULT {job} 1 stdout"), "$-1".into()),
        (format!("JOB.CANCEL {job}"), format!("-ERR Job not found: {job}")),
        (format!("JOB.RETRY {job} FORCE"), format!("-ERR Job not found: {job}")),
        (format!("JOB.EXPLAIN {job}"), format!("-ERR Job not found: {job}")),
        ("JOBS.SEARCH ACTION secret".into(), "*0".into()),
        ("JOB.LIST secret".into(), "*0".into()),
        ("PLAN.GET secret".into(), "$-1".into()),
        ("PLAN.DELETE secret".into(), ":0".into()),
        (format!("PLAN.SUBMIT '{secret}'"), "-ERR Plan already exists: secret".into()),
        (format!("PLAN.SUBMIT '{}'", plan("ojs", "true", &[])), "-ERR Plan already exists: ojs".into()),
        ("ACTION.ADD secret '[{}]'".into(), "-ERR Action not found: secret".into()),
        (
            action(r#","action_id":"secret","queue":"agents""#),
            "-ERR Action already exists with other content: secret".into(),
        ),
        (
            r#"ACTION.SUBMIT '{"plan_id":"secret","inputs":[{}],"queue":"agents"}'"#.into(),
            "-ERR Plan not found: secret".into(),
        ),
        (action(""), "-NOPERM This key may not use the queue ready, but only agents".into()),
        (action(r#","queue":"gpu""#), "-NOPERM This key may not use the queue gpu, but only agents".into()),
        (action(r#","queue":"agents","run_at":"2999-01-01T00:00:00Z""#), far.into()),
        (action(r#","queue":"agents","delay_secs":90000"#), far.into()),
        (
            r#"SCHEDULE.SET '{"name":"n","cron":"* * * * *","action":{"plan_id":"mine","inputs":[{}]}}'"#
                .into(),
            format!("{REFUSED}SCHEDULE.SET"),
        ),
        (r#"WORKFLOW.SUBMIT '{"steps":[]}'"#.into(), format!("{REFUSED}WORKFLOW.SUBMIT")),
        ("RPOP queue:agents".into(), format!("{REFUSED}RPOP")),
        ("JOB.CLAIM 0.01 COUNT 1 agents".into(), format!("{REFUSED}JOB.CLAIM")),
        (format!("HGETALL job:{job}"), format!("{REFUSED}HGETALL")),
        ("GET plan:secret".into(), format!("{REFUSED}GET")),
        ("PSUBSCRIBE *".into(), format!("{REFUSED}PSUBSCRIBE")),
        ("PUBLISH news x".into(), format!("{REFUSED}PUBLISH")),
        ("MULTI".into(), format!("{REFUSED}MULTI")),
        (
            r#"WORKER.REGISTER '{"worker_id":"w1","capabilities":["true"]}'"#.into(),
            format!("{REFUSED}WORKER.REGISTER"),
        ),
        (format!("JOB.UPDATE {job} '{{\"status\":\"completed\"}}'"), format!("{REFUSED}JOB.UPDATE")),
        ("QUEUE.PAUSE agents".into(), format!("{REFUSED}QUEUE.PAUSE")),
        ("BACKUP BEGIN".into(), format!("{REFUSED}BACKUP")),
    ];
    assert!(tries.len() >= 20);
    for (line, reply) in &tries {
        assert_eq!(one.ask(line), *reply, "{line}");
    }
    // A name of a connection does not help either.
    assert_eq!(one.ask("CLIENT SETNAME w1"), "+OK");
    assert_eq!(one.ask("JOB.CLAIM 0.01 COUNT 1 agents"), format!("{REFUSED}JOB.CLAIM"));
    let status = bulk(&mut alice, "ACTION.STATUS secret");
    assert_eq!((&status["pending"], &status["total_jobs"]), (&1.into(), &1.into()));
    assert_eq!(alice.ask("ACTION.LIST"), "*2");
}

#[test]
fn agent_learns_why_nothing_runs_and_sees_an_overview_of_its_actions() {
    let lab = Lab::new();
    let agq = start(&lab);
    submit(&mut with_key(&agq, "1"), "a");
    let agx = |args: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGQ_SESSION_KEY", key("1")).env("AGQ_ADDR", agq.address()).args(args);
        command
    };
    let log = lab.path().join("agx.log");
    let mut watch = agx(&["action", "watch", "a"]);
    let mut watch = watch.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    eventually("agx says why nothing runs", || {
        std::fs::read_to_string(&log).unwrap().contains("There is no worker.").then_some(())
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
    let overview = Ran::from(agx(&[]).output().unwrap()).expect(0).out;
    let workers = "\nworkers  not shown: this key may not list workers and queues\n";
    assert!(overview.contains(workers) && overview.contains("waiting"), "{overview}");
    let overview = Ran::from(agx(&["--json"]).output().unwrap()).expect(0).data();
    assert_eq!((&overview["workers"], &overview["actions"][0]["action_id"]), (&Value::Null, &"a".into()));
}
