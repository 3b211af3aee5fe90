//! Tests of the checks before a job starts.

use std::ffi::OsStr;

use agenix_protocol::documents::{JobDocument, parse};

use super::{ExecContext, Unadmitted, read};
use crate::exec::programs::OfferedPrograms;

#[test]
fn job_that_needs_more_open_files_than_the_worker_has_fails_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let of = |most_files| {
        let programs = OfferedPrograms::find(OsStr::new(""), None);
        ExecContext { most_files, ..ExecContext::for_tests(dir.path(), programs) }
    };
    let tasks = r#"{"task_number":1,"command":"cat"},
        {"task_number":2,"command":"cat","input_from_task":1,"stream":true}"#;
    let json = format!(
        r#"{{"job_id":"j","action_id":"a","plan_id":"p","plan":{{"tasks":[{tasks}]}},"inputs":{{}},"attempt":1}}"#
    );
    let job: JobDocument = parse(json.as_bytes()).unwrap();
    assert!(read(&job, 1, &of(15)).is_ok());
    let Err(Unadmitted::Failed(reason)) = read(&job, 1, &of(14)) else { panic!("it would wait for ever") };
    assert!(reason.starts_with("it needs 15 open files at a time, and this worker has 14"), "{reason}");
}
