//! `agx run`: one command as a job, with its output live and its exit code.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use e2e::{Lab, Ran, eventually, is_gone};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};

use crate::running::RunningCommand;

/// Returns a command whose agx starts its own agq and worker.
fn alone(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.command("agx");
    command.arg("run").args(args).current_dir(lab.path()).env("TMPDIR", lab.path());
    command
}

fn at(lab: &Lab, address: &str, args: &[&str]) -> Command {
    let mut command = alone(lab, args);
    command.env("AGQ_ADDR", address);
    command
}

fn gate(lab: &Lab) -> String {
    let gate = lab.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    gate.display().to_string()
}

#[test]
fn run_shows_output_while_the_command_runs_and_ends_with_its_code() {
    let lab = Lab::new();
    let gate = gate(&lab);
    let script = format!("echo tick; echo complaint >&2; cat '{gate}'; exit 7");
    let mut run = RunningCommand::start(&mut alone(&lab, &["--", "sh", "-c", &script]));
    assert_eq!(run.line(), "tick\n", "the command waits at its gate");
    File::options().write(true).open(&gate).unwrap().write_all(b"tock\n").unwrap();
    assert_eq!(run.end(), (7, "tock\n".into(), "complaint\n".into()));
}

#[test]
fn run_with_a_short_text_on_stdin_needs_no_temporary_file() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let fed = |bytes: &[u8]| {
        let mut run = at(&lab, &agq.address(), &["--", "wc", "-c"]);
        run.env("TMPDIR", "/nonexistent").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = run.stderr(Stdio::piped()).spawn().unwrap();
        // agx may end before it has read everything.
        let _unread = child.stdin.take().unwrap().write_all(bytes);
        Ran::from(child.wait_with_output().unwrap())
    };
    assert_eq!(fed(b"hi\n").expect(0).out.trim(), "3");
    let refused = fed(&[b'a'; 100_000]).expect(125).err;
    assert!(refused.contains("a temporary file in /nonexistent cannot be written"), "{refused}");
    assert!(refused.contains("set TMPDIR") && !refused.contains("stdin cannot be read"), "{refused}");
}

#[test]
fn run_ends_with_the_code_that_a_shell_would_give() {
    let lab = Lab::new();
    let run = |args: &[&str]| RunningCommand::start(&mut alone(&lab, args)).end();
    assert_eq!(run(&["printf 'b\\na\\n' | sort | head -n 1"]), (0, "a\n".into(), String::new()));
    assert_eq!(run(&["--", "echo", "{}", "{{x}}", "a b"]), (0, "{} {{x}} a b\n".into(), String::new()));
    assert_eq!(run(&["--", "pwd"]).1.trim_end(), lab.path().canonicalize().unwrap().to_str().unwrap());
    let (code, _, err) = run(&["--", "sh", "-c", "kill -9 $$"]);
    assert!(code == 137 && err == "agx: Task 1 (sh) was ended by signal 9\n", "{code} {err}");
    let last = run(&["--pipefail", "sh -c 'exit 3' | sh -c 'cat; exit 4' | cat"]);
    assert_eq!(last, (4, String::new(), String::new()));
    let once = run(&["--", "sh", "-c", "echo x >> ran; echo a; exit 75"]);
    assert_eq!(once, (75, "a\n".into(), String::new()), "75 is a code like any other");
    assert_eq!(std::fs::read_to_string(lab.path().join("ran")).unwrap(), "x\n");
    let (code, _, err) = run(&["--timeout", "1", "--", "sleep", "100"]);
    assert!(code == 124 && err == "agx: Task 1 timed out\n", "{code} {err}");
    let (code, _, err) = run(&["--", "no-such-program"]);
    assert!(code == 127 && err.starts_with("agx: there is no program 'no-such-program' on PATH\n"), "{err}");
    let mut nowhere = at(&lab, "127.0.0.1:1", &["--", "true"]);
    let (code, _, err) = RunningCommand::start(&mut nowhere).end();
    assert!(code == 125 && err.contains("nothing is running there"), "{code} {err}");
    let script = lab.file("script.sh", "#!/bin/sh\necho by path\n");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&["./script.sh"]), (0, "by path\n".into(), String::new()));
    assert_eq!(run(&["./none.sh"]).0, 127);
    let (code, _, err) = run(&["sort $HOME/x | uniq"]);
    assert!(code == 125 && err.contains("    sort $HOME/x | uniq\n         ^^^^^\n"), "{code} {err}");
}

#[test]
fn run_follows_its_job_through_the_death_of_agq() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let gate = gate(&lab);
    let script = format!("echo first; cat '{gate}'; exit 3");
    let address = agq.address();
    let mut run =
        RunningCommand::start(&mut at(&lab, &address, &["--on", "batch", "--", "sh", "-c", &script]));
    let _batch = lab.agw(&agq, "w2", &["--queues", "batch"]);
    assert_eq!(run.line(), "first\n");
    // A claim becomes durable only after a while, or with the next durable write.
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#);
    agq.kill();
    agq.start_again(&lab);
    File::options().write(true).open(&gate).unwrap().write_all(b"last\n").unwrap();
    let (code, out, err) = run.end();
    assert_eq!((code, out.as_str()), (3, "last\n"), "{err}");
}

