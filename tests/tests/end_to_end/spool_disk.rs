//! A worker whose spool is a small disk, or a directory that cannot be used, and a map on a small
//! disk.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Agq, Agw, Lab, Ran, eventually};
use rustix::process::geteuid;

use crate::{
    running::RunningCommand,
    support::{ended, plan},
};

/// Returns a command that runs `command` with a disk of 64 MiB at the new directory `disk`.
fn with_small_disk(lab: &Lab, disk: &Path, command: &Command) -> Command {
    fs::create_dir(disk).unwrap();
    let mut unshare = Command::new("unshare");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare.current_dir(lab.path()).stdin(Stdio::null());
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let script = "mount -t tmpfs -o size=64m none \"$0\" && exec \"$@\"";
    unshare.args(["--mount", "sh", "-c", script]).arg(disk);
    unshare.arg(command.get_program()).args(command.get_args());
    unshare
}

/// Starts a worker whose spool is a disk of 64 MiB.
fn worker_with_small_spool(lab: &Lab, agq: &Agq) -> Agw {
    let (spool, mut agw) = (lab.path().join("spool"), lab.command("agw"));
    agw.env("AGQ_ADDR", agq.address()).env("AGW_SPOOL_DIR", &spool).args(["--max-concurrent-jobs", "2"]);
    lab.agw_by("w1", with_small_disk(lab, &spool, &agw))
}

fn run(lab: &Lab, agq: &Agq, args: &[&str]) -> Command {
    let mut command = lab.command("agx");
    command.env("AGQ_ADDR", agq.address()).env("TMPDIR", lab.path()).args(["run", "--"]).args(args);
    command
}

#[test]
fn input_that_is_larger_than_the_disk_of_the_spool_fails_its_job_alone() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker_with_small_spool(&lab, &agq);
    let count = |bytes| {
        let input = lab.path().join("input");
        File::create(&input).unwrap().set_len(bytes).unwrap();
        let input = File::open(input).unwrap();
        RunningCommand::with_stdin(&mut run(&lab, &agq, &["wc", "-c"]), input.into()).end()
    };
    let go = lab.path().join("go");
    let script = format!("echo began; until [ -e '{}' ]; do sleep 0.02; done; echo ended", go.display());
    let mut other = RunningCommand::start(&mut run(&lab, &agq, &["sh", "-c", &script]));
    assert_eq!(other.line(), "began\n");
    let (code, _, err) = count(100_000_000);
    assert!(code != 0 && err.contains("the disk of the spool has 67108864"), "{code} {err}");
    let (code, out, err) = count(50_000_000);
    assert_eq!((code, out.trim()), (0, "50000000"), "{err}");
    fs::write(go, "").unwrap();
    let (code, out, err) = other.end();
    assert_eq!((code, out.as_str()), (0, "ended\n"), "{err}");
}

#[test]
fn map_on_a_small_disk_returns_an_output_that_fits() {
    let lab = Lab::on_files();
    let disk = lab.path().join("tmp");
    let mut map = lab.command("agx");
    map.env("TMPDIR", &disk).env_remove("AGQ_SESSION_KEY");
    map.args(["map", "--", "seq", "{}", ":::", "100000"]);
    let ran = Ran::from(with_small_disk(&lab, &disk, &map).output().unwrap()).expect(0);
    assert_eq!(ran.out.lines().count(), 100_000);
}

#[test]
fn jobs_wait_while_the_spool_cannot_be_used() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let spool = lab.path().join("spool");
    let agw = lab.agw(&agq, "w1", &["--spool-dir", spool.to_str().unwrap()]);
    lab.submit_plan(&agq, &plan("echo", "echo", &["hello"]));
    fs::remove_dir(&spool).unwrap();
    lab.submit_action(&agq, "echo", "missing", "[{}]");
    assert_eq!(ended(&lab, &agq, "missing")["status"], "completed");
    let aside = lab.path().join("aside");
    fs::rename(&spool, &aside).unwrap();
    fs::write(&spool, "").unwrap();
    // The outputs of these tasks need more files than agw has left from earlier jobs.
    let task = |number: u32| format!(r#"{{"task_number":{number},"command":"echo"}}"#);
    let tasks: Vec<String> = (1..=8).map(task).collect();
    let tasks = tasks.join(",");
    lab.submit_plan(&agq, &format!(r#"{{"plan_id":"many","max_retries":0,"tasks":[{tasks}]}}"#));
    lab.submit_action(&agq, "many", "unusable", "[{}]");
    eventually("it waits", || agw.log().contains("cannot be started now and waits").then_some(()));
    fs::remove_file(&spool).unwrap();
    let job = ended(&lab, &agq, "unusable");
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &1.into()), "{job}");
}
