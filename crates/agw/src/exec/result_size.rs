//! Size of the results in the report of a job.

use agenix_protocol::{
    documents::{TaskResult, to_json},
    limits::MAX_UPDATE_BYTES,
};
use serde_json::value::RawValue;

/// Number of bytes of a report that statements and names of blobs may take.
const STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// Number of bytes of a report that are left free for the names of the blobs of a task.
pub(crate) const NAME_BYTES: usize = 256;

/// Returns the results as JSON of at most `max` bytes. Larger results are truncated stream by
/// stream, and each truncated stream is marked. If all streams are empty, the JSON may exceed
/// `max`.
pub(crate) fn fit(results: &mut [TaskResult], max: usize) -> Box<RawValue> {
    let longest = |results: &[TaskResult]| {
        results
            .iter()
            .map(|result| result.stdout.bytes.len().max(result.stderr.bytes.len()))
            .max()
            .unwrap_or_default()
    };
    let mut json = to_json(&results);
    while json.len() > max && longest(results) > 0 {
        let cap = longest(results) / 2;
        for result in results.iter_mut() {
            result.stdout.truncate(cap);
            result.stderr.truncate(cap);
        }
        json = to_json(&results);
    }
    if json.len() > max && results.iter().any(|result| result.provenance.is_some()) {
        results.iter_mut().for_each(|result| result.provenance = None);
        json = to_json(&results);
    }
    RawValue::from_string(json).expect("serde_json writes valid JSON")
}

/// Truncates large results, so that the report has room for their statements, which have to be
/// about the bytes that agq gets.
pub(crate) fn make_room(results: &mut [TaskResult]) {
    let bytes = |result: &TaskResult| result.stdout.bytes.len() + result.stderr.bytes.len();
    // A byte takes at most six bytes in JSON.
    if results.iter().map(bytes).sum::<usize>() > (MAX_UPDATE_BYTES - STATEMENT_BYTES) / 6 {
        let _json = fit(results, MAX_UPDATE_BYTES - STATEMENT_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{CapturedOutput, DsseEnvelope, TaskResult};

    use super::{STATEMENT_BYTES, fit, make_room};

    fn result(stderr: &str) -> TaskResult {
        TaskResult { task_number: 2, stderr: CapturedOutput::whole(stderr.into()), ..TaskResult::default() }
    }

    #[test]
    fn results_are_truncated_to_the_size_limit() {
        let mut results = vec![result(&"\u{1}".repeat(1000)), result("kept")];
        let json = fit(&mut results, 2000);
        assert!(json.get().len() <= 2000);
        assert!(results[0].stderr.is_truncated() && results[0].stderr.total == 1000);
        assert_eq!(results[1].stderr.bytes, b"kept");
    }

    #[test]
    fn statements_that_do_not_fit_are_left_out_and_large_results_make_room_for_them() {
        let envelope =
            DsseEnvelope { payload_type: String::new(), payload: "x".repeat(3000), signatures: Vec::new() };
        let mut results = [TaskResult { provenance: Some(envelope), ..result("kept") }];
        assert!(fit(&mut results, 4000).get().len() > 3000);
        assert!(fit(&mut results, 2000).get().len() < 2000);
        let mut results = [result("kept"), result(&"x".repeat(2 * STATEMENT_BYTES))];
        make_room(&mut results[..1]);
        assert!(!results[0].stderr.is_truncated());
        make_room(&mut results);
        assert!(results[1].stderr.is_truncated());
    }
}
