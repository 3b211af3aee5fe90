//! Limits of the operating system for a worker and its tasks: open files, terminals, disks, and
//! processes that tasks leave behind.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Agw, Lab, Ran, eventually, is_gone};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit},
};

use crate::support::{ended, plan};

/// Runs `agx map` without an agq, in a shell that runs `first` before.
fn mapped_after(lab: &Lab, first: &str, args: &[&str]) -> Ran {
    let tmp = lab.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let mut agx = lab.command("agx");
    agx.env("TMPDIR", tmp).arg("map").args(args);
    Ran::from(after(lab, first, &agx).output().unwrap())
}

/// Returns a shell that runs `first`, and becomes `command`.
fn after(lab: &Lab, first: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(lab.path()).stdin(Stdio::null());
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

fn numbers(count: u32) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

fn pid_of(lab: &Lab, file: &str) -> i32 {
    let path = lab.path().join(file);
    eventually(file, || fs::read_to_string(&path).ok()?.strip_suffix('\n')?.parse().ok())
}

#[test]
fn few_descriptors_make_fewer_jobs_at_once_and_fail_none() {
    let lab = Lab::on_files();
    let inputs = numbers(200);
    for (limit, command) in [(64, "echo {}"), (128, "echo {} | cat | cat | cat")] {
        let mut args = vec!["-k", "-j", "40", "--", command, ":::"];
        args.extend(inputs.iter().map(String::as_str));
        let ran = mapped_after(&lab, &format!("ulimit -n {limit}"), &args).expect(0);
        assert_eq!(ran.out.lines().collect::<Vec<_>>(), inputs, "{limit}: {}", ran.err);
    }
    let refused = mapped_after(&lab, "ulimit -n 20", &["true", ":::", "a"]).expect(2);
    assert!(refused.err.contains("the limit of open files is 20"), "{}", refused.err);
}

#[test]
fn job_that_needs_more_files_than_its_worker_has_fails_alone() {
    const TASKS: u32 = 16;
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut agw = lab.command("agw");
    agw.env("AGQ_ADDR", agq.address()).args(["--max-concurrent-jobs", "2"]);
    let agw = lab.agw_by("w1", after(&lab, "ulimit -n 64", &agw));
    let cat = |number: u32| {
        let from = number - 1;
        format!(r#"{{"task_number":{number},"command":"cat","input_from_task":{from},"stream":true}}"#)
    };
    let mut tasks = vec![r#"{"task_number":1,"command":"cat"}"#.to_owned()];
    tasks.extend((2..=TASKS).map(cat));
    let tasks = tasks.join(",");
    lab.submit_plan(&agq, &format!(r#"{{"plan_id":"cats","max_retries":0,"tasks":[{tasks}]}}"#));
    lab.submit_plan(&agq, &plan("true", "true", &[]));
    lab.submit_action(&agq, "cats", "large", "[{}]");
    lab.submit_action(&agq, "true", "small", "[{}]");
    let job = ended(&lab, &agq, "large");
    assert!(job["error"].as_str().is_some_and(|error| error.contains("it needs 85 open files")), "{job}");
    assert_eq!((&job["status"], &job["attempt"]), (&"failed".into(), &1.into()), "{job}");
    assert_eq!(ended(&lab, &agq, "small")["status"], "completed");
    assert!(!agw.log().contains("cannot be started"), "{}", agw.log());
}

#[test]
fn limit_is_raised_for_the_worker_and_not_for_its_tasks() {
    let lab = Lab::on_files();
    // The task waits for its limit, because agw restores the limit only after the start of the
    // task.
    let script =
        "i=0; until [ $(ulimit -Sn) = 300 ] || [ $i = 100 ]; do sleep 0.02; i=$((i+1)); done; ulimit -Sn";
    let args = ["-j", "100", "--", "sh", "-c", script, ":::", "a"];
    assert_eq!(mapped_after(&lab, "ulimit -Sn 300", &args).expect(0).out, "300\n");
}

#[test]
fn file_beyond_the_size_limit_fails_its_job_alone() {
    const BYTES: u64 = 64 << 10;
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    let pid = Pid::from_raw(agw.pid().cast_signed());
    let limit = Rlimit { current: Some(BYTES), maximum: Some(BYTES) };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let task = r#"{"task_number":1,"command":"wc","args":["-c"],"stdin":"{{input.text}}"}"#;
    lab.submit_plan(&agq, &format!(r#"{{"plan_id":"wc","max_retries":0,"tasks":[{task}]}}"#));
    let input = |bytes| format!(r#"[{{"text":"{}"}}]"#, "x".repeat(bytes));
    lab.submit_action(&agq, "wc", "large", &input(100_000));
    let job = ended(&lab, &agq, "large");
    assert!(job["error"].as_str().is_some_and(|error| error.contains("File too large")), "{job}");
    lab.submit_action(&agq, "wc", "small", &input(1000));
    let job = ended(&lab, &agq, "small");
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &1.into()), "{job}");
}

fn limit_files(agw: &Agw, files: u64) -> Rlimit {
    let pid = Pid::from_raw(agw.pid().cast_signed());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap()
}

#[test]
fn task_that_cannot_be_started_now_is_started_later() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("echo", "echo", &["hello"]));
    let before = allow_no_starts(&agw);
    lab.submit_action(&agq, "echo", "a", "[{}]");
    eventually("it waits", || agw.log().contains("cannot be started now and waits").then_some(()));
    limit_files(&agw, before.current.unwrap_or(1024));
    let job = ended(&lab, &agq, "a");
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &1.into()), "{job}");
}

/// Lowers the limit of open files of `agw` so far that no task can be started.
fn allow_no_starts(agw: &Agw) -> Rlimit {
    // Only the owner and root may list the descriptors of a process that is not dumpable.
    let listed = fs::read_dir(format!("/proc/{}/fd", agw.pid())).map(Iterator::count);
    limit_files(agw, listed.map_or(8, |open| open as u64 - 1))
}

#[test]
fn start_that_waits_ends_with_its_timeout_and_with_a_cancel() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &[]);
    let task = |id: &str, timeout: u32| {
        format!(
            r#"{{"plan_id":"{id}","max_retries":0,"tasks":[{{"task_number":1,"command":"echo","timeout_secs":{timeout}}}]}}"#
        )
    };
    lab.submit_plan(&agq, &task("short", 1));
    lab.submit_plan(&agq, &task("long", 600));
    allow_no_starts(&agw);
    lab.submit_action(&agq, "short", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(job["error"], "Task 1 timed out", "{job}");
    lab.submit_action(&agq, "long", "b", "[{}]");
    let waits = || agw.log().matches("cannot be started now and waits").count() == 2;
    eventually("it waits", || waits().then_some(()));
    lab.agx(&agq, &["action", "cancel", "b"]).expect(0);
    eventually("the wait ends", || {
        agw.log().contains("the job no longer belongs to this worker").then_some(())
    });
}

#[test]
fn arguments_that_are_too_long_fail_their_job_alone() {
    let lab = Lab::on_files();
    let long = "x".repeat(200_000);
    let list = lab.file("list", &format!("a\n{long}\nb\n"));
    let list = list.to_str().unwrap();
    let ran = mapped_after(&lab, "true", &["-k", "-a", list, "--", "sh", "-c", "echo ${#0}"]).expect(1);
    assert_eq!(ran.out, "1\n1\n");
    assert!(ran.err.contains("Argument list too long"), "{}", ran.err.len());
}

#[test]
fn log_that_cannot_be_written_does_not_end_the_worker() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    lab.submit_plan(&agq, &plan("echo", "echo", &["hello"]));
    for (id, stderr) in [("w1", full()), ("w2", closed())] {
        let mut command = lab.command("agw");
        command.env("AGQ_ADDR", agq.address()).env("AGW_LOG", "debug").args(["--worker-id", id]);
        let mut agw = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        lab.submit_action(&agq, "echo", id, "[{}]");
        assert_eq!(ended(&lab, &agq, id)["status"], "completed");
        let pid = Pid::from_raw(agw.id().cast_signed()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(agw.wait().unwrap().code(), Some(0), "{id} drains");
    }
}

/// The test runs on a terminal of its own, which stops background processes that write to it.
#[test]
fn tasks_have_no_terminal_and_are_not_stopped_by_one() {
    let lab = Lab::on_files();
    let tmp = lab.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    for task in ["read x < /dev/tty", "echo > /dev/tty", "stty -F /dev/tty -echo"] {
        let agx = lab.bin().join("agx");
        let line = format!("stty tostop; {} map -- sh -c '{task} || echo none' ::: a", agx.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
        command.current_dir(lab.path()).env("TMPDIR", &tmp).env("AGX_HOME", lab.path().join("home"));
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.out.contains("none"), "{task}: {} {}", ran.out, ran.err);
    }
}

#[test]
fn output_without_end_ends_its_job_alone() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--spool-quota", "4000000"]);
    for (id, script) in
        [("out", "exec yes"), ("err", "exec yes >&2"), ("small", "yes | head -c 90000000 | wc -c")]
    {
        lab.submit_plan(&agq, &plan(id, "sh", &["-c", script]));
        lab.submit_action(&agq, id, id, "[{}]");
    }
    for id in ["out", "err"] {
        let job = ended(&lab, &agq, id);
        let error = job["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains("a job may take 4000000") && error.contains("--spool-quota"), "{id}: {job}");
    }
    assert_eq!(ended(&lab, &agq, "small")["status"], "completed");
}

#[test]
fn process_that_leaves_its_group_ends_with_a_task_that_is_ended() {
    let lab = Lab::on_files();
    let script = "setsid sh -c 'echo $$ > one; exec sleep 1000' & \
        setsid -f sh -c 'echo $$ > two; exec sleep 1000'; \
        (setsid nohup sh -c 'echo $$ > three; exec sleep 1000' &) & \
        until [ -s one ] && [ -s two ] && [ -s three ]; do sleep 0.02; done; sleep 1000";
    mapped_after(&lab, "true", &["--timeout", "10", "--", "sh", "-c", script, ":::", "a"]).expect(1);
    for file in ["one", "two", "three"] {
        let pid = pid_of(&lab, file);
        eventually("it is ended", || is_gone(pid).then_some(()));
    }
}

#[test]
fn worker_whose_default_id_is_taken_takes_another() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let started = |name: &str, mut command: Command| {
        let log = lab.path().join(name);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        (command.spawn().unwrap(), log)
    };
    let agw = || {
        let mut command = lab.command("agw");
        command.env("AGQ_ADDR", agq.address());
        command
    };
    let id_in = |log: &Path| {
        let log = fs::read_to_string(log).ok()?;
        Some(log.split_once("worker worker-")?.1.split_once(" is registered")?.0.to_owned())
    };
    let (mut probe, log) = started("probe", agw());
    let id = eventually("it registers", || id_in(&log));
    let host = id.strip_suffix(&format!("-{}", probe.id())).unwrap();
    // The shell fixes the process id of the second worker before the worker starts.
    let mut later = Command::new("sh");
    later.args(["-c", "read go; exec \"$0\""]).arg(lab.bin().join("agw"));
    later.env("AGQ_ADDR", agq.address()).env("AGQ_SESSION_KEY", lab.key());
    let (mut second, log) = started("second", later);
    let taken = format!("worker-{host}-{}", second.id());
    let _other = lab.agw(&agq, &taken, &[]);
    second.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let id = eventually("it registers", || id_in(&log));
    assert!(format!("worker-{id}").starts_with(&format!("{taken}-")), "{id}");
    for worker in [&mut probe, &mut second] {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let mut named = agw();
    let named = named.args(["--worker-id", &taken]).output().unwrap();
    assert_eq!(named.status.code(), Some(3), "an id that was asked for is kept");
}

#[test]
fn variable_that_is_empty_counts_as_not_set() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", agq.address()).env("AGW_PORT", "tcp://10.0.0.1:6380");
    for name in [
        "AGW_MAX_CONCURRENT_JOBS",
        "AGW_PREFETCH",
        "AGW_TOOLS",
        "AGW_QUEUES",
        "AGW_RESOURCES",
        "AGW_TAGS",
        "AGW_GRACE",
        "AGW_SPOOL_DIR",
        "AGW_LOG",
        "AGQ_CA",
        "AGQ_SESSION_KEY_FILE",
    ] {
        command.env(name, "");
    }
    let agw = lab.agw_by("w1", command);
    assert!(agw.log().contains("is registered"));
}

