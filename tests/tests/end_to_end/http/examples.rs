//! The clients in examples/ojs, in three languages: each one runs the jobs that the others submit.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};

use super::client::Http;

const KINDS: [(&str, &str); 2] = [("python3", "py"), ("node", "mjs")];

/// Returns true if `program` is installed. Prints a note if `program` is missing.
fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success());
    if !is_there {
        println!("SKIPPED: {program} is not installed here");
    }
    is_there
}

/// Returns a command for a program in examples/ojs, with the address and key of agq.
fn example(lab: &Lab, agq: &Agq, program: &str, name: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(Lab::repository("examples/ojs").join(name))
        .env("AGQ_URL", format!("http://{}", agq.http_address()))
        .env("AGQ_SESSION_KEY", lab.key())
        .current_dir(lab.path())
        .stdin(Stdio::null());
    command
}

/// A worker of the examples, which the drop kills.
struct ExampleWorker {
    child: Child,
    output: PathBuf,
}

impl ExampleWorker {
    fn start(lab: &Lab, agq: &Agq, (program, suffix): (&str, &str), id: &str) -> Self {
        let output = lab.path().join(format!("{id}.out"));
        let out = File::create(&output).unwrap();
        let err = out.try_clone().unwrap();
        let mut command = example(lab, agq, program, &format!("worker.{suffix}"));
        command.args(["--worker-id", id, "--concurrency", "1"]);
        let worker = Self { child: command.stdout(out).stderr(err).spawn().unwrap(), output };
        eventually("the worker is registered", || worker.has_printed("registered").then_some(()));
        worker
    }

    fn has_printed(&self, words: &str) -> bool {
        read(&self.output).lines().any(|line| line.starts_with(words))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl Drop for ExampleWorker {
    fn drop(&mut self) {
        // The worker may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn job_of_one_language_runs_in_another_and_a_sigterm_drains() {
    for (own, other) in [(KINDS[0], KINDS[1]), (KINDS[1], KINDS[0])] {
        if !has(own.0) || !has(other.0) {
            continue;
        }
        let lab = Lab::new();
        let agq = lab.agq(&[]);
        let mut worker = ExampleWorker::start(&lab, &agq, own, "w");
        let mut produce = example(&lab, &agq, other.0, &format!("producer.{}", other.1));
        produce.args(["example.wordcount", "\"to be or not to be\"", "--count", "3", "--wait"]);
        let ran = Ran::from(produce.output().unwrap()).expect(0);
        assert_eq!(ran.out.matches(" completed ").count(), 3, "{}", ran.out);
        assert!(ran.out.contains("6"), "the words were counted: {}", ran.out);
        // The worker finishes its current job, and starts no other.
        let http = Http::of(&lab, &agq);
        let slow = http.enqueue(r#"{"type":"example.sleep","args":[1]}"#);
        eventually("it has begun", || worker.has_printed(&format!("started {slow}")).then_some(()));
        let next = http.enqueue(r#"{"type":"example.echo","args":[1]}"#);
        worker.signal(Signal::TERM);
        assert_eq!(worker.child.wait().unwrap().code(), Some(0), "{}", read(&worker.output));
        assert_eq!((http.state(&slow).as_str(), http.state(&next).as_str()), ("completed", "available"));
        assert_eq!(http.ask("GET", "/admin/workers/w", "").status, 404, "it has deregistered");
    }
}

#[test]
fn jobs_of_a_killed_worker_go_to_the_other() {
    if !has(KINDS[0].0) {
        return;
    }
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let id = http.enqueue(r#"{"type":"example.sleep","args":[2]}"#);
    let killed = ExampleWorker::start(&lab, &agq, KINDS[0], "killed");
    eventually("it has begun", || killed.has_printed(&format!("started {id}")).then_some(()));
    drop(killed);
    let _other = ExampleWorker::start(&lab, &agq, KINDS[0], "other");
    let job = eventually("the other one has done it", || {
        let job = http.get(&format!("/jobs/{id}"))["job"].clone();
        (job["state"] == "completed").then_some(job)
    });
    assert_eq!((&job["worker_id"], &job["attempt"]), (&"other".into(), &2.into()));
    assert_eq!(job["errors"][0]["type"], "worker_death");
}

#[test]
fn tour_with_curl_goes_through() {
    if !has("curl") {
        return;
    }
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let ran = Ran::from(example(&lab, &agq, "sh", "tour.sh").output().unwrap());
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
}
