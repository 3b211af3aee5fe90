//! Bounds of an action: the number of its jobs that run at once, the rate of their starts, the
//! number of jobs with one key that run at once, and jobs that are unique; and bounds of a plan.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Lab, Ran, eventually};

use crate::{
    http::client::Http,
    support::{numbered, plan},
};

/// Script of a job that writes the times of its start and of its end into a file of its own.
const MEASURED: &str = "echo $(date +%s%N) > $1.start; sleep 0.05; date +%s%N > $1.end";

/// Returns the largest number of jobs that ran at one time.
fn most_at_once(dir: &Path, jobs: u32) -> usize {
    let time = |name: String| -> u128 { fs::read_to_string(dir.join(name)).unwrap().trim().parse().unwrap() };
    let runs: Vec<_> =
        (1..=jobs).map(|job| (time(format!("{job}.start")), time(format!("{job}.end")))).collect();
    // The number is largest at the start of a job.
    let running = |at: u128| runs.iter().filter(|(start, end)| *start <= at && at < *end).count();
    runs.iter().map(|(start, _)| running(*start)).max().unwrap()
}

/// Runs 20 jobs with `agx`, and checks their times.
fn check(lab: &Lab, mut agx: Command, more: &[&str]) {
    let dir = lab.path().join("times");
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.display().to_string();
    agx.args(["map", "--max-running", "2", "--cwd", &dir]).args(more);
    agx.args(["--", &format!("sh -c '{MEASURED}' sh {{}}"), ":::"]).args((1..=20).map(|job| job.to_string()));
    Ran::from(agx.output().unwrap()).expect(0);
    assert!(most_at_once(Path::new(&dir), 20) <= 2);
}

#[test]
fn max_running_bounds_the_jobs_of_an_action_on_a_large_worker() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "8"]);
    let mut agx = lab.command("agx");
    agx.env("AGQ_ADDR", agq.address());
    check(&lab, agx, &[]);
}

#[test]
fn max_running_bounds_the_jobs_of_a_map_without_a_server() {
    let lab = Lab::on_files();
    let mut agx = lab.command("agx");
    agx.env("TMPDIR", lab.path());
    check(&lab, agx, &["-j", "8"]);
}

#[test]
fn rate_bounds_the_starts_of_an_action_over_all_workers() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _workers = ["w1", "w2"].map(|name| lab.agw(&agq, name, &["--max-concurrent-jobs", "4"]));
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#);
    let lines = lab.file("lines", "1\n2\n3\n4\n5\n").display().to_string();
    let submit = ["action", "submit", "p", "--lines", &lines, "--id", "a", "--rate", "3/d"];
    lab.agx(&agq, &submit).expect(0);
    let completed = || lab.agx(&agq, &["action", "status", "a"]).expect(0).out;
    let shown = eventually("the jobs of a day", || {
        let shown = completed();
        shown.contains("completed  3").then_some(shown)
    });
    assert!(shown.contains("pending    2") && shown.contains("rate       at most 3/d"), "{shown}");
    // An action without a rate overtakes the jobs that wait.
    lab.submit_action(&agq, "p", "b", "[{},{}]");
    eventually("the other action", || {
        lab.agx(&agq, &["action", "status", "b"]).out.contains("completed  2").then_some(())
    });
    assert!(completed().contains("completed  3"), "no further job has started");
    lab.agx(&agq, &[&submit[..], &["--queue", "other"]].concat()).expect(4);
    lab.agx(&agq, &submit).expect(0);
    let refused = lab.agx(&agq, &["action", "submit", "p", "--lines", &lines, "--rate", "0/s"]).expect(2);
    assert!(refused.err.contains("write JOBS/PERIOD"), "{}", refused.err);
}

/// Program of a job that fails if another job has the same directory at the same time.
const LOCKED: &str = "mkdir $1 && sleep 0.02 && rmdir $1";

#[test]
fn concurrency_key_keeps_the_jobs_of_one_key_of_a_map_apart() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _workers = ["w1", "w2"].map(|name| lab.agw(&agq, name, &["--max-concurrent-jobs", "4"]));
    let dir = lab.path().join("locks");
    fs::create_dir_all(&dir).unwrap();
    let rows: String = (0..24).map(|row| format!("user-{}\t{row}\n", row / 8)).collect();
    let rows = lab.file("rows.tsv", &format!("user\trow\n{rows}")).display().to_string();
    let mut agx = lab.command("agx");
    agx.env("AGQ_ADDR", agq.address());
    agx.args(["map", "--cwd", &dir.display().to_string(), "--header", ":", "-a", &rows]);
    agx.args(["--concurrency-key", "user:{user}", "--", &format!("sh -c '{LOCKED}' sh {{user}}")]);
    Ran::from(agx.output().unwrap()).expect(0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "each job has removed its directory");
}

