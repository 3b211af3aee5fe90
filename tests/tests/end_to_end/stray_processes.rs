//! Processes that leave the process group of their task end with their job, and all processes of
//! tasks end with their worker.

use std::{
    fs,
    io::{self, Read},
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Agq, Agw, Lab, Ran, eventually, is_gone};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::{ended, plan, process_of};

/// Ways to start a process that outlives its parent. The last way leaves no mark of the job.
const WAYS: [&str; 5] = ["setsid", "setsid -f", "setsid nohup", "env -i setsid", "env -i setsid -f"];

/// Returns a script that starts processes in all [`WAYS`], and writes their ids to files that begin
/// with `name`.
fn leaves_behind(name: &str) -> String {
    let mut script = String::new();
    for (number, way) in WAYS.iter().enumerate() {
        let pid = format!("{name}.{number}");
        script += &format!("{way} sh -c 'trap : TERM HUP; echo $$ > {pid}; exec sleep 1000' &\n");
    }
    // The shell of setsid starts its child again without a mark of the job when the child ends.
    let pid = format!("{name}.{}", WAYS.len());
    script += &format!(
        "setsid sh -c 'while :; do env -i sh -c \"echo \\$\\$ > {pid}; exec sleep 1000\"; done' &\n\
         nohup sh -c 'echo $$ > {name}.nohup; exec sleep 1000' &\n"
    );
    for number in 0..=WAYS.len() {
        script += &format!("until [ -s {name}.{number} ]; do sleep 0.02; done\n");
    }
    script + &format!("until [ -s {name}.nohup ]; do sleep 0.02; done\n")
}

/// Returns the process ids in the files that begin with `name`.
fn pids(lab: &Lab, name: &str) -> Vec<i32> {
    let numbers = (0..=WAYS.len()).map(|number| number.to_string());
    let files = numbers.chain(["nohup".to_owned()]).map(|end| lab.path().join(format!("{name}.{end}")));
    files.map(|file| pid_in(&file)).collect()
}

fn pid_in(file: &Path) -> i32 {
    eventually("the process runs", || fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok())
}

fn runs(pid: i32) -> bool {
    !is_gone(pid)
}

fn submit(lab: &Lab, agq: &Agq, id: &str, script: &str, timeout: u32) {
    let args = serde_json::to_string(&["-c", script]).unwrap();
    let task = format!(r#"{{"task_number":1,"command":"sh","args":{args},"timeout_secs":{timeout}}}"#);
    lab.submit_plan(agq, &format!(r#"{{"plan_id":"{id}","max_retries":0,"tasks":[{task}]}}"#));
    lab.submit_action(agq, id, id, "[{}]");
}

fn worker(lab: &Lab, agq: &Agq, args: &[&str]) -> Agw {
    lab.agw(agq, "w1", &[&["--kill-grace", "1"], args].concat())
}

#[test]
fn escaped_processes_end_before_the_end_of_their_job_is_reported() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, &["--max-concurrent-jobs", "1"]);
    for (id, after, status) in [("end", "true", "completed"), ("fail", "exit 3", "failed")] {
        submit(&lab, &agq, id, &format!("{}{after}", leaves_behind(id)), 600);
        assert_eq!(ended(&lab, &agq, id)["status"], status);
        assert_eq!(pids(&lab, id).into_iter().filter(|pid| runs(*pid)).count(), 0, "{id}");
    }
    submit(&lab, &agq, "late", &format!("{}exec sleep 1000", leaves_behind("late")), 10);
    let job = ended(&lab, &agq, "late");
    assert_eq!(job["error"], "Task 1 timed out", "{job}");
    assert_eq!(pids(&lab, "late").into_iter().filter(|pid| runs(*pid)).count(), 0);
}

#[test]
fn escaped_processes_end_with_a_cancelled_job() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, &["--max-concurrent-jobs", "1"]);
    submit(&lab, &agq, "a", &format!("{}exec sleep 1000", leaves_behind("a")), 600);
    let pids = pids(&lab, "a");
    lab.agx(&agq, &["action", "cancel", "a"]).expect(0);
    for pid in pids {
        eventually("it is ended", || is_gone(pid).then_some(()));
    }
}

