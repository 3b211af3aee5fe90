//! Tests of the start and the end of children, by shell scripts.

use std::{fs, path::Path, time::Duration};

use agenix_protocol::byte_escape::encode_os;
#[cfg(target_os = "linux")]
use rustix::process::Pid;

use super::{Process, StageCommand};
#[cfg(target_os = "linux")]
use crate::exec::{inherited_limit, stray_sweep};
use crate::exec::{
    job_mark::JobMark,
    stages::{Stderr, Stdin, Stdout},
    subreaper,
};

const LONG: Duration = Duration::from_secs(60);

fn command(dir: &Path, script: &str) -> StageCommand {
    StageCommand {
        task_number: 1,
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        secret_env: Vec::new(),
        cwd: Some(encode_os(dir.as_os_str())),
        stdin: Stdin::Empty,
        stdout: Stdout::Spool,
        stderr: Stderr::Spool,
        timeout: LONG,
        idle_timeout: None,
        is_last: true,
    }
}

fn started(command: &StageCommand, mark: &JobMark) -> Process {
    let null = || fs::File::options().read(true).write(true).open("/dev/null").unwrap().into();
    let stdio = [null(), null(), null()];
    Process::start(Path::new("/bin/sh"), command, (mark, None), stdio).unwrap()
}

fn start(dir: &Path, script: &str) -> Process {
    // The run of the job lasts until the end of the test program.
    started(&command(dir, script), Box::leak(Box::new(JobMark::new())))
}

