//! Signals to an `agx map` with a joblog on a cluster, and `--resume`.

use std::process::{Child, Stdio};

use e2e::{Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::map;

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn text(lab: &Lab, file: &str) -> String {
    std::fs::read_to_string(lab.path().join(file)).unwrap()
}

fn numbers(count: u32) -> String {
    (1..=count).map(|number| format!("{number}\n")).collect()
}

/// Runs a map over 30 inputs, whose first job runs until the file `go` exists, interrupts it by
/// `first`, and resumes it after `then`. Returns the stderr of the interrupted map. The file `ran`
/// has a line for each job that started.
fn interrupted_and_resumed(lab: &Lab, first: Signal, then: impl Fn(&Child)) -> String {
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    lab.file("inputs", &numbers(30));
    let script = "echo $0 >> ran; test $0 != 1 || until test -e go; do sleep 0.02; done";
    let started = |resume: &[&str]| {
        let own = ["-a", "inputs", "--joblog", "log", "--", "sh", "-c", script];
        let mut command = map(lab, &[resume, &own].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("AGQ_ADDR", agq.address()).spawn().unwrap()
    };
    let child = started(&[]);
    eventually("the first job runs", || lab.path().join("ran").exists().then_some(()));
    signal(&child, first);
    let action = || lab.agx(&agq, &["--json", "history"]).expect(0).data()[0].clone();
    eventually("no other job waits", || (action()["cancelled"] == 29).then_some(()));
    then(&child);
    let interrupted = Ran::from(child.wait_with_output().unwrap()).expect(130);
    lab.file("go", "");
    Ran::from(started(&["--resume"]).wait_with_output().unwrap()).expect(0);
    drop(agw);
    assert_eq!(text(lab, "log").lines().count(), 31, "a heading and a line for each job");
    interrupted.err
}

#[test]
fn interrupted_map_on_a_cluster_logs_the_running_jobs_and_resumes_the_others() {
    for first in [Signal::INT, Signal::HUP] {
        let lab = Lab::new();
        let stderr = interrupted_and_resumed(&lab, first, |_| drop(lab.file("go", "")));
        assert!(stderr.contains("agx: no further job starts; agx waits for the running jobs"), "{stderr}");
        assert!(stderr.contains("agx: 29 jobs were cancelled; the same command with --resume"), "{stderr}");
        assert_eq!(text(&lab, "ran"), numbers(30), "each ran once");
    }
}

#[test]
fn second_signal_cancels_the_running_jobs_of_a_map_on_a_cluster() {
    let lab = Lab::new();
    interrupted_and_resumed(&lab, Signal::INT, |child| signal(child, Signal::INT));
    assert_eq!(text(&lab, "ran"), format!("1\n{}", numbers(30)), "the first one ran again");
}
