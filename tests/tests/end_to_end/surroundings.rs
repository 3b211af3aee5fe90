//! Environment of a command: signals, descriptors, variables, a home directory, other commands at
//! the same time.

use std::{
    fs::{self, Permissions},
    io::Read,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use e2e::{Lab, Ran, eventually};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::{DownOnDrop, process_of};

/// Pipeline that creates the file `runs`, and runs until the file `go` exists or `runs` is removed.
const WAITS: &str = "sh -c 'touch runs; until test -e go || ! test -e runs; do sleep 0.02; done; echo $0' {}";

/// Returns an `agx` command without an address of agq.
fn agx(lab: &Lab, args: &[&str]) -> Command {
    let mut command = lab.command("agx");
    command.env("TMPDIR", tmp(lab)).env_remove("AGQ_SESSION_KEY").args(args);
    command
}

fn tmp(lab: &Lab) -> PathBuf {
    let tmp = lab.path().join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    tmp
}

fn left_behind(lab: &Lab) -> usize {
    fs::read_dir(tmp(lab)).unwrap().count()
}

fn ran(mut command: Command) -> Ran {
    Ran::from(command.output().unwrap())
}

fn started(lab: &Lab, mut command: Command) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the job runs", || lab.path().join("runs").exists().then_some(()));
    child
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn pid(child: &Child) -> i32 {
    child.id().cast_signed()
}

const UP: [&str; 6] = ["up", "--", "--port", "0", "--http", "off"];

fn home(lab: &Lab) -> PathBuf {
    lab.path().join("agx-home")
}

#[test]
fn terminal_that_closes_ends_a_map_and_its_directory() {
    let lab = Lab::on_files();
    let child = started(&lab, agx(&lab, &["map", "--", WAITS, ":::", "a"]));
    assert_eq!(left_behind(&lab), 1);
    signal(pid(&child), Signal::HUP);
    Ran::from(child.wait_with_output().unwrap()).expect(130);
    assert_eq!(left_behind(&lab), 0);
}

/// Returns a command of `launcher`, which executes `command`.
fn launched(lab: &Lab, launcher: &[&str], command: &Command) -> Command {
    let mut launched = Command::new(launcher[0]);
    launched.args(&launcher[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => launched.env(name, value),
            None => launched.env_remove(name),
        };
    }
    launched.current_dir(lab.path()).stdin(Stdio::null());
    launched
}

#[test]
fn map_that_ignores_signals_goes_on() {
    let lab = Lab::on_files();
    let shell = ["sh", "-c", "trap '' HUP INT TERM; exec \"$@\"", "sh"];
    let map = agx(&lab, &["map", "--", WAITS, ":::", "a"]);
    let child = started(&lab, launched(&lab, &shell, &map));
    for ignored in [Signal::HUP, Signal::INT, Signal::TERM] {
        signal(pid(&child), ignored);
    }
    lab.file("go", "");
    assert_eq!(Ran::from(child.wait_with_output().unwrap()).expect(0).out, "a\n");
}

#[test]
fn map_whose_parent_ignored_the_end_of_children_sees_the_end_of_its_own() {
    let lab = Lab::on_files();
    let env = ["env", "--ignore-signal=CHLD"];
    let map = agx(&lab, &["map", "--", "sh -c 'echo ran >> ran; echo $0' {}", ":::", "a"]);
    assert_eq!(ran(launched(&lab, &env, &map)).expect(0).out, "a\n");
    assert_eq!(fs::read_to_string(lab.path().join("ran")).unwrap(), "ran\n");
    let map = agx(&lab, &["map", "--", "sh -c 'kill -KILL $PPID'", ":::", "a"]);
    let killed = ran(launched(&lab, &env, &map)).expect(2).err;
    assert!(killed.contains("signal 9 (SIGKILL) ended it"), "{killed}");
}

#[test]
fn every_limit_of_processes_ends_with_results_or_a_message() {
    if !geteuid().is_root() {
        println!("SKIPPED: the limit would count the other processes of this user; run the test as root");
        return;
    }
    let lab = Lab::on_files();
    let (bin, tmp) = (lab.path().join("bin"), tmp(&lab));
    fs::create_dir(&bin).unwrap();
    for name in ["agx", "agq", "agw"] {
        let (program, copy) = (lab.bin().join(name), bin.join(name));
        fs::hard_link(&program, &copy).or_else(|_| fs::copy(&program, &copy).map(drop)).unwrap();
    }
    for (dir, mode) in [(lab.path(), 0o755), (bin.as_path(), 0o755), (tmp.as_path(), 0o777)] {
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }
    let mut map = Command::new(bin.join("agx"));
    map.env("TMPDIR", &tmp).env("AGX_HOME", home(&lab)).env_remove("AGQ_SESSION_KEY");
    map.args(["map", "-k", "--", "echo", ":::", "a", "b", "c"]);
    for limit in [3, 5, 7, 9, 12, 16, 20] {
        let nproc = format!("--nproc={limit}:{limit}");
        let user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"];
        let launcher = [&user[..], &["prlimit", nproc.as_str(), "timeout", "60"]].concat();
        let ran = ran(launched(&lab, &launcher, &map));
        let is_refused = [1, 2].contains(&ran.code) && !ran.err.is_empty();
        let is_done = ran.code == 0 && ran.out == "a\nb\nc\n";
        assert!(is_refused || is_done, "{limit}: {} {}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked"), "{limit}: {}", ran.err);
    }
}

