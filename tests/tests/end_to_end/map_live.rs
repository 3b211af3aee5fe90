//! `agx map --line-buffer` and `--ungroup`: output while the jobs run.

use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use e2e::Lab;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::running::RunningCommand;

/// A map of jobs that print something, and wait at the gate of their input.
struct Map {
    run: RunningCommand,
    gates: PathBuf,
}

impl Map {
    /// Starts a map of two jobs. Each job prints its input and `before`, and waits at its gate.
    fn start(lab: &Lab, options: &[&str], before: &str) -> Self {
        let gates = lab.path().to_owned();
        for gate in ["a", "b"] {
            mknodat(CWD, gates.join(gate), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let script = format!("printf '%s{before}' $0; cat {}/$0; echo end of $0", gates.display());
        let mut command: Command = lab.command("agx");
        command.env("TMPDIR", lab.path()).arg("map").args(["-j", "2"]).args(options);
        command.args(["--", "sh", "-c", &script, "{}", ":::", "a", "b"]);
        Self { run: RunningCommand::start(&mut command), gates }
    }

    fn open(&self, gate: &str, text: &str) {
        File::options().write(true).open(self.gates.join(gate)).unwrap().write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn map_prints_whole_lines_of_running_jobs_with_their_tags() {
    let lab = Lab::new();
    let mut map = Map::start(&lab, &["--line-buffer", "--tag"], "1\\npart ");
    let mut first = [map.run.read(5), map.run.read(5)];
    first.sort();
    assert_eq!(first, ["a\ta1\n", "b\tb1\n"], "both jobs wait at their gates");
    map.open("b", "of b\n");
    assert_eq!(map.run.read(12 + 11), "b\tpart of b\nb\tend of b\n");
    map.open("a", "of a\n");
    assert_eq!(map.run.succeed(), ("a\tpart of a\na\tend of a\n".into(), String::new()));
}

#[test]
fn map_prints_parts_of_lines_ungrouped() {
    let lab = Lab::new();
    let mut map = Map::start(&lab, &["-u"], "");
    let mut first = [map.run.read(1), map.run.read(1)];
    first.sort();
    assert_eq!(first, ["a", "b"]);
    map.open("b", "+\n");
    assert_eq!(map.run.read(2 + 9), "+\nend of b\n");
    map.open("a", "+\n");
    assert_eq!(map.run.succeed(), ("+\nend of a\n".into(), String::new()));
}

#[test]
fn map_prints_the_output_of_a_failed_attempt_before_that_of_the_next_one() {
    let lab = Lab::new();
    let script = "if [ -e was ]; then echo second; else touch was; echo first; exit 1; fi";
    let mut command: Command = lab.command("agx");
    command.env("TMPDIR", lab.path()).current_dir(lab.path());
    command.args(["map", "--line-buffer", "--retries", "1", "--", "sh", "-c", script, "{}", ":::", "a"]);
    assert_eq!(RunningCommand::start(&mut command).succeed().0, "first\nsecond\n");
}

#[test]
fn map_prints_long_and_unfinished_lines_unchanged() {
    let lab = Lab::new();
    let printed = |options: &[&str], script: &str| {
        let mut command: Command = lab.command("agx");
        command.env("TMPDIR", lab.path()).arg("map").args(options).args(["--", "sh", "-c", script]);
        command.args(["{}", ":::", "a"]).stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let long = "head -c 300000 /dev/zero | tr '\\0' x; echo; printf end";
    let line = "x".repeat(300_000);
    assert!(printed(&["--lb"], long) == format!("{line}\nend"), "with --lb");
    assert!(printed(&["--lb", "--tag"], long) == format!("a\t{line}\na\tend"), "with --lb and --tag");
    assert!(printed(&["-u", "--tag"], long) == format!("a\t{line}\na\tend"), "with -u and --tag");
}

#[test]
fn map_prints_large_output_once_and_keeps_it_in_files() {
    let lab = Lab::new();
    let results = lab.path().join("results").display().to_string();
    let mut command: Command = lab.command("agx");
    command.env("TMPDIR", lab.path()).args([
        "map",
        "--lb",
        "--results",
        &results,
        "--",
        "seq",
        "{}",
        "300000",
    ]);
    let ran = command.args([":::", "1", "200001"]).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && err.is_empty(), "{err}");
    let mut lines: Vec<u32> =
        String::from_utf8(ran.stdout).unwrap().lines().map(|n| n.parse().unwrap()).collect();
    lines.sort_unstable();
    let all: Vec<u32> = (1..=200_000).chain((200_001..=300_000).flat_map(|n| [n, n])).collect();
    assert!(lines == all, "{} lines", lines.len());
    let kept = std::fs::read_to_string(lab.path().join("results/1/200001/stdout")).unwrap();
    assert_eq!(kept.lines().count(), 100_000);
}
