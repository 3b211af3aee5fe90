//! Tests of a stage.

use agenix_protocol::documents::CapturedOutput;

use super::{TaskResult, UnendedProcess, append, name_unended};

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
}
