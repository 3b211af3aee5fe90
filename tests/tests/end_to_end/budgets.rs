//! Budgets of clients and agents: what they refuse, what they delay, and what they show.

use e2e::{Agq, Agw, Lab, Ran, eventually};
use serde_json::Value;

use crate::support::{RawConnection, ended};

fn key(letter: &str) -> String {
    letter.repeat(64)
}

/// Writes a keys file with a client and an agent that have the budget `budget`.
fn keys(lab: &Lab, budget: &str) -> String {
    let [alice, bob, one] = ["a", "b", "1"].map(key);
    let text = format!(
        "[clients]\nalice = {{ key = '{alice}', budget = {{ per = '24h', {budget} }} }}\nbob = '{bob}'\n\
         [agents]\none = {{ key = '{one}', budget = {{ per = '1h', jobs = 1 }} }}\n"
    );
    lab.file("agq.toml", &text).display().to_string()
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

fn plan(id: &str, script: &str) -> String {
    format!(
        r#"PLAN.SUBMIT '{{"plan_id":"{id}","timeout_secs":10,"max_retries":9,"tasks":[{{"task_number":1,"command":"sh","args":["-c","{script}"]}}]}}'"#
    )
}

fn action(id: &str, plan: &str, jobs: usize) -> String {
    let inputs = vec!["{}"; jobs].join(",");
    format!(r#"ACTION.SUBMIT '{{"action_id":"{id}","plan_id":"{plan}","inputs":[{inputs}]}}'"#)
}

#[test]
fn budget_refuses_what_does_not_fit_and_shows_what_is_used() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "jobs = 5, plans = 2, cpu_secs = 100")]);
    let mut alice = with_key(&agq, "a");
    assert_eq!(alice.ask(&plan("p", "true")), "+OK plan_id=p");
    assert_eq!(alice.ask(&action("a", "p", 4)), "+OK action_id=a jobs_created=4");
    // An equal submission is answered again, and charged once.
    assert_eq!(alice.ask(&action("a", "p", 4)), "+OK action_id=a jobs_created=4");
    let refused = alice.ask(&action("b", "p", 2));
    assert!(refused.starts_with("-BUDGET used up: jobs 4 of 5, 2 wanted, next at 20"), "{refused}");
    assert_eq!(alice.ask("ACTION.STATUS b"), "$-1");
    assert_eq!(alice.ask(&action("b", "p", 6)), "-BUDGET too small: jobs 6 wanted, at most 5");
    assert_eq!(
        alice.ask(r#"PLAN.SUBMIT '{"plan_id":"slow","tasks":[{"task_number":1,"command":"true"}]}'"#),
        "+OK plan_id=slow"
    );
    // The jobs of the plan could use more processor time than the budget has.
    assert_eq!(alice.ask(&action("b", "slow", 1)), "-BUDGET too small: cpu_secs 3600 wanted, at most 100");
    let refused = alice.ask(&plan("q", "true"));
    assert!(refused.starts_with("-BUDGET used up: plans 2 of 2, next at 20"), "{refused}");
    let shown = bulk(&mut alice, "BUDGET.GET");
    assert_eq!((&shown[0]["name"], &shown[0]["per_hours"]), (&"alice".into(), &24.into()));
    assert_eq!((&shown[0]["jobs"]["used"], &shown[0]["jobs"]["limit"]), (&4.into(), &5.into()));
    assert!(shown[0]["jobs"]["next_at"].is_string() && shown[0]["running"].get("limit").is_none(), "{shown}");
    assert!(alice.ask("BUDGET.GET one").starts_with("-NOPERM This key may not see the budget of one"));
    let mut bob = with_key(&agq, "b");
    assert_eq!(bulk(&mut bob, "BUDGET.GET"), Value::Array(Vec::new()));
    assert_eq!(bob.ask(&action("c", "p", 9)), "+OK action_id=c jobs_created=9", "nothing bounds it");
    // An agent has a budget of its own.
    let mut one = with_key(&agq, "1");
    assert_eq!(one.ask(&plan("of-one", "true")), "+OK plan_id=of-one");
    assert_eq!(one.ask(&action("d", "of-one", 1)), "+OK action_id=d jobs_created=1");
    assert!(one.ask(&action("e", "of-one", 1)).starts_with("-BUDGET used up: jobs 1 of 1, next at 20"));
    assert_eq!(bulk(&mut one, "BUDGET.GET")[0]["name"], "one");

    // The session key sees all budgets.
    let all = lab.agx(&agq, &["budget", "--json"]).expect(0).data();
    assert_eq!((&all[0]["name"], &all[1]["name"]), (&"alice".into(), &"one".into()));
    let text = lab.agx(&agq, &["budget", "alice"]).expect(0).out;
    assert!(text.contains("alice  24 h  jobs") && !text.contains("one"), "{text}");
    let mut admin = RawConnection::open(&lab, &agq);
    admin.send("METRICS\n");
    let metrics = admin.bulk();
    assert!(metrics.contains("\nagq_budget_used{name=\"alice\",what=\"jobs\"} 4\n"), "{metrics}");
    assert!(metrics.contains("\nagq_budget_limit{name=\"alice\",what=\"jobs\"} 5\n"), "{metrics}");

    // The jobs of a workflow are charged, too.
    let workflow = r#"WORKFLOW.SUBMIT '{"steps":[{"plan_id":"p","inputs":[{}]}]}'"#;
    assert!(alice.ask(workflow).starts_with("+OK workflow_id="));
    eventually("the jobs of the workflow", || {
        (bulk(&mut alice, "BUDGET.GET")[0]["jobs"]["used"] == 5).then_some(())
    });
    // A larger budget counts as soon as agq has read the file again.
    keys(&lab, "jobs = 7, plans = 2, cpu_secs = 100");
    agq.reload();
    eventually("the larger budget", || {
        (alice.ask(&action("b", "p", 2)) == "+OK action_id=b jobs_created=2").then_some(())
    });
}