#[test]
fn concurrency_key_bounds_the_jobs_of_all_actions() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let dir = lab.path().join("locks");
    fs::create_dir_all(&dir).unwrap();
    let task = serde_json::json!({"task_number": 1, "command": "sh", "args": ["-c", LOCKED, "sh", "{{input.host}}"], "cwd": dir});
    lab.submit_plan(&agq, &serde_json::json!({"plan_id": "p", "tasks": [task]}).to_string());
    let hosts: String = (0..24).map(|row| format!("host-{}\n", row % 3)).collect();
    let hosts = lab.file("hosts", &hosts).display().to_string();
    let submit = |id, key| {
        let submit = ["action", "submit", "p", "--lines", &hosts, "--field", "host", "--id", id];
        lab.agx(&agq, &[&submit[..], &["--concurrency-key", key]].concat())
    };
    submit("a", "at {{input.host}}").expect(0);
    submit("b", "at {{input.host}}").expect(0);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "8"]);
    for id in ["a", "b"] {
        lab.agx(&agq, &["action", "watch", id]).expect(0);
    }
    let shown = lab.agx(&agq, &["action", "status", "b"]).expect(0).out;
    let at_once = "at once    at most 1 with the same key at {{input.host}}";
    assert!(shown.contains("completed  24") && shown.contains(at_once), "{shown}");
    submit("a", "at {{input.host}}").expect(0);
    submit("a", "{{input.host}}").expect(4);
    let refused = submit("c", "at {{input.user}}").expect(4);
    assert!(
        refused.err.contains("inputs[0] has no field 'user', which concurrency.key uses"),
        "{}",
        refused.err
    );
}

#[test]
fn unique_jobs_of_an_action_are_compared_with_those_that_have_not_ended() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#);
    let submit = |id: &str, count: u32, options: &[&str]| {
        let lines: String = (0..count).map(|line| format!("{line}\n")).collect();
        let lines = lab.file("lines", &lines).display().to_string();
        let submit = ["action", "submit", "p", "--lines", &lines, "--id", id, "--unique"];
        lab.agx(&agq, &[&submit[..], options].concat())
    };
    submit("a", 3, &[]).expect(0);
    submit("a", 3, &[]).expect(0);
    assert!(submit("b", 4, &[]).expect(4).err.contains("Job is a duplicate of job-"));
    assert!(submit("b", 4, &["--on-conflict", "ignore"]).expect(0).out.contains("action b has 1 job;"));
    let left_out = submit("c", 4, &["--on-conflict", "ignore", "--wait"]).expect(0).out;
    assert!(left_out.contains("another job stands for each input"), "{left_out}");
    assert!(submit("d", 2, &["--on-conflict", "replace"]).expect(0).out.contains("action d has 2 jobs;"));
    let shown = lab.agx(&agq, &["action", "status", "a"]).expect(0).out;
    assert!(
        shown.contains("cancelled  2") && shown.contains("unique     no two jobs with one key"),
        "{shown}"
    );
    assert!(submit("e", 501, &[]).expect(4).err.contains("there are more than 500 inputs"));
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.agx(&agq, &["action", "watch", "d"]).expect(0);
    submit("f", 2, &["--wait"]).expect(0);
}

#[test]
fn max_running_of_a_plan_bounds_the_jobs_of_all_its_actions() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _workers = ["w1", "w2"].map(|name| lab.agw(&agq, name, &["--max-concurrent-jobs", "4"]));
    let dir = lab.path().join("times");
    fs::create_dir_all(&dir).unwrap();
    let pipeline = format!("sh -c 'cd {} && {}' sh {{input.job}}", dir.display(), MEASURED);
    let plan = ["plan", "from", &pipeline, "--id", "p", "--max-running", "2", "--submit"];
    lab.agx(&agq, &plan).expect(0);
    let submit = |id: &str, jobs: std::ops::RangeInclusive<u32>, more: &[&str]| {
        let lines = lab.file(id, &jobs.map(|job| format!("{job}\n")).collect::<String>());
        let lines = lines.display().to_string();
        let submit = ["action", "submit", "p", "--lines", &lines, "--field", "job", "--id", id];
        lab.agx(&agq, &[&submit[..], more].concat())
    };
    submit("a", 1..=10, &[]).expect(0);
    submit("b", 11..=20, &[]).expect(0);
    for id in ["a", "b"] {
        lab.agx(&agq, &["action", "watch", id]).expect(0);
    }
    assert!(most_at_once(&dir, 20) <= 2);
    let refused = submit("c", 1..=1, &["--max-running", "1"]).expect(4).err;
    assert!(refused.contains("max_running is given, and the plan p has max_running or rate"), "{refused}");
}

#[test]
fn inputs_wait_for_room_in_a_full_queue() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "before", &numbered(20));
    let bound = |depth: u32| {
        let body = format!(r#"{{"backpressure":{{"max_depth":{depth}}}}}"#);
        let answer = Http::of(&lab, &agq).ask("PUT", "/admin/queues/ready/config", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    bound(10);
    lab.file("inputs", &"x\n".repeat(100));
    let stderr = lab.file("stderr", "");
    let mut command = lab.command("agx");
    command.env("AGQ_ADDR", agq.address()).args(["map", "-a", "inputs", "--", "echo"]);
    let child = command.stdout(Stdio::piped()).stderr(fs::File::create(&stderr).unwrap()).spawn().unwrap();
    let says = "Queue is full: ready has 20 jobs, at most 10; agx waits";
    eventually(says, || fs::read_to_string(&stderr).unwrap().contains(says).then_some(()));
    let _agw = lab.agw(&agq, "w1", &[]);
    assert_eq!(Ran::from(child.wait_with_output().unwrap()).expect(0).out, "x\n".repeat(100));
    // The first chunk of the inputs has more inputs than the queue takes.
    bound(1000);
    lab.file("inputs", &"x\n".repeat(2500));
    lab.agx(&agq, &["action", "submit", "p", "--lines", "inputs", "--wait"]).expect(0);
    bound(10);
    lab.agx(&agq, &["action", "submit", "p", "--open", "--id", "inbox"]).expect(0);
    lab.file("inputs", &"x\n".repeat(100));
    let added = lab.agx(&agq, &["action", "add", "inbox", "--lines", "inputs"]).expect(0).out;
    assert_eq!(added, "100 inputs are added to action inbox, which has 100 jobs\n");
}
