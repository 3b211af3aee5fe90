//! Jobs and tasks in a sandbox: start, output, signals, ends, and what is left of a job.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod support;

use std::{fs, os::unix::process::ExitStatusExt, path::Path};

use agenix_sandbox::{
    client::SupervisorError,
    fault::Step,
    profile::Profile,
    protocol::{Sink, Source, TaskSignal},
    setup::Regime,
};
use support::{TestSandbox, directory, fault};

#[test]
fn task_runs_with_its_arguments_and_a_small_environment() {
    let mut sandbox = TestSandbox::reader();
    let ended = sandbox.job(&["/bin/sh", "-c", "printf '%s.' \"$0\" \"$@\"; echo e >&2; exit 3", "a", "b c"]);
    assert_eq!((ended.status.code(), &*ended.stdout, &*ended.stderr), (Some(3), "a.b c.", "e\n"));
    let environment = sandbox.job(&["/usr/bin/env"]).stdout;
    let scratch = sandbox.scratch.path().to_str().unwrap().to_owned();
    let mut names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !Profile::reader().env.iter().any(|permitted| permitted == name));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH", "TMPDIR"], "{environment}");
    assert!(environment.contains(&format!("HOME={scratch}\n")));
    assert_eq!(sandbox.job(&["/bin/pwd"]).stdout, scratch + "\n");
}

#[test]
fn task_has_three_descriptors_and_no_more() {
    let mut sandbox = TestSandbox::reader();
    let listed = sandbox.job(&["/bin/ls", "/proc/self/fd"]).stdout;
    // The fourth descriptor is the directory that ls lists.
    assert_eq!(listed, "0\n1\n2\n3\n");
}

#[test]
fn tasks_of_a_job_run_at_the_same_time_and_share_the_scratch() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        sandbox.begin(&["/bin/sh", "/bin/cat", "/usr/bin/mkfifo"]);
        let create = "mkfifo a b; echo one > a; cat b";
        let one = sandbox.start_task(&["/bin/sh", "-c", create], |_| {}).unwrap();
        let two = "until [ -p b ]; do :; done; read line < a; echo \"$line two\" > b";
        let two = sandbox.start_task(&["/bin/sh", "-c", two], |_| {}).unwrap();
        assert_eq!(sandbox.wait(one).unwrap().stdout, "one two\n");
        assert!(sandbox.wait(two).unwrap().status.success());
        sandbox.supervisor.clean().unwrap();
    }
}

#[test]
fn paths_of_a_plan_are_opened_inside() {
    let (data, mut profile) = (directory(), Profile::reader());
    fs::write(data.path().join("in"), "b\na\n").unwrap();
    profile.read = vec![data.path().to_str().unwrap().into()];
    let mut sandbox = TestSandbox::start(profile, Regime::Namespaces).unwrap();
    sandbox.begin(&["/usr/bin/sort"]);
    let running = sandbox.start_task(&["/usr/bin/sort"], |task| {
        task.cwd = Some(data.path().to_str().unwrap().into());
        task.stdin = Source::Path("in".into());
    });
    let running = running.unwrap();
    assert_eq!(sandbox.wait(running).unwrap().stdout, "a\nb\n");
    let denied = |change: &dyn Fn(&mut agenix_sandbox::protocol::TaskStart), sandbox: &mut TestSandbox| {
        let error = sandbox.start_task(&["/usr/bin/sort"], |task| change(task)).err().unwrap();
        let fault = fault(error);
        (fault.step, fault.errno)
    };
    let access = Some(rustix::io::Errno::ACCESS.raw_os_error());
    let written = data.path().join("new").to_str().unwrap().to_owned();
    for (expected, change) in [
        (Step::Stdin, &(|task: &mut _| stdin(task, "/etc/hostname")) as &dyn Fn(&mut _)),
        (Step::Stdout, &|task| stdout(task, &written)),
        (Step::Cwd, &|task: &mut agenix_sandbox::protocol::TaskStart| task.cwd = Some("/var".into())),
    ] {
        assert_eq!(denied(change, &mut sandbox), (expected, access));
    }
    assert!(!Path::new(&written).exists());
    let fifo = denied(&|task| stdin(task, "/dev/tty"), &mut sandbox);
    assert_eq!(fifo, (Step::Stdin, access));
    sandbox.supervisor.clean().unwrap();
}

fn stdin(task: &mut agenix_sandbox::protocol::TaskStart, path: &str) {
    task.stdin = Source::Path(path.into());
}

fn stdout(task: &mut agenix_sandbox::protocol::TaskStart, path: &str) {
    task.stdout = Sink::Path(path.into());
}

#[test]
fn fifo_as_stdin_is_refused_at_once() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/usr/bin/mkfifo", "/bin/cat"]);
    assert!(sandbox.run(&["/usr/bin/mkfifo", "fifo"]).status.success());
    let error = sandbox.start_task(&["/bin/cat"], |task| stdin(task, "fifo")).err().unwrap();
    assert_eq!(fault(error).step, Step::Stdin);
}

