//! Outputs that agq has lost or cannot read: each is the failure of its own job alone.

use std::path::PathBuf;

use e2e::{Agq, Lab, Ran, eventually};
use rustix::process::Signal;

use crate::{
    outputs::blobs,
    running::RunningCommand,
    support::{action, map, numbered, plan},
};

/// Number of lines of each output, which is so large that it is in a file of agq.
const LINES: usize = 100_000;

/// Returns a shell script that prints its argument in many lines.
fn printing() -> String {
    format!("yes $0 | head -n {LINES}")
}

/// Returns the file of the output whose lines are `line`.
fn file_of(lab: &Lab, line: &str) -> PathBuf {
    let is_it = |file: &PathBuf| std::fs::read(file).unwrap().starts_with(line.as_bytes());
    blobs(lab).into_iter().find(is_it).unwrap()
}

/// Runs agx on action `a`, and checks that it reports the output of input 1 as damaged.
fn printed(lab: &Lab, agq: &Agq, args: &[&str]) -> String {
    let Ran { out, err, .. } = lab.agx(agq, args).expect(1);
    assert!(err.contains("(input 1): ") && err.contains("is damaged"), "{err}");
    assert!(err.contains("outputs that could not be fetched: 1"), "{err}");
    out
}

#[test]
fn damaged_output_is_reported_and_the_others_are_printed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &printing(), "{{input.n}}"]));
    lab.submit_action(&agq, "p", "a", &numbered(3));
    eventually("all jobs end", || (action(&lab, &agq, "a")["completed"] == 3).then_some(()));
    let file = file_of(&lab, "1\n");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let [first, last] = ["0\n", "2\n"].map(|line| line.repeat(LINES));
    printed(&lab, &agq, &["action", "results", "a", "--output-dir", "out"]);
    let written = |name: &str| std::fs::read_to_string(lab.path().join("out").join(name));
    assert!(written("0.out").unwrap() == first && written("2.out").unwrap() == last);
    assert!(written("1.out").is_err());
    let results = printed(&lab, &agq, &["action", "results", "a", "--ordered"]);
    assert!(results == first + &last);
    let logs = printed(&lab, &agq, &["logs", "a"]);
    let lines = |line: &str| logs.lines().filter(|&logged| logged == line).count();
    assert_eq!([lines("[0] 0"), lines("[2] 2"), logs.lines().count()], [LINES, LINES, 2 * LINES]);
}

#[test]
fn map_with_live_output_goes_on_if_the_output_of_one_job_is_missing() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    let script = format!("test $0 != 0 || until test -e go; do sleep 0.02; done; {}", printing());
    let words = ["--lb", "--joblog", "log", "--", "sh", "-c", &script, "{}", ":::", "0", "1", "2"];
    let mut command = map(&lab, &words);
    let map = RunningCommand::start(command.env("AGQ_ADDR", agq.address()));
    let action = || lab.agx(&agq, &["--json", "history"]).expect(0).data()[0].clone();
    eventually("all jobs are submitted", || (action()["total_jobs"] == 3).then_some(()));
    map.signal(Signal::STOP);
    lab.file("go", "");
    eventually("all jobs end", || (action()["completed"] == 3).then_some(()));
    std::fs::remove_file(file_of(&lab, "1\n")).unwrap();
    // From now on, agq alone has the outputs.
    drop(agw);
    map.signal(Signal::CONT);
    let (code, out, err) = map.end();
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("agx: job 2 (1): "), "{err}");
    let lines = |line: &str| out.lines().filter(|&printed| printed == line).count();
    assert_eq!([lines("0"), lines("2"), out.lines().count()], [LINES, LINES, 2 * LINES]);
    let log = std::fs::read_to_string(lab.path().join("log")).unwrap();
    let exit_of = |seq: &str| log.lines().find(|line| line.starts_with(seq))?.split('\t').nth(6);
    assert_eq!(["1\t", "2\t", "3\t"].map(exit_of), [Some("0"), Some("-1"), Some("0")], "{log}");
}