#[test]
fn worker_that_is_stopped_does_not_hold_up_the_end() {
    let lab = Lab::on_files();
    let child = started(&lab, agx(&lab, &["map", "--", WAITS, ":::", "a"]));
    let agw = process_of("agw", &tmp(&lab)).unwrap();
    signal(agw, Signal::STOP);
    signal(pid(&child), Signal::TERM);
    Ran::from(child.wait_with_output().unwrap()).expect(130);
    assert!(e2e::is_gone(agw));
    assert_eq!(left_behind(&lab), 0);
}

#[test]
fn second_signal_ends_a_map_whose_output_nobody_reads() {
    let lab = Lab::on_files();
    let mut map = agx(&lab, &["map", "--", "sh -c 'head -c 1000000 /dev/zero'", ":::", "a"]);
    let mut child = map.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    // The task writes more bytes than a pipe holds, so agx blocks on its stdout.
    eventually("it ends", || {
        // agx may have ended already.
        let _gone = kill_process(Pid::from_child(&child), Signal::TERM);
        child.try_wait().unwrap()
    });
}

#[test]
fn signal_that_ended_a_worker_is_reported() {
    let lab = Lab::on_files();
    lab.file("inputs", &(1..=40).map(|n| format!("{n}\n")).collect::<String>());
    let script = "sh -c 'test $0 -gt 1 || kill -TERM $PPID' {}";
    let stderr = ran(agx(&lab, &["map", "-j", "1", "-a", "inputs", "--", script])).expect(2).err;
    assert!(stderr.contains("agw of this command has ended: SIGTERM or SIGINT asked it to end"), "{stderr}");
    assert!(stderr.contains("kill $PPID") && !stderr.contains("INFO"), "{stderr}");
    let killed = ran(agx(&lab, &["map", "--", "sh -c 'kill -KILL $PPID'", ":::", "a"])).expect(2).err;
    assert!(killed.contains("agw of this command has ended: signal 9 (SIGKILL) ended it"), "{killed}");
}