#[test]
fn plan_sets_only_variables_that_the_profile_names() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/usr/bin/env"]);
    let variable = |name: &str| vec![(name.to_owned(), "x".to_owned())];
    let running = sandbox.start_task(&["/usr/bin/env"], |task| task.env = variable("TZ")).unwrap();
    assert!(sandbox.wait(running).unwrap().stdout.contains("TZ=x\n"));
    for name in ["LD_PRELOAD", "PATH", "HOME", "BASH_ENV", "GIT_SSH_COMMAND"] {
        let error = sandbox.start_task(&["/usr/bin/env"], |task| task.env = variable(name)).err().unwrap();
        let fault = fault(error);
        assert_eq!(fault.step, Step::Environment);
        assert!(fault.detail.ends_with(&format!("does not permit {name}")), "{fault}");
    }
}

#[test]
fn job_that_cannot_begin_leaves_the_supervisor_usable() {
    let mut sandbox = TestSandbox::reader();
    for program in ["/no/such/program", "relative"] {
        assert_eq!(fault(sandbox.supervisor.begin(&[program]).unwrap_err()).step, Step::Programs);
    }
    assert!(sandbox.job(&["/bin/true"]).status.success());
}

#[test]
fn job_may_execute_its_programs_and_no_others() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        sandbox.begin(&["/bin/sh"]);
        let denied = fault(sandbox.try_run(&["/usr/bin/id"]).unwrap_err());
        assert_eq!((denied.step, denied.errno), (Step::Exec, Some(13)));
        let other = sandbox.run(&["/bin/sh", "-c", "/usr/bin/id; echo $?"]);
        assert_eq!(other.stdout, "126\n", "{other:?}");
        sandbox.supervisor.clean().unwrap();
    }
    let mut sandbox = TestSandbox::reader();
    assert!(sandbox.job(&["/bin/true"]).status.success());
    assert!(sandbox.job(&["/usr/bin/id"]).status.success(), "another job, other programs");
    sandbox.begin(&["/bin/true"]);
    assert_eq!(fault(sandbox.try_run(&["/usr/bin/id"]).unwrap_err()).step, Step::Exec);
}

#[test]
fn scratch_is_empty_for_the_next_job() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/sh", "/bin/mkdir", "/bin/chmod"]);
    let script = "mkdir -p a/b; echo 12345 > a/b/c; echo x > .hidden; chmod 0 a/b a";
    assert!(sandbox.run(&["/bin/sh", "-c", script]).status.success());
    let cleaned = sandbox.supervisor.clean().unwrap();
    assert!(cleaned.scratch_bytes >= 4096 && !cleaned.retires, "{cleaned:?}");
    assert_eq!(sandbox.job(&["/bin/ls", "-A"]).stdout, "");
    assert_eq!(fs::read_dir(sandbox.scratch.path()).unwrap().count(), 0, "outside, it was never filled");
}

#[test]
fn job_changes_neither_the_limits_nor_the_scratch_mode_of_the_next_one() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/sh", "/bin/chmod", "/usr/bin/prlimit"]);
    let script = "prlimit --pid 1 --fsize=0:0 || echo denied; chmod 500 .";
    assert_eq!(sandbox.run(&["/bin/sh", "-c", script]).stdout, "denied\n");
    sandbox.supervisor.clean().unwrap();
    let next = sandbox.job(&["/bin/sh", "-c", "echo written > f; read line < f; echo $line"]);
    assert_eq!(next.stdout, "written\n", "{next:?}");
}

#[test]
fn task_may_limit_itself() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let ended = sandbox.job(&["/bin/sh", "-c", "ulimit -f 8 && ulimit -f"]);
        assert_eq!(ended.stdout, "8\n", "{ended:?}");
    }
}

#[test]
fn supervisor_without_namespaces_serves_one_job() {
    let mut sandbox = TestSandbox::subreaper();
    sandbox.begin(&["/bin/sh"]);
    assert!(sandbox.run(&["/bin/sh", "-c", "echo x > f"]).status.success());
    let cleaned = sandbox.supervisor.clean().unwrap();
    assert!(cleaned.retires && cleaned.scratch_bytes > 0, "{cleaned:?}");
    assert_eq!(fs::read_dir(sandbox.scratch.path()).unwrap().count(), 0);
    assert!(matches!(sandbox.supervisor.wait(99), Err(SupervisorError::Ended)));
}