/// Waits until a script has written a line into `file`, and returns the line.
async fn written(file: &Path) -> String {
    loop {
        match fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn gone(pid: &str) {
    while Path::new("/proc").join(pid).exists() {
        subreaper::reap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_gets_the_bytes_of_byte_escapes() {
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().join(super::decode_os("caf\u{10fee9}"));
    fs::create_dir(&cwd).unwrap();
    let mut command = command(&cwd, r#"printf '%s\n' "$0" "$1" "$E" > got"#);
    command.args.extend(["\u{10feff}", "é\u{10fee9}"].map(String::from));
    command.env.push(("E".into(), "\u{10fe80}".into()));
    let ended = started(&command, &JobMark::new()).wait(LONG).await.unwrap();
    assert_eq!(ended.exit_code(), 0);
    assert_eq!(fs::read(cwd.join("got")).unwrap(), b"\xff\n\xc3\xa9\xe9\n\x80\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn end_has_the_bytes_of_waited_for_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let copies = "until [ -e go ]; do sleep 0.02; done; head -c 1000000 /dev/zero; :";
    let mut process = start(dir.path(), copies);
    fs::write(dir.path().join("go"), "").unwrap();
    let resources = process.wait(LONG).await.unwrap().resources;
    assert!(resources.read_bytes.is_some_and(|bytes| bytes >= 1_000_000), "{resources:?}");
    assert!(resources.written_bytes.is_some_and(|bytes| bytes >= 1_000_000), "{resources:?}");
}

#[tokio::test]
async fn end_gives_the_grace_to_descendants_of_the_first_process() {
    let dir = tempfile::tempdir().unwrap();
    let cleaning = "trap 'sleep 0.2; echo > cleaned; exit' TERM; echo > ready; while :; do sleep 0.02; done";
    let mut process = start(dir.path(), &format!("trap 'exit 5' TERM; ({cleaning}) & wait"));
    written(&dir.path().join("ready")).await;
    let ended = process.end_now(LONG).await.unwrap();
    assert_eq!(ended.exit_code(), 5);
    assert!(dir.path().join("cleaned").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn end_kills_processes_after_the_grace() {
    subreaper::begin();
    let dir = tempfile::tempdir().unwrap();
    let deaf = "sh -c 'trap : TERM; echo $$ > deaf; while :; do sleep 0.02; done'";
    let mut process = start(dir.path(), &format!("{deaf} & wait"));
    let pid = written(&dir.path().join("deaf")).await;
    process.end_now(Duration::from_millis(50)).await.unwrap();
    gone(&pid).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn end_goes_on_where_a_dropped_one_was() {
    subreaper::begin();
    let dir = tempfile::tempdir().unwrap();
    let deaf = "sh -c 'trap : TERM; echo > deaf; while :; do sleep 0.02; done'";
    let script = format!("echo $$ > pid; trap 'exit 5' TERM; {deaf} & wait");
    // The timeout is over at once, and the end then waits for the process that is deaf.
    let command = StageCommand { timeout: Duration::ZERO, ..command(dir.path(), &script) };
    let mut process = started(&command, &JobMark::new());
    for file in ["pid", "deaf"] {
        written(&dir.path().join(file)).await;
    }
    let pid = written(&dir.path().join("pid")).await;
    tokio::select! {
        _ = process.wait(LONG) => panic!("the deaf process has ended"),
        () = gone(&pid) => {}
    }
    let ended = process.end_now(Duration::ZERO).await.unwrap();
    assert_eq!((ended.exit_code(), ended.timed_out), (5, true));
    assert!(ended.resources.user_ms.is_some());
    assert_eq!(process.wait(LONG).await.unwrap(), ended);
}

#[tokio::test]
async fn end_reaches_a_stopped_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path(), "echo > ready; kill -STOP $$; exit 1");
    written(&dir.path().join("ready")).await;
    let ended = process.end_now(LONG).await.unwrap();
    assert_eq!(ended.signal(), Some(15), "and not 9");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn end_and_drop_kill_escaped_processes() {
    subreaper::begin();
    // The scripts do not exec, because a process has no readable environment during exec(2).
    let (dir, one) = (tempfile::tempdir().unwrap(), "sh -c 'echo $$ > one; while :; do sleep 0.02; done'");
    let two = "sh -c 'echo $$ > two; while :; do sleep 0.02; done'";
    for is_dropped in [false, true] {
        let mut process = start(dir.path(), &format!("setsid {one} & setsid -f {two}; sleep 1000"));
        let [one, two] = [written(&dir.path().join("one")).await, written(&dir.path().join("two")).await];
        if is_dropped {
            drop(process);
        } else {
            process.end_now(LONG).await.unwrap();
        }
        gone(&one).await;
        gone(&two).await;
        for file in ["one", "two"] {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn drop_leaves_the_first_process_to_be_reaped() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), "echo $$ > leader; exec sleep 1000");
    let leader = written(&dir.path().join("leader")).await;
    drop(process);
    gone(&leader).await;
}

/// Runs tasks that leave a process behind in each of `ways`, and returns the process ids.
#[cfg(target_os = "linux")]
async fn left_behind(mark: &JobMark, ways: &[&str]) -> Vec<Pid> {
    inherited_limit::begin();
    subreaper::begin();
    let mut pids = Vec::new();
    for way in ways {
        let dir = tempfile::tempdir().unwrap();
        // The first process waits, because the end of the task kills its process group.
        let script =
            format!("{way} sh -c 'echo $$ > pid; exec sleep 1000' & until [ -s pid ]; do sleep 0.02; done");
        let ended = started(&command(dir.path(), &script), mark).wait(LONG).await.unwrap();
        assert_eq!(ended.exit_code(), 0);
        pids.push(Pid::from_raw(written(&dir.path().join("pid")).await.parse().unwrap()).unwrap());
    }
    pids
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn escaped_processes_last_until_the_end_of_their_run() {
    let mark = JobMark::new();
    let ways = ["setsid", "setsid -f", "setsid nohup", "env -i setsid", "env -i setsid -f"];
    let pids = left_behind(&mark, &ways).await;
    assert!(stray_sweep::end().await.is_empty());
    let runs = |pid: &Pid| rustix::process::test_kill_process(*pid).is_ok();
    assert!(pids.iter().all(runs), "later tasks of the job may use them");
    drop(mark);
    assert!(stray_sweep::end().await.is_empty());
    assert!(!pids.iter().any(runs));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn unmarked_process_lasts_until_the_end_of_all_runs_that_it_may_belong_to() {
    let (one, other) = (JobMark::new(), JobMark::new());
    let pids = left_behind(&one, &["setsid", "env -i setsid"]).await;
    let running = || pids.iter().filter(|pid| rustix::process::test_kill_process(**pid).is_ok()).count();
    drop(one);
    stray_sweep::end().await;
    assert_eq!(running(), 1);
    drop(other);
    stray_sweep::end().await;
    assert_eq!(running(), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn subreaper_leaves_exit_codes_of_children_to_their_owner() {
    subreaper::begin();
    let dir = tempfile::tempdir().unwrap();
    for code in [0, 3, 7] {
        let mut process = start(dir.path(), &format!("exit {code}"));
        for _ in 0..50 {
            subreaper::reap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(process.wait(LONG).await.unwrap().exit_code(), code);
    }
}
