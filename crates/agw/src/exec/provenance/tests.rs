//! Tests of statements.

use std::{ffi::OsStr, io::Write, sync::Arc, time::Duration};

use agenix_order::{DigestSet, Envelope, Statement, TrustFile};
use agenix_protocol::{
    blob::OutputStream,
    documents::{CapturedOutput, JobDocument, TaskAdmission, TaskResult, parse},
};

use super::{JobRecord, ProvenanceSigner};
use crate::exec::{
    live_output::LargeOutput,
    programs::OfferedPrograms,
    secrets::Patterns,
    spool::SpoolFile,
    stages::{StageCommand, Stderr, Stdin, Stdout},
};

fn job() -> JobDocument {
    let json = br#"{"job_id":"j","action_id":"a","plan_id":"p","plan":{},"inputs":{"n": 1},"attempt":2}"#;
    parse(json).unwrap()
}

fn command(args: &[&str]) -> StageCommand {
    StageCommand {
        task_number: 1,
        program: "sh".into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: vec![("TOKEN".into(), "hidden-in-the-environment".into())],
        secret_env: Vec::new(),
        cwd: None,
        stdin: Stdin::Empty,
        stdout: Stdout::Spool,
        stderr: Stderr::Spool,
        timeout: Duration::from_secs(1),
        idle_timeout: None,
        is_last: true,
    }
}

/// Signs a result of task 1, and returns the statement.
async fn signed(
    result: TaskResult,
    args: &[&str],
    patterns: Option<Arc<Patterns>>,
    large: Vec<LargeOutput>,
) -> Statement {
    let dir = tempfile::tempdir().unwrap();
    let provenance = ProvenanceSigner::open(&dir.path().join("key")).unwrap();
    let trust = format!("[workers.w1]\nkey = \"{}\"", provenance.public());
    let record = JobRecord::new(provenance, 1, patterns);
    let task = record.task(&command(args), &OfferedPrograms::find(OsStr::new("/usr/bin:/bin"), None));
    record.add(1, task);
    let mut results = [result];
    record.sign(&job(), Some("w1".parse().unwrap()), large, &mut results).await;
    let envelope = Envelope::from_document(results[0].provenance.as_ref().unwrap()).unwrap();
    let payload = String::from_utf8(envelope.payload.clone()).unwrap();
    assert!(!payload.contains("hidden"), "{payload}");
    let (statement, worker) = Statement::open(&envelope, &TrustFile::parse(&trust).unwrap()).unwrap();
    assert_eq!(worker, "w1");
    statement
}

fn result(stdout: CapturedOutput) -> TaskResult {
    TaskResult { task_number: 1, command: "sh".into(), stdout, ..TaskResult::default() }
}

#[tokio::test]
async fn statement_names_the_task_its_program_and_its_streams() {
    let admission = TaskAdmission { order: Some("sha256:ab".into()), ..TaskAdmission::default() };
    let result = TaskResult { admission: Some(admission), ..result(CapturedOutput::whole("out".into())) };
    let statement = signed(result, &["-c", "echo"], None, Vec::new()).await;
    let identity = statement.identity();
    assert_eq!((identity.job_id.as_str(), identity.attempt, identity.task_count), ("j", 2, 1));
    assert_eq!(identity.input_sha256, DigestSet::of(br#"{"n": 1}"#).sha256);
    let run = &statement.predicate.build_definition.internal_parameters;
    assert_eq!(run.argv.as_ref().unwrap(), &["sh", "-c", "echo"]);
    let program = statement.dependency("program").unwrap();
    assert!(program.uri.as_ref().unwrap().ends_with("/sh") && program.digest.is_some(), "{program:?}");
    assert_eq!(statement.dependency("order").unwrap().digest.as_ref().unwrap().sha256, "ab");
    assert!(statement.predicate.run_details.metadata.started_on.is_some());
    let stdout = statement.subject("stdout").unwrap();
    assert_eq!((&stdout.digest, stdout.annotations.total), (&DigestSet::of(b"out"), 3));
    assert_eq!(statement.subject("stderr").unwrap().annotations.total, 0);
    assert!(statement.subject("stdout.first").is_none());
}

#[tokio::test]
async fn large_stream_has_the_digest_of_all_bytes_and_of_the_first_ones() {
    let bytes = vec![7; 600_000];
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let (stream, file) = (OutputStream::Stdout, Arc::new(SpoolFile::from(file)));
    let large = LargeOutput { task_number: 1, stream, file, length: 600_000 };
    // A process that the task left behind wrote the other bytes.
    let result = result(CapturedOutput::whole(vec![7; 10]));
    let statement = signed(result, &[], None, vec![large]).await;
    let (whole, first) = (statement.subject("stdout").unwrap(), statement.subject("stdout.first").unwrap());
    assert_eq!((&whole.digest, whole.annotations.bytes), (&DigestSet::of(&bytes), 600_000));
    assert_eq!((&first.digest, first.annotations.bytes), (&DigestSet::of(&[7; 10]), 10));
    assert_eq!((whole.annotations.total, first.annotations.total), (600_000, 600_000));
}

#[tokio::test]
async fn statement_has_no_secrets_and_no_huge_arguments() {
    let patterns = Arc::new(Patterns::of([&b"hidden-secret"[..]].into_iter()));
    let empty = || result(CapturedOutput::default());
    let masked = signed(empty(), &["--key=hidden-secret"], Some(patterns), Vec::new()).await;
    let argv = |statement: &Statement| {
        statement.predicate.build_definition.internal_parameters.argv.clone().map(|argv| argv.join(" "))
    };
    assert_eq!(argv(&masked).unwrap(), "sh --key=***");
    assert_eq!(argv(&signed(empty(), &[&"x".repeat(20_000)], None, Vec::new()).await), None);
}

#[tokio::test]
async fn task_that_was_not_started_has_a_statement_without_a_program() {
    let not_started = TaskResult { task_number: 2, exit_code: 127, ..TaskResult::default() };
    let statement = signed(not_started, &[], None, Vec::new()).await;
    assert_eq!((statement.end().unwrap().exit_code, statement.dependency("program")), (127, None));
    assert_eq!(statement.predicate.run_details.metadata.started_on, None);
}