#[test]
fn signals_reach_the_process_group_of_a_task() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        sandbox.begin(&["/bin/sh", "/bin/sleep", "/bin/cat"]);
        let trap =
            "trap 'echo got; exit 5' TERM; mkfifo f 2>/dev/null; echo ready > ready; while :; do :; done";
        let running = sandbox.start_task(&["/bin/sh", "-c", trap], |_| {}).unwrap();
        let look = "until [ -s ready ]; do :; done";
        assert!(sandbox.run(&["/bin/sh", "-c", look]).status.success());
        sandbox.supervisor.commands().signal(running.task, TaskSignal::Terminate).unwrap();
        let ended = sandbox.wait(running).unwrap();
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(5), "got\n"));
        let running = sandbox.start_task(&["/bin/sleep", "1000"], |_| {}).unwrap();
        sandbox.supervisor.commands().signal(running.task, TaskSignal::Kill).unwrap();
        assert_eq!(sandbox.wait(running).unwrap().status.signal(), Some(9));
        sandbox.supervisor.clean().unwrap();
    }
}

#[test]
fn clean_ends_tasks_that_run() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/sleep"]);
    let running = sandbox.start_task(&["/bin/sleep", "1000"], |_| {}).unwrap();
    let cleaned = sandbox.supervisor.clean().unwrap();
    assert_eq!(cleaned.strays, 0, "a task is no stray");
    assert_eq!(sandbox.wait(running).unwrap().status.signal(), Some(9));
}

#[test]
fn end_of_the_supervisor_ends_its_tasks() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        sandbox.begin(&["/bin/sh", "/bin/sleep", "/usr/bin/setsid"]);
        let script = "setsid sleep 1000 & setsid -f sleep 1000; sleep 1000";
        let running = sandbox.start_task(&["/bin/sh", "-c", script], |_| {}).unwrap();
        let support::TestSandbox { supervisor, scratch: _scratch, .. } = sandbox;
        supervisor.end().unwrap();
        // Each process holds the pipes of its output, so the end of the pipes is the end of all
        // processes.
        running.output_ends();
    }
}

#[test]
fn descriptors_of_the_worker_do_not_reach_a_task() {
    let file = fs::File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let count = "my $n = 0; for (0 .. 255) { open(my $f, '>&=', $_) and $n++ } print $n";
        // perl itself opens no descriptor. The three descriptors are stdin, stdout and stderr.
        assert_eq!(sandbox.job(&["/usr/bin/perl", "-e", count]).stdout, "3");
    }
}

#[test]
fn task_gets_long_arguments_and_any_bytes() {
    let mut sandbox = TestSandbox::reader();
    sandbox.begin(&["/bin/sh"]);
    let long = "x".repeat(100_000);
    let many: Vec<&str> = ["/bin/sh", "-c", "echo $#; printf %s \"$0\"", "\u{10feff}é"]
        .into_iter()
        .chain(std::iter::repeat_n(&*long, 10))
        .collect();
    let ended = sandbox.run(&many);
    assert_eq!(ended.stdout, "10\n\u{fffd}é", "the byte 255, as text");
    let nul = fault(sandbox.try_run(&["/bin/sh", "a\0b"]).unwrap_err());
    assert_eq!(nul.step, Step::Exec);
    let too_long = "x".repeat(3 << 20);
    let refused = fault(sandbox.try_run(&["/bin/sh", &too_long]).unwrap_err());
    assert_eq!((refused.step, refused.errno), (Step::Exec, Some(7)));
    sandbox.supervisor.clean().unwrap();
}

#[test]
fn task_may_end_by_any_signal() {
    let mut sandbox = TestSandbox::reader();
    for signal in [6, 11, 34, 64] {
        let ended = sandbox.job(&["/bin/sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]);
        assert_eq!(ended.status.signal(), Some(signal), "{ended:?}");
    }
}

#[test]
fn files_may_move_within_the_scratch() {
    for mut sandbox in [TestSandbox::reader(), TestSandbox::subreaper()] {
        let script = "mkdir 'a'; mkdir 'b'; open(F, '>', 'a/f'); rename('a/f', 'b/f') or print $!+0;
            link('b/f', 'a/g') or print $!+0; print -e 'a/g' ? 'moved' : 'lost'";
        assert_eq!(sandbox.job(&["/usr/bin/perl", "-e", script]).stdout, "moved");
    }
}

#[test]
fn builder_writes_its_paths_and_executes_what_it_reads() {
    let (data, other) = (directory(), directory());
    let mut profile = Profile::builder();
    profile.write = vec![data.path().to_str().unwrap().into()];
    let mut sandbox = TestSandbox::start(profile, Regime::Namespaces).unwrap();
    let script = "printf '#!/bin/sh\\necho built' > tool && chmod +x tool && ./tool && (echo x > \"$0/f\" || echo denied)";
    sandbox.begin(&[]);
    let running = sandbox.start_task(&["/bin/sh", "-c", script, other.path().to_str().unwrap()], |task| {
        task.cwd = Some(data.path().to_str().unwrap().into());
        task.argv.truncate(4);
    });
    let running = running.unwrap();
    assert_eq!(sandbox.wait(running).unwrap().stdout, "built\ndenied\n");
    sandbox.supervisor.clean().unwrap();
    assert!(data.path().join("tool").exists(), "only the scratch is emptied");
}