#[test]
fn escaped_processes_end_before_their_worker_does() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut agw = worker(&lab, &agq, &[]);
    submit(&lab, &agq, "a", &format!("{}exec sleep 1000", leaves_behind("a")), 600);
    let pids = pids(&lab, "a");
    agw.terminate();
    eventually("it drains", || agw.log().contains("draining").then_some(()));
    agw.terminate();
    assert_eq!(agw.wait().code(), Some(4));
    assert_eq!(pids.into_iter().filter(|pid| runs(*pid)).count(), 0);
}

#[test]
fn later_tasks_of_a_job_use_a_daemon_of_an_earlier_task() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, &[]);
    let daemon = r"setsid -f sh -c 'echo $$ > pid; exec sleep 1000'; until [ -s pid ]; do sleep 0.02; done";
    let daemon = serde_json::to_string(daemon).unwrap();
    lab.submit_plan(
        &agq,
        &format!(
            r#"{{"plan_id":"p","max_retries":0,"tasks":[
                {{"task_number":1,"command":"sh","args":["-c",{daemon}]}},
                {{"task_number":2,"command":"sh","args":["-c","kill -0 $(cat pid)"]}}]}}"#
        ),
    );
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["status"], "completed", "{job}");
    assert!(!runs(pid_in(&lab.path().join("pid"))));
}

#[test]
fn end_of_a_job_spares_the_processes_of_a_running_job() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, &["--max-concurrent-jobs", "2"]);
    let waits =
        "until [ -e go ]; do sleep 0.02; done\nfor file in long.*; do kill -0 $(cat $file) || exit 9; done";
    submit(&lab, &agq, "long", &format!("{}{waits}", leaves_behind("long")), 600);
    let of_long = pids(&lab, "long");
    for id in ["one", "two"] {
        submit(&lab, &agq, id, &leaves_behind(id), 600);
        assert_eq!(ended(&lab, &agq, id)["status"], "completed");
        // A process without a mark may belong to the other job.
        let marked = pids(&lab, id)[..3].iter().filter(|pid| runs(**pid)).count();
        assert_eq!(marked, 0);
        assert!(of_long.iter().all(|pid| runs(*pid)));
    }
    lab.file("go", "");
    let job = ended(&lab, &agq, "long");
    assert_eq!(job["status"], "completed", "{job}");
    let all = ["long", "one", "two"].map(|id| pids(&lab, id)).concat();
    assert_eq!(all.into_iter().filter(|pid| runs(*pid)).count(), 0);
}

#[test]
fn end_of_a_job_spares_processes_that_its_worker_did_not_start() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    // The shell becomes the worker, so the worker has a child from the beginning.
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $! > own; exec \"$0\" \"$@\""]).arg(lab.bin().join("agw"));
    command.current_dir(lab.path()).env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", lab.key());
    let _agw = lab.agw_by("w1", command);
    let own = pid_in(&lab.path().join("own"));
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &leaves_behind("a")]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
    assert_eq!(pids(&lab, "a").into_iter().filter(|pid| runs(*pid)).count(), 0);
    let own = Pid::from_raw(own).unwrap();
    assert!(test_kill_process(own).is_ok());
    kill_process(own, Signal::KILL).unwrap();
}

/// Returns a script that starts a daemon that starts another one and ends, and so on.
fn starts_a_chain(lab: &Lab) -> String {
    let (chain, hops) = (lab.path().join("chain.sh"), lab.path().join("hops"));
    let (chain, hops) = (chain.display(), hops.display());
    let link = format!("[ $1 -lt 5000 ] && echo >> {hops} && exec setsid -f sh {chain} $(($1 + 1))");
    lab.file("chain.sh", &link);
    format!("sh {chain} 0; until [ $(wc -l < {hops}) -gt 20 ]; do sleep 0.02; done")
}

fn chain_runs(lab: &Lab) -> bool {
    ["sh", "setsid"].iter().any(|name| process_of(name, lab.path()).is_some_and(runs))
}

#[test]
fn chain_of_daemons_ends_before_the_end_of_its_job_is_reported() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, &[]);
    submit(&lab, &agq, "a", &starts_a_chain(&lab), 600);
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["status"], "completed", "{job}");
    assert!(!chain_runs(&lab));
}

/// Returns the watcher of the worker `agw`.
fn watcher_of(agw: i32) -> i32 {
    let is_child = |stat: &str| {
        let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
        after_name.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(agw)
    };
    eventually("the watcher runs", || {
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let command = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            (command.contains("--task-watcher") && is_child(&stat) && runs(pid)).then_some(pid)
        })
    })
}

