//! Deaths of processes of a sandbox at bad moments. Nothing of a sandbox is left afterwards.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::fd::AsFd,
    process::{Command, Stdio},
};

use agenix_sandbox::{protocol::Sink, setup::Regime};
use rustix::process::{Pid, Signal, kill_process};
use support::{PipedTask, TestSandbox};

const BOTH: [Regime; 2] = [Regime::Namespaces, Regime::Subreaper];

/// Daemons that hold the outputs of their task.
const DAEMONS: &str = "setsid sleep 1000 & setsid -f setsid -f sleep 1000; : > ready; sleep 1000";
const PROGRAMS: [&str; 3] = ["/bin/sh", "/usr/bin/setsid", "/bin/sleep"];

fn start(regime: Regime) -> (TestSandbox, PipedTask) {
    let mut sandbox = match regime {
        Regime::Namespaces => TestSandbox::reader(),
        Regime::Subreaper => TestSandbox::subreaper(),
    };
    sandbox.begin(&PROGRAMS);
    let running = sandbox.start_task(&["/bin/sh", "-c", DAEMONS], |_| {}).unwrap();
    assert!(sandbox.run(&["/bin/sh", "-c", "until [ -e ready ]; do :; done"]).status.success());
    (sandbox, running)
}

fn outer(sandbox: &TestSandbox) -> Pid {
    Pid::from_raw(sandbox.supervisor.process_id().cast_signed()).unwrap()
}

fn inner(sandbox: &TestSandbox) -> Pid {
    let outer = outer(sandbox).as_raw_pid();
    let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

#[test]
fn death_of_a_supervisor_process_ends_the_tasks() {
    for regime in BOTH {
        for process in [outer, inner] {
            let (mut sandbox, running) = start(regime);
            kill_process(process(&sandbox), Signal::KILL).unwrap();
            running.output_ends();
            assert!(sandbox.supervisor.clean().is_err());
        }
    }
}

#[test]
fn end_of_a_stopped_supervisor_ends_the_tasks() {
    for regime in BOTH {
        let (sandbox, running) = start(regime);
        kill_process(inner(&sandbox), Signal::STOP).unwrap();
        sandbox.supervisor.end().unwrap();
        running.output_ends();
    }
}

/// Environment variable of the worker that [`death_of_the_worker_ends_the_tasks`] starts, with the
/// regime.
const WORKER: &str = "AGENIX_SANDBOX_TEST_WORKER";

#[test]
fn death_of_the_worker_ends_the_tasks() {
    for regime in BOTH {
        // The worker cannot remove its temporary directories.
        let temporary = support::directory();
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.env("TMPDIR", temporary.path());
        worker.args(["--exact", "worker_that_dies", "--nocapture"]).env(WORKER, format!("{regime:?}"));
        let mut worker = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(worker.stdout.take().unwrap());
        let ready = stdout.lines().map(Result::unwrap).find(|line| line.ends_with("ready"));
        assert!(ready.is_some(), "{regime:?}");
        worker.kill().unwrap();
        // The tasks hold the stderr of the worker, so the end of stderr is the end of all tasks.
        let mut text = String::new();
        worker.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "", "{regime:?}");
        worker.wait().unwrap();
    }
}

#[test]
fn worker_that_dies() {
    let Ok(regime) = std::env::var(WORKER) else { return };
    let regime = BOTH.into_iter().find(|known| format!("{known:?}") == regime).unwrap();
    let (mut sandbox, _running) = start(regime);
    let mut task = support::task(100, &["/bin/sh", "-c", DAEMONS]);
    (task.stdout, task.stderr) = (Sink::Descriptor, Sink::Stdout);
    sandbox.supervisor.start_task(task, &[std::io::stderr().as_fd()]).unwrap();
    println!("ready");
    // The other process kills this one.
    loop {
        std::thread::park();
    }
}
