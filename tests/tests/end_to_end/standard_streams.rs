//! Standard streams that are closed or on a full disk: exit code 0 means that no output was lost.

use std::process::Command;

use e2e::{Lab, Ran};

/// Runs `sh -c SCRIPT` in the environment of the lab. `$AGX`, `$AGQ` and `$AGW` are the programs.
fn sh(lab: &Lab, script: &str) -> Ran {
    let tmp = lab.path().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    let agx = lab.command("agx");
    let mut command = Command::new("sh");
    for (name, value) in agx.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for name in ["agx", "agq", "agw"] {
        command.env(name.to_uppercase(), lab.command(name).get_program());
    }
    Ran::from(command.current_dir(lab.path()).env("TMPDIR", tmp).args(["-c", script]).output().unwrap())
}

/// Commands that print and need no server.
const PRINTING: [&str; 9] = [
    "$AGX map -- echo ::: a",
    "$AGX map --dry-run -- echo ::: a",
    "$AGX plan from 'sort {}'",
    "$AGX completions bash",
    "$AGX json-schema",
    "$AGX --help",
    "$AGX --version",
    "$AGQ completions bash",
    "$AGW completions bash",
];

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let lab = Lab::on_files();
    for command in PRINTING {
        for to in [">&-", "> /dev/full"] {
            let ran = sh(&lab, &format!("{command} {to}"));
            assert_ne!(ran.code, 0, "{command} {to}: {}", ran.err);
            let is_named = ran.err.contains("Bad file descriptor") || ran.err.contains("No space left");
            assert!(is_named && ran.err.contains("written"), "{command} {to}: {}", ran.err);
        }
        sh(&lab, &format!("{command} > /dev/null")).expect(0);
    }
}

#[test]
fn closed_stdin_is_no_empty_list() {
    let lab = Lab::on_files();
    for command in ["$AGX map -- echo", "$AGX map --pipe -- wc -l", "$AGX plan check -"] {
        let refused = sh(&lab, &format!("{command} <&-")).expect(2);
        assert!(refused.err.contains("Bad file descriptor"), "{command}: {}", refused.err);
    }
    assert_eq!(sh(&lab, "$AGX map -- echo ::: a <&- 2>&-").expect(0).out, "a\n");
    sh(&lab, "$AGX map -- echo < /dev/null").expect(0);
}

#[test]
fn full_pipe_is_waited_for() {
    let lab = Lab::on_files();
    let ran = sh(&lab, "$AGX map -k -- 'seq {}' ::: 100000 100000 | wc -l").expect(0);
    assert_eq!(ran.out.trim(), "200000");
}

#[test]
fn every_limit_of_open_files_ends_with_results_or_a_message() {
    let lab = Lab::on_files();
    for limit in (6..=16).chain([20, 34, 35, 36, 37, 38, 39, 40, 48, 64]) {
        let ran = sh(&lab, &format!("ulimit -n {limit}; exec timeout 60 $AGX map -k -- echo ::: a b c"));
        let is_refused = ran.code == 2 && (ran.err.contains("open files") || ran.err.contains("ulimit"));
        let is_done = ran.code == 0 && ran.out == "a\nb\nc\n";
        assert!(is_refused || is_done, "{limit}: {} {}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked"), "{limit}: {}", ran.err);
    }
}
