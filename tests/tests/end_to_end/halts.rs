//! Halts of maps: agq decides on them, without the help of the agx that has submitted the action.

use std::{io::Write, process::Stdio};

use e2e::{Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::map;

/// Job 1 fails after the file `go` exists; all others wait for the file `end`.
const PIPELINE: &str = "sh -c 'if test $0 = 1; then until test -e go; do sleep 0.02; done; exit 1; fi; \
     until test -e end; do sleep 0.02; done' {}";

#[test]
fn agq_halts_an_action_while_agx_is_stopped() {
    for when in ["soon", "now"] {
        let lab = Lab::new();
        let agq = lab.agq(&[]);
        let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "2"]);
        let mut command = lab.command("agx");
        command.args(["map", "--halt", &format!("{when},fail=1"), "--", PIPELINE]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.env("AGQ_ADDR", agq.address()).spawn().unwrap();
        let numbers: String = (1..=40).map(|number| format!("{number}\n")).collect();
        child.stdin.take().unwrap().write_all(numbers.as_bytes()).unwrap();
        let status = || {
            let actions = lab.agx(&agq, &["--json", "history"]).expect(0).data();
            actions.as_array().unwrap().first().cloned()
        };
        let is_begun = |action: &serde_json::Value| action["total_jobs"] == 40 && action["started"] == 2;
        eventually("two jobs run", || status().filter(is_begun));
        let signal = |signal| kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        lab.file("go", "");
        if when == "soon" {
            // Running jobs continue, and no other job starts.
            let is_left = |action: &serde_json::Value| {
                action["pending"] == 0 && action["started"].as_u64() == action["running"].as_u64()
            };
            eventually("only what has begun is left", || status().filter(is_left));
            lab.file("end", "");
        }
        let ended =
            eventually("all have ended", || status().filter(|action| !action["completed_jobs_at"].is_null()));
        assert_eq!(ended["halted"]["reason"], format!("{when},fail=1: 1 of 40 jobs failed"), "{ended}");
        let completed = ended["completed"].as_u64().unwrap();
        // The slot of job 1 may have started another job before the worker received the halt.
        assert!(if when == "now" { completed == 0 } else { (1..=2).contains(&completed) }, "{ended}");
        let text = lab.agx(&agq, &["action", "status", ended["action_id"].as_str().unwrap()]).expect(0).out;
        assert!(text.contains(&format!("by {when},fail=1: 1 of 40 jobs failed")), "{text}");
        signal(Signal::CONT);
        let ran = Ran::from(child.wait_with_output().unwrap()).expect(1);
        let says = format!("1 of 40 jobs failed; --halt ended it, {} were cancelled", 39 - completed);
        assert!(ran.err.contains(&says), "{}", ran.err);
        drop(agw);
    }
}

#[test]
fn endless_map_ends_with_the_halt_of_its_action() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "2"]);
    let mut command = lab.command("agx");
    command.args(["map", "--halt", "soon,done=3", "--", "true"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env("AGQ_ADDR", agq.address()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while stdin.write_all(b"y\n").is_ok() {});
    Ran::from(child.wait_with_output().unwrap()).expect(0);
    writer.join().unwrap();
    drop(agw);
}

#[test]
fn halt_percentage_counts_all_inputs_and_not_those_submitted_so_far() {
    let lab = Lab::on_files();
    // The inputs are many more than agx submits ahead.
    lab.file("inputs", &(1..=30_000).map(|number| format!("{number}\n")).collect::<String>());
    for halt in ["soon,done=1%", "soon,success=1%"] {
        let args = ["-j", "2", "-a", "inputs", "--halt", halt, "--", "echo"];
        let halted = Ran::from(map(&lab, &args).output().unwrap()).expect(0);
        let ended = halted.out.lines().count();
        assert!((300..30_000).contains(&ended), "{halt}: {ended} jobs ended");
    }
}