#[test]
fn of_several_that_start_at_once_one_runs_and_can_be_ended() {
    let lab = Lab::on_files();
    let _up = DownOnDrop(agx(&lab, &["down"]));
    let mut starting = Vec::new();
    for _ in 0..5 {
        let mut up = agx(&lab, &UP);
        starting.push(up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }
    let ended: Vec<Ran> =
        starting.into_iter().map(|child| Ran::from(child.wait_with_output().unwrap())).collect();
    let (well, others): (Vec<&Ran>, Vec<&Ran>) = ended.iter().partition(|ran| ran.code == 0);
    assert_eq!(well.len(), 1, "{ended:?}");
    for other in others {
        assert!(other.code == 2 && other.err.contains("a supervisor already runs"), "{other:?}");
    }
    assert_eq!(ran(agx(&lab, &["map", "--", "echo", ":::", "a"])).expect(0).out, "a\n");
    ran(agx(&lab, &["down"])).expect(0);
    for name in ["agq", "agw", "agx"] {
        assert_eq!(process_of(name, &home(&lab)), None, "{name}");
    }
}

#[test]
fn supervisor_is_not_blocked_by_a_silent_client() {
    let lab = Lab::on_files();
    let _up = DownOnDrop(agx(&lab, &["down"]));
    ran(agx(&lab, &UP)).expect(0);
    let _silent = UnixStream::connect(home(&lab).join("local/supervisor.sock")).unwrap();
    let agw = process_of("agw", &home(&lab)).unwrap();
    signal(agw, Signal::KILL);
    eventually("another worker runs", || (process_of("agw", &home(&lab))? != agw).then_some(()));
    ran(agx(&lab, &["down"])).expect(0);
}

#[test]
fn background_programs_keep_nothing_open() {
    let lab = Lab::on_files();
    let _up = DownOnDrop(agx(&lab, &["down"]));
    let up = agx(&lab, &UP);
    let mut shell = Command::new("bash");
    // The command substitution $(…) returns only after all writers of its pipe have closed it.
    shell.args([
        "-c",
        "exec 9>held; flock 9; printed=$(\"$@\") || exit; exec 9>&-; flock -n held true",
        "bash",
    ]);
    shell.arg(up.get_program()).args(up.get_args()).current_dir(lab.path());
    shell.env("AGX_HOME", home(&lab)).env_remove("AGQ_SESSION_KEY").env_remove("AGX_PROFILE");
    ran(shell).expect(0);
}

#[test]
fn start_that_fails_says_why() {
    let lab = Lab::on_files();
    let mut up = agx(&lab, &UP);
    let _up = DownOnDrop(agx(&lab, &["down"]));
    // AGQ_ADDR must not count as an option of agq.
    up.env("AGQ_ADDR", "127.0.0.1:1");
    let up = ran(up).expect(0);
    assert!(up.err.contains("says 127.0.0.1:1: this overrides the profile 'local'"), "{}", up.err);
    ran(agx(&lab, &["down"])).expect(0);
    let refused = |option: &str| ran(agx(&lab, &["up", "--", option])).expect(2).err;
    let unknown = refused("--no-such-option");
    assert!(unknown.contains("unexpected argument '--no-such-option'"), "{unknown}");
    let twice = ran(agx(&lab, &["up", "--", "--data-dir", "x"])).expect(2).err;
    assert!(twice.contains("'--data-dir <DIR>' cannot be used multiple times"), "{twice}");
    let mut long = agx(&lab, &UP);
    long.env("AGX_HOME", lab.path().join("x".repeat(100)));
    let long = ran(long).expect(2).err;
    assert!(long.contains("the path of a socket") && long.contains("choose a shorter AGX_HOME"), "{long}");
}

#[test]
fn missing_home_and_empty_variables_print_nothing() {
    let lab = Lab::on_files();
    for home in ["/dev/null", "/nonexistent", ""] {
        let mut map = agx(&lab, &["map", "--", "echo", ":::", "a"]);
        map.env_remove("AGX_HOME").env("HOME", home);
        let ran = ran(map).expect(0);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("a\n", ""), "{home}");
    }
    let empty = [
        "AGQ_ADDR",
        "AGX_PROFILE",
        "AGQ_SESSION_KEY_FILE",
        "AGQ_CA",
        "AGQ_CERT",
        "AGQ_KEY_FILE",
        "AGQ_URL",
        "AGQ_SESSION_KEY",
    ];
    let mut map = agx(&lab, &["map", "--", "echo", ":::", "a"]);
    map.envs(empty.map(|name| (name, "")));
    assert_eq!(ran(map).expect(0).out, "a\n");
    let here = lab.path().join("here");
    fs::create_dir(&here).unwrap();
    let mut map = agx(&lab, &["map", "--", "ls", "-A", ":::", "."]);
    map.env("TMPDIR", "").current_dir(&here);
    assert_eq!(ran(map).expect(0).out, "", "nothing is created in the current directory");
    // Kubernetes sets these variables for a Service named agq.
    let mut linked = agx(&lab, &["map", "--", "echo", ":::", "a"]);
    linked.envs([("AGQ_PORT", "tcp://10.0.0.1:6380"), ("AGQ_SERVICE_HOST", "10.0.0.1")]);
    assert_eq!(ran(linked).expect(0).out, "a\n");
}

#[test]
fn down_says_what_it_waits_for() {
    let lab = Lab::on_files();
    let _up = DownOnDrop(agx(&lab, &["down"]));
    ran(agx(&lab, &UP)).expect(0);
    let map = started(&lab, agx(&lab, &["map", "--", WAITS, ":::", "a"]));
    let mut down = agx(&lab, &["down"]);
    let log = lab.path().join("down.log");
    let mut down = down.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    eventually("it says so", || {
        let logged = fs::read_to_string(&log).unwrap();
        logged.contains("waiting for the jobs that its worker runs").then_some(())
    });
    lab.file("go", "");
    assert!(down.wait().unwrap().success());
    // agx has lost its agq, and may or may not have the result.
    signal(pid(&map), Signal::INT);
    drop(map.wait_with_output().unwrap());
}
