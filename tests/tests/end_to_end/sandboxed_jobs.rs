//! Jobs in a sandbox: where their tasks run, what their results contain, and how they end. Attacks
//! on the sandbox are a test of their own.

mod control_groups;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use e2e::{Agq, Agw, Lab, Ran, eventually, is_gone};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::support::{RawConnection, ended};

/// Lab whose directory the user of the tasks can reach, with a sandboxed worker.
struct Sandboxed {
    lab: Lab,
    agq: Agq,
    agw: Agw,
}

impl Sandboxed {
    fn new(lab: Lab, args: &[&str]) -> Self {
        Self::with_slots(lab, "1", args)
    }

    fn with_slots(lab: Lab, slots: &str, args: &[&str]) -> Self {
        fs::set_permissions(lab.path(), Permissions::from_mode(0o755)).unwrap();
        let agq = lab.agq(&[]);
        let agw =
            lab.agw(&agq, "w1", &[&["--max-concurrent-jobs", slots, "--kill-grace", "1"], args].concat());
        Self { lab, agq, agw }
    }

    fn reader() -> Self {
        Self::new(Lab::new(), &["--sandbox", "reader"])
    }

    /// Submits a job with these tasks that may also execute `tools`.
    fn submit(&self, id: &str, tools: &[&str], tasks: &Value) {
        let plan = json!({"plan_id": id, "max_retries": 0, "requires": {"tools": tools}, "tasks": tasks});
        self.lab.submit_plan(&self.agq, &plan.to_string());
        self.lab.submit_action(&self.agq, id, id, "[{}]");
    }

    /// Runs a script as a job, and returns the status of the job.
    fn run(&self, id: &str, tools: &[&str], script: &str) -> Value {
        self.submit(id, tools, &json!([shell(script)]));
        ended(&self.lab, &self.agq, id)
    }

    /// Returns the outer processes of the supervisors.
    fn supervisors(&self) -> Vec<i32> {
        children(self.agw.pid().cast_signed())
    }

    /// Returns the processes of the sandboxes.
    fn processes(&self) -> Vec<i32> {
        let mut found = self.supervisors();
        let mut at = 0;
        while at < found.len() {
            found.extend(children(found[at]));
            at += 1;
        }
        found
    }

    /// Returns the outer and the inner process of the supervisor that runs a job.
    fn busy_supervisor(&self) -> [i32; 2] {
        let supervisors = self.supervisors().into_iter().map(|outer| (outer, children(outer)));
        let mut busy =
            supervisors.filter(|(_, inner)| inner.iter().any(|inner| !children(*inner).is_empty()));
        let (outer, inner) = busy.next().unwrap();
        [outer, inner[0]]
    }

    /// Returns a task of the sandbox that runs `program`.
    fn task(&self, program: &str) -> i32 {
        eventually("the task runs", || {
            self.processes().into_iter().find(|pid| words(*pid).first().is_some_and(|word| word == program))
        })
    }
}

fn shell(script: &str) -> Value {
    json!({"task_number": 1, "command": "sh", "args": ["-c", script], "timeout_secs": 600})
}