#[test]
fn odd_name_on_path_is_left_out_with_a_warning() {
    use std::os::unix::fs::PermissionsExt;

    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let bin = lab.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let add = |name: &str| {
        let path = bin.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    add("a\tb");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = lab.command("agw");
    command
        .env("AGQ_ADDR", agq.address())
        .env("PATH", path)
        .args(["--tools", "a\tb,echo,no-such-tool,second"]);
    let agw = lab.agw_by("w1", command);
    assert!(agw.log().contains("1 programs on PATH are not offered"), "{}", agw.log());
    assert!(agw.log().contains("not on PATH and are not offered"), "{}", agw.log());
    add("c\nd");
    add("second");
    kill_process(Pid::from_raw(agw.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    lab.submit_plan(&agq, &plan("second", "second", &[]));
    lab.submit_action(&agq, "second", "a", "[{}]");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed");
}

#[cfg(target_os = "linux")]
#[test]
fn tasks_inherit_no_files_and_only_the_variables_that_the_worker_names() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let inherited = File::open(lab.file("inherited", "")).unwrap();
    // The standard library opens every file with close-on-exec.
    fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
    let script = "readlink /proc/$$/fd/* | grep -c inherited; env | cut -d= -f1 | grep -v PWD | sort";
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", script]));
    let printed_by = |id: &str, args: &[&str]| {
        let mut agw = lab.command("agw");
        agw.env("AGQ_ADDR", agq.address()).env("GIVEN", "1").env("OTHER", "1").args(args);
        let mut agw = lab.agw_by(id, agw);
        lab.submit_action(&agq, "p", id, "[{}]");
        let job = ended(&lab, &agq, id);
        agw.terminate();
        agw.wait();
        job["stdout"].as_str().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = printed_by("w1", &[]);
    assert_eq!(all[0], "0");
    assert!(["GIVEN", "OTHER"].iter().all(|name| all.iter().any(|has| has == name)), "{all:?}");
    assert_eq!(printed_by("w2", &["--task-env", "GIVEN,UNSET"]), ["0", "AGW_RUN", "GIVEN", "PATH"]);
}