#[test]
fn map_runs_what_fits_into_the_budget_and_names_what_was_not_sent() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "jobs = 30")]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
    let numbers: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    lab.file("inputs", &numbers.join("\n"));
    let map = |more: &[&str]| {
        let mut command = lab.command("agx");
        command.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", key("a"));
        command.args(["map", "--joblog", "log", "-a", "inputs"]).args(more).args(["--", "echo"]);
        Ran::from(command.output().unwrap())
    };
    let ran = map(&[]).expect(4);
    assert_eq!(ran.out.lines().count(), 30);
    assert!(ran.err.contains("BUDGET used up: jobs 30 of 30, next at 20"), "{}", ran.err);
    assert!(ran.err.contains("not sent") && ran.err.contains("`agx budget`"), "{}", ran.err);
    let refused = map(&["--resume"]).expect(4);
    assert_eq!(refused.out, "", "the budget has no room");
    keys(&lab, "jobs = 100");
    agq.reload();
    let mut alice = with_key(&agq, "a");
    eventually("the larger budget", || {
        (bulk(&mut alice, "BUDGET.GET")[0]["jobs"]["limit"] == 100).then_some(())
    });
    let all = ran.out + &map(&["--resume"]).expect(0).out;
    let mut all: Vec<u32> = all.lines().map(|line| line.parse().unwrap()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=100), "each job has run once");
}

#[test]
fn job_waits_for_the_budget_and_jobs_of_others_overtake_it() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "running = 1")]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
    let go = lab.path().join("go");
    let mut alice = with_key(&agq, "a");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    assert_eq!(alice.ask(&plan("p", &script)), "+OK plan_id=p");
    assert_eq!(alice.ask(&action("a", "p", 2)), "+OK action_id=a jobs_created=2");
    eventually("the first job", || (bulk(&mut alice, "ACTION.STATUS a")["started"] == 1).then_some(()));
    assert_eq!(alice.ask("JOB.LIST a pending"), "*1");
    let waiting = alice.bulk();
    let why = bulk(&mut alice, &format!("JOB.EXPLAIN {waiting}"))["reason"].clone();
    assert_eq!(why, "The budget of 'alice' is used up: running 1 of 1, next when a job ends.");
    let mut bob = with_key(&agq, "b");
    assert_eq!(bob.ask(&plan("q", "true")), "+OK plan_id=q");
    assert_eq!(bob.ask(&action("b", "q", 3)), "+OK action_id=b jobs_created=3");
    eventually("the jobs of bob", || (bulk(&mut bob, "ACTION.STATUS b")["completed"] == 3).then_some(()));
    assert_eq!(bulk(&mut alice, "ACTION.STATUS a")["started"], 1);
    lab.file("go", "");
    eventually("the jobs of alice", || (bulk(&mut alice, "ACTION.STATUS a")["completed"] == 2).then_some(()));
    assert_eq!(bulk(&mut alice, "BUDGET.GET")[0]["running"]["used"], 0);
}

#[test]
fn job_ends_at_its_share_of_the_output_and_the_reported_bytes_are_charged() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "running = 2, output_bytes = 2000")]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "4"]);
    let mut alice = with_key(&agq, "a");
    assert_eq!(alice.ask(&plan("p", "printf 12345")), "+OK plan_id=p");
    assert_eq!(alice.ask(&action("a", "p", 3)), "+OK action_id=a jobs_created=3");
    eventually("the jobs", || (bulk(&mut alice, "ACTION.STATUS a")["completed"] == 3).then_some(()));
    let used =
        |alice: &mut RawConnection| bulk(alice, "BUDGET.GET")[0]["output_bytes"]["used"].as_u64().unwrap();
    assert_eq!(used(&mut alice), 15);
    let writes =
        r#"PLAN.SUBMIT '{"plan_id":"q","timeout_secs":600,"tasks":[{"task_number":1,"command":"yes"}]}'"#;
    assert_eq!(alice.ask(writes), "+OK plan_id=q");
    assert_eq!(alice.ask(&action("b", "q", 1)), "+OK action_id=b jobs_created=1");
    eventually("the end of the job", || (bulk(&mut alice, "ACTION.STATUS b")["failed"] == 1).then_some(()));
    let error = ended(&lab, &agq, "b")["stderr"].as_str().unwrap().to_owned();
    assert!(error.contains("a job of this budget may write 1000"), "{error}");
    assert!(used(&mut alice) > 1000);
    // The excess is charged, so no further job starts.
    assert_eq!(alice.ask(&action("c", "p", 1)), "+OK action_id=c jobs_created=1");
    assert_eq!(alice.ask("JOB.LIST c"), "*1");
    let waiting = alice.bulk();
    let why = bulk(&mut alice, &format!("JOB.EXPLAIN {waiting}"))["reason"].as_str().unwrap().to_owned();
    assert!(why.contains("The budget of 'alice' is used up: output_bytes "), "{why}");
}