fn words(pid: i32) -> Vec<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns the children of `parent`, apart from the watcher of a worker.
fn children(parent: i32) -> Vec<i32> {
    let parent_of = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| parent_of(*pid) == Some(parent);
    pids.filter(is_child).filter(|pid| !words(*pid).iter().any(|word| word == "--task-watcher")).collect()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn all_gone(pids: &[i32]) -> Option<()> {
    pids.iter().all(|pid| is_gone(*pid)).then_some(())
}

#[test]
fn result_says_what_was_enforced_and_what_was_left() {
    let sandboxed = Sandboxed::reader();
    let script = "echo x > f; setsid sleep 1000 > /dev/null 2>&1 & until [ -s f ]; do :; done; id -u; pwd";
    let job = sandboxed.run("a", &["setsid", "sleep", "id"], script);
    assert_eq!(job["status"], "completed", "{job}");
    let stdout = job["task_results"][0]["stdout"].as_str().unwrap();
    let (user, scratch) = stdout.trim_end().split_once('\n').unwrap();
    let own = geteuid();
    assert_eq!(user, if own.is_root() { "65534".into() } else { own.as_raw().to_string() });
    assert!(scratch.contains("/agw-scratch-"), "{scratch}");
    let report = &job["task_results"][0]["sandbox"];
    assert_eq!((&report["profile"], &report["strays"]), (&"reader".into(), &1.into()), "{report}");
    assert!(report["scratch_bytes"].as_u64().unwrap() > 0 && report["enforced"]["files_read"].is_string());
    // The control group of this test decides whether the property is missing or enforced.
    let has_memory = |held: &str| report[held]["limits_memory"].is_string();
    assert!(has_memory("missing") != has_memory("enforced") && report["denied"].is_null(), "{report}");
    let next = sandboxed.run("b", &["ls"], "ls -A; echo end");
    assert_eq!(next["task_results"][0]["stdout"], "end\n", "the scratch directory is empty: {next}");
}

#[test]
fn denied_files_are_explained_and_never_opened_by_the_worker() {
    let sandboxed = Sandboxed::reader();
    let secret = sandboxed.lab.file("secret", "kept");
    fs::set_permissions(&secret, Permissions::from_mode(0o666)).unwrap();
    let path = secret.to_str().unwrap();
    let job = sandboxed.run("a", &["cat"], &format!("cat {path}"));
    let denied = &job["task_results"][0]["sandbox"]["denied"];
    assert_eq!(denied, &json!([format!("{path} is not readable in profile reader")]), "{job}");
    for (id, field) in [("stdin", "stdin_file"), ("out", "stdout"), ("err", "stderr"), ("cwd", "cwd")] {
        let place = if field == "cwd" { sandboxed.lab.path().to_str().unwrap() } else { path };
        let task = json!({"task_number": 1, "command": "true", "args": [], field: place});
        sandboxed.submit(id, &[], &json!([task]));
        let job = ended(&sandboxed.lab, &sandboxed.agq, id);
        let result = &job["task_results"][0];
        assert_eq!(result["exit_code"], 126, "{field}: {job}");
        let error = job["error"].as_str().unwrap();
        assert!(error.contains("Permission denied"), "{field}: {error}");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
}

#[test]
fn tasks_stream_into_each_other_and_read_inputs_and_earlier_outputs() {
    let sandboxed = Sandboxed::reader();
    let tasks = json!([
        {"task_number": 1, "command": "sort", "args": ["-n"], "stdin": "3\n1\n2\n"},
        {"task_number": 2, "command": "head", "args": ["-n", "2"], "input_from_task": 1, "stream": true},
        {"task_number": 3, "command": "sed", "args": ["s/^/n/"], "input_from_task": 2},
        {"task_number": 4, "command": "seq", "args": ["300000"]},
    ]);
    sandboxed.submit("a", &[], &tasks);
    let job = ended(&sandboxed.lab, &sandboxed.agq, "a");
    assert_eq!(job["status"], "completed", "{job}");
    assert_eq!(job["task_results"][2]["stdout"], "n1\nn2\n");
    let whole = sandboxed.lab.agx(&sandboxed.agq, &["action", "results", "a", "--raw"]).expect(0).out;
    let numbers: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(whole.ends_with(&numbers), "{} bytes", whole.len());
}

#[test]
fn owner_of_the_worker_decides_what_a_profile_permits() {
    let lab = Lab::new();
    let data = lab.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
    let profile = format!("[profiles.reader]\nwrite = [{data:?}]\nenv = [\"COLOUR\"]\n");
    let file = lab.file("agw.toml", &format!("[sandbox]\nmode = \"untrusted\"\nspares = 0\n{profile}"));
    let sandboxed = Sandboxed::new(lab, &["--config", file.to_str().unwrap()]);
    let task = |variable: &str| {
        let mut task = shell("echo $COLOUR; echo quiet >&2");
        let number = json!({"env": {variable: "red"}, "cwd": data, "stdout": "out", "stderr": "err"});
        task.as_object_mut().unwrap().extend(number.as_object().unwrap().clone());
        json!([task])
    };
    sandboxed.submit("a", &[], &task("COLOUR"));
    let job = ended(&sandboxed.lab, &sandboxed.agq, "a");
    assert_eq!(job["status"], "completed", "{job}");
    assert_eq!(job["task_results"][0]["stdout_bytes"], 4, "the worker sees the size of the file");
    let written = ["out", "err"].map(|name| fs::read_to_string(data.join(name)).unwrap());
    assert_eq!(written, ["red\n", "quiet\n"]);
    sandboxed.submit("b", &[], &task("LD_PRELOAD"));
    let job = ended(&sandboxed.lab, &sandboxed.agq, "b");
    let error = job["error"].as_str().unwrap();
    assert!(error.contains("the profile 'reader' does not permit LD_PRELOAD"), "{error}");
}

#[test]
fn idle_timeout_sees_the_output_of_a_file_that_the_sandbox_opened() {
    let lab = Lab::new();
    let data = lab.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
    let text = format!("[sandbox]\nmode = \"all\"\n[profiles.reader]\nwrite = [{data:?}]\n");
    let file = lab.file("agw.toml", &text);
    let sandboxed = Sandboxed::new(lab, &["--config", file.to_str().unwrap()]);
    let task = |id: &str, script: &str| {
        let args = ["-c", script];
        let task = json!({"task_number": 1, "command": "sh", "args": args, "idle_timeout_secs": 3,
            "cwd": data, "stdout": "out"});
        sandboxed.submit(id, &["sleep"], &json!([task]));
        ended(&sandboxed.lab, &sandboxed.agq, id)
    };
    // Six seconds of output, which pauses for less than the idle timeout.
    let job = task("writes", "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done");
    assert_eq!(job["status"], "completed", "{job}");
    let job = task("is-idle", "echo 1; sleep 1000");
    assert!(job["error"].as_str().unwrap().contains("nothing was written for the idle timeout"), "{job}");
}

#[test]
fn cancel_and_timeout_end_all_processes_of_a_sandboxed_job() {
    let sandboxed = Sandboxed::reader();
    let script = "trap : TERM; setsid sleep 1001 > /dev/null 2>&1 & while :; do sleep 1000; done";
    sandboxed.submit("a", &["sleep", "setsid"], &json!([shell(script)]));
    let tasks = [sandboxed.task("sh"), sandboxed.task("sleep")];
    sandboxed.lab.agx(&sandboxed.agq, &["action", "cancel", "a"]).expect(0);
    eventually("the processes end", || all_gone(&tasks));
    let mut late = shell(script);
    late["timeout_secs"] = 1.into();
    sandboxed.submit("b", &["sleep", "setsid"], &json!([late]));
    let tasks = [sandboxed.task("sh"), sandboxed.task("sleep")];
    let job = ended(&sandboxed.lab, &sandboxed.agq, "b");
    assert_eq!(job["error"], "Task 1 timed out", "{job}");
    assert!(all_gone(&tasks).is_some(), "they end before the job is reported");
}

#[test]
fn killed_supervisor_fails_its_job_and_the_next_job_gets_another_one() {
    let sandboxed = Sandboxed::reader();
    for (id, victim) in [("outer", 0), ("inner", 1)] {
        sandboxed.submit(id, &["sleep"], &json!([shell("sleep 1000")]));
        let task = sandboxed.task("sleep");
        let [outer, inner] = sandboxed.busy_supervisor();
        signal([outer, inner][victim], Signal::KILL);
        let job = ended(&sandboxed.lab, &sandboxed.agq, id);
        let error = job["error"].as_str().unwrap();
        assert!(error.contains("the sandbox supervisor has ended unexpectedly"), "{error}");
        eventually("the processes end", || all_gone(&[task, inner, outer]));
    }
    assert_eq!(sandboxed.run("next", &[], "echo alive")["task_results"][0]["stdout"], "alive\n");
}

#[test]
fn scratch_directories_that_a_cleaner_has_removed_are_created_again() {
    let lab = Lab::new();
    let (spool, removed) = (lab.path().join("spool"), lab.path().join("removed"));
    let sandboxed =
        Sandboxed::new(lab, &["--sandbox", "reader", "--spool-dir", &spool.display().to_string()]);
    let check = |id: &str| {
        let job = sandboxed.run(id, &[], "echo alive > file && read -r word < file && echo $word");
        assert_eq!(job["task_results"][0]["stdout"], "alive\n", "{job}");
    };
    check("before");
    // A removal would fail if a supervisor created its directory at the moment.
    fs::rename(&spool, &removed).unwrap();
    check("after");
}

#[test]
fn stopped_supervisor_does_not_keep_a_cancelled_job() {
    let sandboxed = Sandboxed::reader();
    sandboxed.submit("a", &["sleep"], &json!([shell("sleep 1000")]));
    let task = sandboxed.task("sleep");
    for pid in sandboxed.busy_supervisor() {
        signal(pid, Signal::STOP);
    }
    sandboxed.lab.agx(&sandboxed.agq, &["action", "cancel", "a"]).expect(0);
    eventually("the task ends", || all_gone(&[task]));
    assert_eq!(sandboxed.run("next", &[], "echo alive")["task_results"][0]["stdout"], "alive\n");
}

#[test]
fn sandboxes_end_with_their_worker() {
    for (is_killed, is_stopped) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut sandboxed = Sandboxed::reader();
        sandboxed.submit("a", &["sleep"], &json!([shell("sleep 1000")]));
        sandboxed.task("sleep");
        let processes = sandboxed.processes();
        assert!(processes.len() >= 3, "outer, inner and a task: {processes:?}");
        if is_stopped {
            sandboxed.busy_supervisor().into_iter().for_each(|pid| signal(pid, Signal::STOP));
        }
        if is_killed {
            sandboxed.agw.kill();
        } else {
            sandboxed.agw.terminate();
            eventually("it drains", || sandboxed.agw.log().contains("draining").then_some(()));
            sandboxed.agw.terminate();
            assert_eq!(sandboxed.agw.wait().code(), Some(4));
        }
        eventually("the processes end", || all_gone(&processes));
    }
}

#[test]
fn programs_that_agq_or_the_worker_asks_for_run_in_the_sandbox_too() {
    let lab = Lab::new();
    let secret = lab.file("secret", "the-secret");
    let bin = lab.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let unit = bin.join("agx-spy");
    fs::write(
        &unit,
        format!("#!/bin/sh\nread line < {} || line=nothing; echo reads $line\n", secret.display()),
    )
    .unwrap();
    for path in [&bin, &unit] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let lab = lab.with_variable("PATH", &format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let sandboxed = Sandboxed::new(lab, &["--sandbox", "reader"]);
    let mut raw = RawConnection::open(&sandboxed.lab, &sandboxed.agq);
    assert_eq!(raw.ask("CAPABILITY.SEARCH reads"), "*1", "{}", sandboxed.agw.log());
    let found: Value = serde_json::from_str(&raw.bulk()).unwrap();
    assert_eq!((&found["name"], &found["description"]), (&"agx-spy".into(), &"reads nothing".into()));
    let test = json!({"command": "cat", "args": [secret]});
    raw.send(&format!("WORKER.VERIFY cat '{test}'\n"));
    let answer = raw.line();
    assert!(answer.contains("Permission denied"), "{answer}");
}

#[test]
fn profile_without_needs_is_not_enforced_where_no_supervisor_can_start() {
    let lab = Lab::on_files();
    let file = lab.file("agw.toml", "[sandbox]\nmode = \"all\"\n[profiles.reader]\nneeds = []\n");
    let mut agw = lab.command("agw");
    agw.arg("--config").arg(file).env("AGW_SANDBOX_WITHOUT", "namespaces,landlock");
    let refused = Ran::from(agw.output().unwrap()).expect(2);
    assert!(
        refused.err.contains("cannot enforce the sandbox profile 'reader': files_read,"),
        "{}",
        refused.err
    );
}
