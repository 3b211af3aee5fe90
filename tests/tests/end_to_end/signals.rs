//! Signals to a worker, SIGHUP to a program that starts, and the descriptions of agentic units.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use e2e::{Agq, Agw, Lab, eventually};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
};

use crate::support::{RawConnection, action, ended, only_job, plan};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Returns a script that records its start, and runs until the file `go` exists.
fn waiting(lab: &Lab) -> String {
    let dir = lab.path().display();
    format!("echo x >> {dir}/started; until [ -e {dir}/go ]; do sleep 0.02; done")
}

fn has_started(lab: &Lab) -> Option<()> {
    lab.path().join("started").exists().then_some(())
}

/// Starts a worker whose PATH begins with the directory `bin` of the lab.
fn equipped(lab: &Lab, agq: &Agq) -> Agw {
    let path = format!("{}:{}", lab.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = lab.command("agw");
    command.env("PATH", path).env("AGQ_ADDR", agq.address());
    lab.agw_by("w1", command)
}

/// Puts a program into the directory `bin` of the lab.
fn program(lab: &Lab, name: &str, script: &str) {
    let bin = lab.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    // The file is renamed into place, because a worker may search PATH at any time.
    let (new, place) = (lab.file("new", &format!("#!/bin/sh\n{script}\n")), bin.join(name));
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, place).unwrap();
}

fn wait_for_log(agw: &Agw, text: &str) {
    eventually(text, || agw.log().contains(text).then_some(()));
}

#[test]
fn quiet_worker_finishes_its_jobs_and_resumes_on_request() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", &waiting(&lab)]));
    lab.submit_plan(&agq, &plan("short", "true", &[]));
    lab.submit_action(&agq, "wait", "a", "[{}]");
    eventually("the job starts", || has_started(&lab));
    signal(agw.pid(), Signal::TSTP);
    wait_for_log(&agw, "quiet: no more jobs are claimed");
    let state = || lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data()[0]["state"].clone();
    eventually("agq shows it", || (state() == "quiet").then_some(()));
    lab.submit_action(&agq, "short", "b", "[{}]");
    lab.file("go", "");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed", "agw itself does not stop");
    assert_eq!(only_job(&lab, &agq, "b")["status"], "pending");
    signal(agw.pid(), Signal::CONT);
    wait_for_log(&agw, "resumed: jobs are claimed again");
    eventually("agq shows that too", || (state() == "active").then_some(()));
    assert_eq!(ended(&lab, &agq, "b")["status"], "completed");
}

#[test]
fn worker_that_is_hung_up_finds_new_programs_and_keeps_its_jobs() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    program(&lab, "agx-old", "true");
    let worker = equipped(&lab, &agq);
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", &waiting(&lab)]));
    lab.submit_plan(&agq, &plan("new", "agx-new", &[]));
    lab.submit_action(&agq, "wait", "a", "[{}]");
    lab.submit_action(&agq, "new", "b", "[{}]");
    eventually("the job starts", || has_started(&lab));
    program(&lab, "agx-new", "echo new");
    signal(worker.pid(), Signal::HUP);
    let job = ended(&lab, &agq, "b");
    assert_eq!((job["status"].as_str(), job["stdout"].as_str()), (Some("completed"), Some("new\n")));
    assert_eq!(action(&lab, &agq, "a")["running"], 1, "{}", worker.log());
    lab.file("go", "");
    let job = ended(&lab, &agq, "a");
    assert_eq!((job["status"].as_str(), job["attempt"].as_u64()), (Some("completed"), Some(1)));
    assert_eq!(fs::read_to_string(lab.path().join("started")).unwrap(), "x\n", "it ran once");
}

#[test]
fn worker_that_has_to_end_names_the_jobs_that_it_gives_up_and_unregisters() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", &waiting(&lab)]));
    lab.submit_action(&agq, "wait", "a", "[{}]");
    let mut agw = lab.agw(&agq, "w1", &["--grace", "1"]);
    eventually("the job starts", || has_started(&lab));
    let job = only_job(&lab, &agq, "a");
    agw.terminate();
    assert_eq!(agw.wait().code(), Some(4));
    let log = agw.log();
    let warning = log.lines().find(|line| line.contains("WARN") && line.contains("unfinished"));
    assert!(warning.is_some_and(|line| line.contains(job["job_id"].as_str().unwrap())), "{log}");
    let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!(workers.as_array().map(Vec::len), Some(0), "it unregistered");
    assert_eq!(only_job(&lab, &agq, "a")["status"], "pending");
}

#[test]
fn agentic_unit_is_found_by_what_it_says_of_itself() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    program(&lab, "agx-ocr", "test \"$1\" = --describe && echo 'Reads text from scanned images.'");
    program(&lab, "agx-mute", "exit 1");
    let worker = equipped(&lab, &agq);
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(raw.ask("CAPABILITY.SEARCH scanned"), "*1", "{}", worker.log());
    let found: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
    assert_eq!((found["name"].as_str(), found["workers"][0].as_str()), (Some("agx-ocr"), Some("w1")));
    assert_eq!(found["description"], "Reads text from scanned images.");
    assert_eq!(raw.ask("CAPABILITY.SEARCH weather"), "*0");
}

/// Makes a FIFO in the lab. A program that opens the FIFO for reading waits for a writer.
fn fifo(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.path().join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Sends SIGHUP to a program that reads the FIFO `path` during its start, and lets the program read
/// `text`. Then `path` is a file with this text.
fn hang_up_while_it_starts(program: &Child, lab: &Lab, path: &Path, text: &str) {
    let mut nonblocking = File::options();
    nonblocking.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut writer = eventually("the program reads the FIFO", || nonblocking.open(path).ok());
    signal(program.id(), Signal::HUP);
    fs::rename(lab.file("next", text), path).unwrap();
    writer.write_all(text.as_bytes()).unwrap();
}

#[test]
fn agq_that_is_hung_up_while_it_starts_reloads_after_the_start() {
    let lab = Lab::on_files();
    let policy = fifo(&lab, "policy.toml");
    let log = lab.path().join("agq.log");
    let mut command = lab.command("agq");
    command.args(["--port", "0", "--http", "off", "--data-dir", "data", "--policy", "policy.toml"]);
    command.arg("--end-with-stdin").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agq = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    hang_up_while_it_starts(&agq, &lab, &policy, "version = 1");
    let mut line = String::new();
    BufReader::new(agq.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listens on"), "{line}{}", fs::read_to_string(&log).unwrap());
    eventually("the reload", || {
        fs::read_to_string(&log).unwrap().contains("SIGHUP, policy: read again").then_some(())
    });
    drop(agq.stdin.take());
    assert!(agq.wait().unwrap().success());
}

#[test]
fn worker_that_is_hung_up_while_it_starts_registers() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let config = fifo(&lab, "agw.toml");
    let log = lab.path().join("w1.log");
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", agq.address()).args(["--worker-id", "w1", "--config", "agw.toml"]);
    command.arg("--end-with-stdin").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut agw = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    hang_up_while_it_starts(&agw, &lab, &config, "");
    for words in ["is registered", "searching PATH again"] {
        eventually(words, || fs::read_to_string(&log).unwrap().contains(words).then_some(()));
    }
    drop(agw.stdin.take());
    agw.wait().unwrap();
}
