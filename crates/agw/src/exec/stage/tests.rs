//! Tests of a stage, by shell scripts.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use agenix_order::Envelope;
use agenix_protocol::documents::{CapturedOutput, parse};
use rustix::{
    io::Errno,
    process::{WaitId, WaitIdOptions, waitid},
};

use super::{
    ExecContext, LiveOutput, SpoolFile, Stage, TaskInputs, TaskResult, UnendedProcess, append, name_unended,
    start_with_retry, stderr_with,
};
use crate::exec::{
    cancel::CancelToken,
    job_mark::JobMark,
    launch::Launcher,
    programs::OfferedPrograms,
    provenance::{JobRecord, ProvenanceSigner},
    secrets::Patterns,
    stages::{StageCommand, Stderr, Stdin, Stdout},
};

fn shell(directory: &Path, script: &str, stdout: Stdout) -> StageCommand {
    StageCommand {
        task_number: 1,
        program: "sh".into(),
        args: ["-c", script].map(String::from).to_vec(),
        env: Vec::new(),
        secret_env: Vec::new(),
        cwd: Some(directory.to_str().unwrap().into()),
        stdin: Stdin::Empty,
        stdout,
        stderr: Stderr::Spool,
        timeout: Duration::from_secs(60),
        idle_timeout: None,
        is_last: true,
    }
}

/// Runs a stage of `commands`, whose output is masked if there are `patterns`.
async fn run(
    context: &ExecContext,
    commands: Vec<StageCommand>,
    patterns: Option<&Arc<Patterns>>,
) -> (Vec<TaskResult>, TaskInputs) {
    let (mark, mut inputs) = (JobMark::new(), TaskInputs::default());
    let launcher = launcher(&mark, patterns);
    let stage = Stage { commands, pipefail: true };
    let (cancel, live_output) = (CancelToken::default(), LiveOutput::default());
    let ran = super::run(&stage, context, (&mut inputs, launcher), (&cancel, &live_output)).await;
    (ran, inputs)
}

fn launcher<'j>(mark: &'j JobMark, patterns: Option<&'j Arc<Patterns>>) -> Launcher<'j> {
    Launcher { mark, sandbox: None, patterns, processor: None, record: None, resources: None }
}

fn context(spool: &Path) -> ExecContext {
    ExecContext::for_tests(spool, OfferedPrograms::find(OsStr::new("/usr/bin:/bin"), None))
}

#[tokio::test]
async fn stage_that_cannot_be_started_has_ended_its_processes() {
    let dir = tempfile::tempdir().unwrap();
    let deaf = shell(dir.path(), "trap '' TERM; while :; do sleep 0.02; done", Stdout::Pipe);
    let absent = StageCommand {
        task_number: 2,
        program: "no-such-program".into(),
        stdin: Stdin::Pipe,
        ..shell(dir.path(), "", Stdout::Spool)
    };
    let (ran, _) = run(&context(dir.path()), vec![deaf, absent], None).await;
    let results: Vec<_> = ran.iter().map(|result| (result.task_number, result.exit_code)).collect();
    assert!(results == [(1, 137), (2, 127)] || results == [(1, 143), (2, 127)], "{results:?}");
    let blamed = TaskResult::blamed(&ran).map(|result| result.task_number);
    assert_eq!(blamed, Some(2), "the worker has ended the first task");
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    assert_eq!(waitid(WaitId::All, options).unwrap_err(), Errno::CHILD, "no child is left");
}

#[tokio::test]
async fn only_a_task_that_has_started_has_a_start_in_its_statement() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&broken, Permissions::from_mode(0o700)).unwrap();
    let path = std::env::join_paths([dir.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let context = ExecContext::for_tests(dir.path(), OfferedPrograms::find(&path, None));
    let job = br#"{"job_id":"j","action_id":"a","plan_id":"p","plan":{},"inputs":{},"attempt":1}"#;
    let job = parse(job).unwrap();
    for (program, is_started) in [("sh", true), ("broken", false)] {
        let key = dir.path().join(program).with_extension("key");
        let record = JobRecord::new(ProvenanceSigner::open(&key).unwrap(), 1, None);
        let command = StageCommand { program: program.into(), ..shell(dir.path(), "exit 3", Stdout::Spool) };
        let (mark, mut inputs) = (JobMark::new(), TaskInputs::default());
        let launcher = Launcher { record: Some(&record), ..launcher(&mark, None) };
        let stage = Stage { commands: vec![command], pipefail: true };
        let (cancel, live_output) = (CancelToken::default(), LiveOutput::default());
        let ran = super::run(&stage, &context, (&mut inputs, launcher), (&cancel, &live_output));
        let mut results = ran.await;
        record.sign(&job, None, Vec::new(), &mut results).await;
        let envelope = Envelope::from_document(results[0].provenance.as_ref().unwrap()).unwrap();
        let statement = String::from_utf8(envelope.payload).unwrap();
        for field in ["startedOn", "finishedOn", "argv", "resolvedDependencies\":[{"] {
            assert_eq!(statement.contains(field), is_started, "{program}, {field}: {statement}");
        }
    }
}

#[tokio::test]
async fn stderr_in_a_file_counts_for_the_idle_timeout_of_another_task() {
    let dir = tempfile::tempdir().unwrap();
    let (context, mark, cancel) = (context(dir.path()), JobMark::new(), CancelToken::default());
    let shell = shell(dir.path(), "echo 12345 >&2", Stdout::Spool);
    let command = StageCommand { stderr: Stderr::File("progress".into()), ..shell };
    let inputs = (&TaskInputs::default(), launcher(&mark, None));
    let started = start_with_retry(&command, None, &context, inputs, &cancel).await;
    let Ok((mut started, _)) = started else { panic!("the shell has not been started") };
    started.wait(Duration::ZERO).await.unwrap();
    let sizes = started.written.files.iter().map(|file| file.metadata().unwrap().len());
    assert_eq!(sizes.sum::<u64>(), 6);
}

#[tokio::test]
async fn stage_leaves_the_file_of_a_plan_closed() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let file = Stdout::File(program.to_str().unwrap().into());
    let (ran, inputs) = run(&context(dir.path()), vec![shell(dir.path(), "cat /bin/true", file)], None).await;
    assert_eq!(ran[0].exit_code, 0);
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    // The system refuses a program that is open for writing.
    assert!(Command::new(&program).status().unwrap().success());
    assert!(inputs.outputs.is_empty());
}