#[test]
fn job_of_before_a_smaller_budget_runs_under_it() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "running = 1, output_bytes = 2000")]);
    let mut alice = with_key(&agq, "a");
    assert_eq!(alice.ask(&plan("p", "printf 12345")), "+OK plan_id=p");
    assert_eq!(alice.ask(&action("a", "p", 1)), "+OK action_id=a jobs_created=1");
    keys(&lab, "running = 1, output_bytes = 500");
    agq.reload();
    eventually("the smaller budget", || {
        (bulk(&mut alice, "BUDGET.GET")[0]["output_bytes"]["limit"] == 500).then_some(())
    });
    let _agw = lab.agw(&agq, "w1", &[]);
    eventually("the job", || (bulk(&mut alice, "ACTION.STATUS a")["completed"] == 1).then_some(()));
    assert_eq!(bulk(&mut alice, "BUDGET.GET")[0]["output_bytes"]["used"], 5);
}

/// Number of jobs that the budget of the chaos permits, and of those that run at once.
const JOBS: usize = 60;
const RUNNING: usize = 5;
const WORKERS: usize = 8;
const SLOTS: [&str; 2] = ["--max-concurrent-jobs", "4"];

/// Submits actions until the budget is used up, with `chaos` before each. Returns the number of
/// accepted jobs.
fn submit_all(nodes: &mut [Agq], chaos: &mut impl FnMut(&mut [Agq])) -> usize {
    let (mut accepted, mut round) = (0, 0);
    while accepted < JOBS {
        chaos(nodes);
        let jobs = 1 + round % 3;
        let reply = with_key(&nodes[round % 2], "a").ask(&action(&format!("a{round}"), "p", jobs));
        match reply.split(' ').next() {
            Some("+OK") => accepted += jobs,
            Some("-BUDGET") => assert!(accepted + jobs > JOBS, "{reply}"),
            _ => panic!("{reply}"),
        }
        round += 1;
    }
    accepted
}

#[test]
fn eight_workers_at_two_nodes_stay_within_a_budget_while_all_of_them_are_killed() {
    let lab = Lab::of_nodes();
    let budget = format!("jobs = {JOBS}, running = {RUNNING}, cpu_secs = 2000");
    let config = keys(&lab, &budget);
    let args = ["--config", config.as_str(), "--heartbeat-interval", "1"];
    let mut nodes = [lab.agq(&args), lab.agq(&args)];
    let mut workers: Vec<Agw> = (0..WORKERS)
        .map(|n| lab.agw(&nodes[n % 2], &format!("w{n}"), &["--max-concurrent-jobs", "4"]))
        .collect();
    assert_eq!(with_key(&nodes[0], "a").ask(&plan("p", "sleep 0.2; echo done")), "+OK plan_id=p");
    let mut turn = 0;
    // A worker is killed each time, and sometimes a node.
    let mut chaos = |nodes: &mut [Agq]| {
        turn += 1;
        let which = turn % WORKERS;
        workers[which].kill();
        workers[which] = lab.agw(&nodes[which % 2], &format!("w{which}-{turn}"), &SLOTS);
        if turn % 7 == 0 {
            nodes[turn % 2].kill();
            nodes[turn % 2].start_again(&lab);
        }
        let mut admin = RawConnection::open(&lab, &nodes[0]);
        let running: usize = admin.ask("JOBS.SEARCH running LIMIT 100")[1..].parse().unwrap();
        assert!(running <= RUNNING, "{running} jobs are running");
    };
    assert_eq!(submit_all(&mut nodes, &mut chaos), JOBS);
    let refused = with_key(&nodes[0], "a").ask(&action("more", "p", 1));
    assert!(refused.starts_with("-BUDGET used up: jobs 60 of 60, next at 20"), "{refused}");
    let mut admin = RawConnection::open(&lab, &nodes[0]);
    eventually("the end of all jobs", || {
        let metrics = bulk(&mut admin, "METRICS json");
        let jobs = |status: &str| metrics["jobs"][status].as_u64().unwrap();
        (jobs("pending") + jobs("running") == 0).then_some(())
    });
    let shown = &bulk(&mut admin, "BUDGET.GET alice")[0];
    assert_eq!((&shown["jobs"]["used"], &shown["running"]["used"]), (&JOBS.into(), &0.into()), "{shown}");
    assert!(shown["cpu_secs"]["used"].as_u64().unwrap() <= 2000, "{shown}");
}