#[test]
fn run_cancels_its_job_on_ctrl_c_and_leaves_on_the_second_one() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let sleep = ["--", "sh", "-c", "echo $$; exec sleep 1000"];
    let mut run = RunningCommand::start(&mut at(&lab, &agq.address(), &sleep));
    let pid: i32 = run.line().trim().parse().unwrap();
    run.signal(Signal::INT);
    let (code, _, err) = run.end();
    assert!(code == 130 && err.ends_with(" was cancelled\n"), "{code} {err}");
    eventually("the process of the job ends", || is_gone(pid).then_some(()));
    let job = err.split_whitespace().nth(2).unwrap();
    assert_eq!(lab.agx(&agq, &["job", "status", job, "--json"]).expect(0).data()["status"], "cancelled");
    let mut run = RunningCommand::start(&mut at(&lab, &agq.address(), &sleep));
    run.line();
    // agq does not answer the request to cancel.
    agq.suspend();
    run.signal(Signal::INT);
    run.signal(Signal::INT);
    run.signal(Signal::TERM);
    let (code, _, err) = run.end();
    assert_eq!(code, 130, "{err}");
    agq.resume();
}

#[test]
fn run_cancels_its_job_if_the_reader_of_its_output_exits() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let script = "echo $$; while sleep 0.05; do echo more; done";
    let mut run = RunningCommand::start(&mut at(&lab, &agq.address(), &["--", "sh", "-c", script]));
    let pid: i32 = run.line().trim().parse().unwrap();
    assert_eq!(run.end_unread(), (141, String::new()));
    eventually("the process of the job ends", || is_gone(pid).then_some(()));
}

#[test]
fn run_cancels_its_job_when_agq_comes_back() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let sleep = ["--", "sh", "-c", "echo $$; exec sleep 1000"];
    let mut run = RunningCommand::start(&mut at(&lab, &agq.address(), &sleep));
    let pid: i32 = run.line().trim().parse().unwrap();
    // A claim becomes durable only after a while, or with the next durable write.
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#);
    agq.kill();
    run.signal(Signal::INT);
    agq.start_again(&lab);
    let (code, _, err) = run.end();
    assert!(code == 130 && err.ends_with(" was cancelled\n"), "{code} {err}");
    eventually("the process of the job ends", || is_gone(pid).then_some(()));
}

#[test]
fn run_is_interrupted_quietly_before_its_job_exists() {
    let lab = Lab::new();
    let (unread, _open) = std::io::pipe().unwrap();
    let mut run = RunningCommand::with_stdin(&mut alone(&lab, &["--", "cat"]), unread.into());
    assert!(run.err_line().contains("agx waits for its end"));
    run.signal(Signal::INT);
    assert_eq!(run.end(), (130, String::new(), String::new()));
}

/// Starts a command whose stdin is the file `input`.
fn fed(mut command: Command, input: &std::path::Path) -> RunningCommand {
    RunningCommand::with_stdin(&mut command, File::open(input).unwrap().into())
}

#[test]
fn run_passes_stdin_of_any_size_to_the_command_also_on_its_second_worker() {
    let lab = Lab::new();
    let text: String = (0..1_000_000).map(|n| format!("{n}\n")).collect();
    let input = lab.file("input", &text);
    assert_eq!(fed(alone(&lab, &["--", "tail", "-n", "1"]), &input).end().1, "999999\n");
    let few = lab.file("few", "b\na\n");
    assert_eq!(fed(alone(&lab, &["--", "sort"]), &few).end().1, "a\nb\n");
    let names = lab.file("names", "b\0a\0");
    assert_eq!(fed(alone(&lab, &["--", "xargs", "-0", "-n", "1", "echo"]), &names).end().1, "b\na\n");
    let agq = lab.agq(&[]);
    let mut first = lab.agw(&agq, "w1", &[]);
    // A FIFO would not do, because the process of the killed worker may still read from it.
    let script =
        format!("echo began; until [ -e '{}/go' ]; do sleep 0.02; done; wc -l", lab.path().display());
    let mut run = fed(at(&lab, &agq.address(), &["--", "sh", "-c", &script]), &input);
    assert_eq!(run.line(), "began\n");
    first.kill();
    let _second = lab.agw(&agq, "w1", &[]);
    assert_eq!(run.line(), "began\n", "another attempt begins");
    lab.file("go", "");
    let (code, out, err) = run.end();
    assert_eq!((code, out.as_str()), (0, "1000000\n"), "{err}");
    assert!(err.contains("runs again (attempt 2)"), "{err}");
}

#[test]
fn run_without_a_server_needs_neither_a_queue_nor_tags_of_a_worker() {
    let lab = Lab::new();
    let mut queued = alone(&lab, &["--on", "gpu", "--", "echo", "a"]);
    let note = "agx: --on is for a cluster; the worker that agx starts serves one queue\n";
    assert_eq!(RunningCommand::start(&mut queued).end(), (0, "a\n".into(), note.into()));
    let mut map = lab.command("agx");
    map.env("TMPDIR", lab.path()).args(["map", "--queue", "gpu", "--", "echo", ":::", "a"]);
    let (code, out, err) = RunningCommand::start(&mut map).end();
    assert_eq!((code, out.as_str()), (0, "a\n"), "{err}");
    let (code, out, err) =
        RunningCommand::start(&mut alone(&lab, &["--tag", "gpu", "--", "echo", "a"])).end();
    assert_eq!((code, out.as_str()), (125, ""), "{err}");
    assert!(err.contains("the worker that agx starts has no tags, and --tag gpu asks for one"), "{err}");
}
