//! Report of a job that has ended.

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    documents::{JobDocument, JobUpdate, Status, TaskResult, parse},
    limits::MAX_UPDATE_BYTES,
};
use serde_json::value::RawValue;

use crate::exec::result_size::{NAME_BYTES, fit};

/// Returns the report of a job that has ended: failed, if there is an error.
pub(crate) fn finished(job: &JobDocument, error: Option<String>, mut results: Vec<TaskResult>) -> JobUpdate {
    let most = MAX_UPDATE_BYTES.saturating_sub(results.len() * NAME_BYTES);
    JobUpdate {
        status: Some(if error.is_none() { Status::Completed } else { Status::Failed }),
        attempt: Some(job.attempt),
        error,
        task_results: Some(fit(&mut results, most)),
        ..JobUpdate::default()
    }
}

/// Returns the reason of a task's failure as a sentence, with the last line of its stderr.
pub(super) fn reason(result: &TaskResult) -> String {
    let (number, command) = (result.task_number, &result.command);
    if result.idle_timed_out {
        return format!("Task {number} timed out, because nothing was written for the idle timeout");
    }
    if result.timed_out {
        return format!("Task {number} timed out");
    }
    let how = match result.signal {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("exited with code {}", result.exit_code),
    };
    let stderr = String::from_utf8_lossy(&result.stderr.bytes);
    let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty());
    let last_line = last_line.map(|line| format!(": {}", line.trim().chars().take(300).collect::<String>()));
    format!("Task {number} ({command}) {how}{}", last_line.unwrap_or_default())
}

/// Returns the results of an update if one of their streams is truncated, otherwise none.
pub(crate) fn truncated_results(update: &JobUpdate) -> Vec<TaskResult> {
    let json = update.task_results.as_deref().map_or("[]", RawValue::get);
    // Most updates are not parsed. The text of a stream has no unescaped quotes.
    let fields = [r#""stdout_truncated":true"#, r#""stderr_truncated":true"#];
    if fields.iter().any(|field| json.contains(field)) {
        parse(json.as_bytes()).unwrap_or_default()
    } else {
        Vec::new()
    }
}

/// Names the blobs of uploaded streams in the results of an update, with their lengths: a process
/// that a task left behind may have written on after the task.
pub(crate) fn name_blobs(update: &mut JobUpdate, blobs: &[(u32, OutputStream, u64, BlobHash)]) {
    if blobs.is_empty() {
        return;
    }
    let json = update.task_results.as_deref().map_or("[]", RawValue::get);
    let mut results: Vec<TaskResult> = parse(json.as_bytes()).unwrap_or_default();
    for (task_number, stream, length, hash) in blobs {
        let result = results.iter_mut().find(|result| result.task_number == *task_number);
        if let Some(result) = result {
            let stream = result.stream_mut(*stream);
            (stream.total, stream.blob) = (*length, Some(*hash));
        }
    }
    update.task_results = Some(fit(&mut results, MAX_UPDATE_BYTES));
}

/// Returns `update` with task results of at most `most` bytes, or without any if `most` is 0.
pub(crate) fn shrunk(update: JobUpdate, most: usize) -> JobUpdate {
    let results = update.task_results.as_deref().filter(|_| most > 0);
    let results = results.and_then(|results| parse::<Vec<TaskResult>>(results.get().as_bytes()).ok());
    JobUpdate { task_results: results.map(|mut results| fit(&mut results, most)), ..update }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        blob::{BlobHash, OutputStream},
        documents::{CapturedOutput, JobDocument, TaskResult, parse, to_json},
        limits::MAX_UPDATE_BYTES,
    };

    use super::{finished, name_blobs, reason, truncated_results};

    fn result(exit_code: i32, stderr: &str) -> TaskResult {
        let stderr = CapturedOutput::whole(stderr.into());
        TaskResult { task_number: 2, command: "sort".into(), exit_code, stderr, ..TaskResult::default() }
    }

    #[test]
    fn failure_reason_is_a_sentence_with_the_last_line_of_stderr() {
        assert_eq!(
            reason(&result(2, "a\nno such file\n\n")),
            "Task 2 (sort) exited with code 2: no such file"
        );
        let killed = TaskResult { signal: Some(9), ..result(137, "") };
        assert_eq!(reason(&killed), "Task 2 (sort) was ended by signal 9");
        let late = TaskResult { timed_out: true, ..result(143, "") };
        assert_eq!(reason(&late), "Task 2 timed out");
        let idle = TaskResult { idle_timed_out: true, ..late };
        assert_eq!(reason(&idle), "Task 2 timed out, because nothing was written for the idle timeout");
    }

    #[test]
    fn streams_that_the_size_of_a_report_truncates_are_the_ones_that_are_named() {
        let job = br#"{"job_id":"j","action_id":"a","plan_id":"p","plan":{},"inputs":{},"attempt":1}"#;
        let job: JobDocument = parse(job).unwrap();
        assert!(truncated_results(&finished(&job, None, vec![result(0, "short")])).is_empty());
        // With the name of one blob, these results would no longer fit.
        let stdout = CapturedOutput::inline(b"first".to_vec(), 9_000_000);
        let mut results = vec![TaskResult { stdout, ..result(0, &"x".repeat(1_000_000)) }];
        let room = MAX_UPDATE_BYTES - 10 - to_json(&results).len();
        results[0].stderr = CapturedOutput::whole("x".repeat(1_000_000 + room).into());
        assert_eq!(to_json(&results).len(), MAX_UPDATE_BYTES - 10);
        let mut update = finished(&job, None, results);
        let streams = [OutputStream::Stdout, OutputStream::Stderr];
        let truncated = truncated_results(&update);
        let is_large = |stream: &OutputStream| truncated[0].stream(*stream).is_truncated();
        let named = |stream| (2, stream, 9_000_000, BlobHash([1; 32]));
        let blobs: Vec<_> = streams.into_iter().filter(is_large).map(named).collect();
        name_blobs(&mut update, &blobs);
        let named = truncated_results(&update);
        assert!(streams.iter().all(|stream| !named[0].stream(*stream).is_cut()), "{blobs:?}");
    }

    #[test]
    fn stream_with_a_blob_has_the_length_of_the_blob() {
        let job = br#"{"job_id":"j","action_id":"a","plan_id":"p","plan":{},"inputs":{},"attempt":1}"#;
        let mut update = finished(&parse(job).unwrap(), None, vec![result(0, "a\n")]);
        name_blobs(&mut update, &[(2, OutputStream::Stderr, 700_000, BlobHash([1; 32]))]);
        let results = truncated_results(&update);
        let stderr = &results[0].stderr;
        assert_eq!((stderr.total, stderr.bytes.as_slice()), (700_000, &b"a\n"[..]));
    }
}
