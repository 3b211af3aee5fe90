//! The joblog of `agx map`: a run continues the joblog, and replaces no other file.

use std::{fs::File, process::Stdio};

use e2e::{Lab, Ran};

use crate::support::map;

fn text(lab: &Lab, file: &str) -> String {
    std::fs::read_to_string(lab.path().join(file)).unwrap()
}

#[test]
fn joblog_goes_on_behind_a_line_that_was_cut_off() {
    let lab = Lab::on_files();
    let run = |log: &str, resume: &[&str], inputs: &[&str]| {
        let args = [&["-k", "--joblog", log], resume, &["--", "echo", ":::"], inputs].concat();
        Ran::from(map(&lab, &args).output().unwrap()).expect(0).out
    };
    run("log", &[], &["a", "b", "c"]);
    let whole = text(&lab, "log");
    lab.file("log", &whole[..whole.len() - 4]);
    assert_eq!(run("log", &["--resume"], &["a", "b", "c", "d"]), "c\nd\n");
    assert_eq!(run("log", &["--resume"], &["a", "b", "c", "d"]), "");
    assert_eq!(run("+log", &[], &["e"]), "e\n");
    assert_eq!(text(&lab, "log").lines().count(), 1 + 4 + 1);
    assert_eq!(text(&lab, "log").matches("Seq").count(), 1);
}

#[test]
fn joblog_does_not_replace_other_files_or_the_inputs() {
    let lab = Lab::on_files();
    lab.file("list", "a\nb\n");
    let run = |args: &[&str]| Ran::from(map(&lab, args).stdin(Stdio::null()).output().unwrap()).expect(2);
    let other = run(&["--joblog", "list", "--", "echo", ":::", "x"]);
    assert!(other.err.contains("list: line 1 is not a line of a joblog"), "{}", other.err);
    let inputs = run(&["--joblog", "./list", "-a", "list", "--", "echo"]);
    assert!(inputs.err.contains("the inputs are read from it"), "{}", inputs.err);
    lab.file("log", "Seq\ta\n");
    let mut from_stdin = map(&lab, &["--joblog", "log", "--", "echo"]);
    let stdin = std::fs::File::open(lab.path().join("log")).unwrap();
    Ran::from(from_stdin.stdin(stdin).output().unwrap()).expect(2);
    assert_eq!([text(&lab, "list"), text(&lab, "log")], ["a\nb\n", "Seq\ta\n"]);
}

#[test]
fn resume_of_blocks_warns_that_it_goes_by_their_numbers() {
    let lab = Lab::on_files();
    lab.file("numbers", "1\n2\n3\n4\n");
    let run = |block: &str, resume: &[&str]| {
        let args = [&["-k", "--pipe", "--block", block, "--joblog", "log"], resume, &["--", "cat"]].concat();
        let stdin = File::open(lab.path().join("numbers")).unwrap();
        Ran::from(map(&lab, &args).stdin(stdin).output().unwrap()).expect(0)
    };
    assert!(!run("4", &[]).err.contains("warning"));
    let resumed = run("2", &["--resume"]);
    assert_eq!(resumed.out, "3\n4\n", "two blocks are done");
    assert_eq!(resumed.err.matches("the same -N or --block").count(), 1, "{}", resumed.err);
}