/// Waits until the watcher `pid` ignores signals.
fn wait_until_ready(pid: i32) {
    let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    eventually("it is ready", || (name() == "task-watcher\n").then_some(()));
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn tasks_end_when_their_worker_is_killed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut agw = worker(&lab, &agq, &[]);
    let script = format!("{}echo $$ > main\nexec sleep 1000", leaves_behind("a"));
    submit(&lab, &agq, "a", &script, 600);
    let pids = [pids(&lab, "a"), vec![pid_in(&lab.path().join("main"))]].concat();
    let first = watcher_of(agw.pid().cast_signed());
    signal(first, Signal::KILL);
    let second = eventually("another one runs", || {
        Some(watcher_of(agw.pid().cast_signed())).filter(|watcher| *watcher != first)
    });
    wait_until_ready(second);
    signal(second, Signal::TERM);
    agw.kill();
    for pid in pids.into_iter().chain([second]) {
        eventually("it is ended", || is_gone(pid).then_some(()));
    }
}

#[test]
fn chain_of_daemons_ends_when_its_worker_is_killed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut agw = worker(&lab, &agq, &[]);
    let watcher = watcher_of(agw.pid().cast_signed());
    let script = format!("{}; echo $$ > main; exec sleep 1000", starts_a_chain(&lab));
    submit(&lab, &agq, "a", &script, 600);
    pid_in(&lab.path().join("main"));
    agw.kill();
    eventually("the watcher has ended", || is_gone(watcher).then_some(()));
    assert!(!chain_runs(&lab));
}

#[test]
fn worker_leaves_no_watcher_at_its_end() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut agw = worker(&lab, &agq, &[]);
    let watcher = watcher_of(agw.pid().cast_signed());
    agw.terminate();
    assert_eq!(agw.wait().code(), Some(0));
    assert!(is_gone(watcher));
}

#[test]
fn map_leaves_no_watcher_at_its_end() {
    let lab = Lab::on_files();
    let tmp = lab.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let script = "touch runs; until [ -e go ]; do sleep 0.02; done; echo done";
    let mut map = lab.command("agx");
    map.args(["map", "--", "sh", "-c", script, ":::", "1"]).env("TMPDIR", &tmp);
    let map = map.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the job runs", || lab.path().join("runs").exists().then_some(()));
    let watcher = watcher_of(process_of("agw", &tmp).unwrap());
    lab.file("go", "");
    // The output ends only if no process holds it open.
    assert_eq!(Ran::from(map.wait_with_output().unwrap()).expect(0).out, "done\n");
    assert!(is_gone(watcher));
}

#[test]
fn watcher_holds_nothing_of_its_worker_open() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.file("open", "");
    let mut command = Command::new("sh");
    command.args(["-c", "exec 7< open; exec \"$0\" \"$@\""]).arg(lab.bin().join("agw"));
    command
        .args(["--worker-id", "w1", "--inherit-files"])
        .env("AGQ_ADDR", agq.address())
        .env("AGQ_SESSION_KEY", lab.key());
    command.current_dir(lab.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut agw = command.spawn().unwrap();
    let watcher = watcher_of(agw.id().cast_signed());
    let open = || {
        let links = fs::read_dir(format!("/proc/{watcher}/fd"))?.flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        let mut open: Vec<String> = targets.map(|target| target.display().to_string()).collect();
        open.sort();
        io::Result::Ok(open)
    };
    // The watcher opens the pidfd of its worker last.
    let has_pidfd = |open: &Vec<String>| open.iter().any(|target| target.contains("pidfd"));
    let open = eventually("it waits", || open().ok().filter(has_pidfd));
    assert_eq!(open[..3], ["/dev/null", "/dev/null", "anon_inode:[pidfd]"], "{open:?}");
    assert!(open.len() == 4 && open[3].starts_with("pipe:"), "{open:?}");
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
    signal(watcher, Signal::STOP);
    agw.kill().unwrap();
    let mut output = String::new();
    agw.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    agw.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.contains("is registered"), "{output}");
    agw.wait().unwrap();
    signal(watcher, Signal::CONT);
    eventually("it ends", || is_gone(watcher).then_some(()));
}