#[tokio::test]
async fn stage_without_grace_has_the_whole_masked_output() {
    // The task writes all into its pipe and ends. Each byte may begin one of many secrets, so that
    // the relay has not masked all bytes by then.
    const BYTES: u64 = 60_000;
    let secrets: Vec<_> = (0..100).map(|number| format!("\0{number:08}")).collect();
    let dir = tempfile::tempdir().unwrap();
    let context = ExecContext { kill_grace: Duration::ZERO, ..context(dir.path()) };
    let patterns = Arc::new(Patterns::of(secrets.iter().map(String::as_bytes)));
    let script = format!("head -c {BYTES} /dev/zero");
    let commands = vec![shell(dir.path(), &script, Stdout::Spool)];
    let (ran, _) = run(&context, commands, Some(&patterns)).await;
    let result = &ran[0];
    assert_eq!((result.exit_code, result.stdout.total), (0, BYTES));
}

#[test]
fn processes_that_still_run_are_named_in_the_last_result() {
    let mut results = [TaskResult::default(), TaskResult::default()];
    let unended = ["7 (a)", "8 (b)"].map(|name| UnendedProcess { run: None, name: name.into() });
    name_unended(&mut results, unended.iter(), 1000);
    let stderr = results.map(|result| String::from_utf8(result.stderr.bytes).unwrap());
    let line = |name| format!("agw: process {name} of this job could not be ended\n");
    assert_eq!(stderr, [String::new(), line("7 (a)") + &line("8 (b)")]);
    name_unended(&mut [], unended.iter(), 1000);
}

#[test]
fn append_keeps_the_line_whole_and_cuts_earlier_text() {
    let appended = |bytes: &[u8], total, most| {
        let mut kept = CapturedOutput::inline(bytes.to_vec(), total);
        append(&mut kept, "ended\n", most);
        (String::from_utf8(kept.bytes).unwrap(), kept.total)
    };
    assert_eq!(appended(b"", 0, 100), ("ended\n".into(), 6));
    assert_eq!(appended(b"one", 3, 100), ("one\nended\n".into(), 10));
    assert_eq!(appended(b"y\ny\ny\ny\n", 9000, 10), ("y\ny\nended\n".into(), 9000));
    let (text, total) = appended(b"12345678", 8, 10);
    assert!(text == "123\nended\n" && total > 10, "the stream counts as truncated: {total}");
}

#[test]
fn stderr_with_a_line_of_the_worker_has_it_in_its_file_and_in_its_result() {
    const MAX_BYTES: usize = 100;
    for bytes in [0, 10, MAX_BYTES - 5, MAX_BYTES + 1] {
        let file = SpoolFile::from(tempfile::tempfile().unwrap());
        let text = if bytes == 0 { String::new() } else { "x".repeat(bytes) + "\n" };
        // The last line of the task has no line feed.
        file.write_all_at(text.trim_end().as_bytes(), 0).unwrap();
        let kept = stderr_with("ended\n", Some(&file), MAX_BYTES);
        let mut whole = vec![0; usize::try_from(file.length()).unwrap()];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), text + "ended\n");
        assert!(kept.bytes.ends_with(b"ended\n"), "{bytes}");
        assert_eq!((kept.total, kept.is_truncated()), (whole.len() as u64, whole.len() > MAX_BYTES));
    }
    let without_file = stderr_with("ended\n", None, MAX_BYTES);
    assert_eq!((without_file.bytes.as_slice(), without_file.total), (&b"ended\n"[..], 6));
    assert_eq!(stderr_with("", None, MAX_BYTES).total, 0);
}
