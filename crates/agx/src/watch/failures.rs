//! Reports failed jobs while an action is watched, with their last lines of stderr.

use std::collections::HashSet;

use agenix_client::ClientError;
use agenix_protocol::{
    byte_escape,
    documents::{ActionStatus, JobStatus, Status, TaskResult},
    ids::JobId,
};

use crate::{remote::retrying_client::RetryingClient, util::printable::one_line};

/// Maximum number of failures that are reported individually.
pub(crate) const MAX_REPORTED: usize = 20;
/// Number of the last lines of stderr in a report.
const LINES: usize = 3;
/// Maximum width of a line and of an input, in characters.
const WIDEST: usize = 200;

/// Failures that were reported.
#[derive(Default)]
pub(crate) struct FailureNotices {
    reported: HashSet<JobId>,
}

impl FailureNotices {
    /// Returns the reports of the jobs that have failed since the last call.
    pub(crate) async fn new_failures(
        &mut self,
        agq: &mut RetryingClient,
        action: &ActionStatus,
    ) -> Result<Vec<String>, ClientError> {
        let (mut news, failed) = (Vec::new(), action.failed + action.dead);
        if self.reported.len() >= MAX_REPORTED || failed <= self.reported.len() as u64 {
            return Ok(news);
        }
        for status in [Status::Failed, Status::Dead] {
            let mut jobs = agq.jobs_of(action, status).await?;
            jobs.retain(|job_id| !self.reported.contains(job_id));
            jobs.truncate(MAX_REPORTED - self.reported.len());
            for job in agq.jobs(&jobs).await?.into_iter().flatten() {
                news.push(describe(&job));
                self.reported.insert(job.job_id);
            }
        }
        if self.reported.len() == MAX_REPORTED {
            news.push("agx: further failures are counted, but not listed".into());
        }
        Ok(news)
    }
}

/// Returns the report of a failed job: input, reason, and last lines of stderr of the blamed task.
fn describe(job: &JobStatus) -> String {
    let why = job.error.as_deref().unwrap_or("no reason was given");
    let (input, status) = (cut(job.inputs.get()), job.status.as_str());
    let head = format!("agx: input {} {input} {status}: {}", job.index, one_line(why));
    let results = job.results();
    let stderr = TaskResult::blamed(&results).map(|task| byte_escape::encode(&task.stderr.bytes));
    let stderr = stderr.unwrap_or_default();
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    // The reason has a single line already.
    let last = if lines.len() > 1 { &lines[lines.len().saturating_sub(LINES)..] } else { &[] };
    last.iter().fold(head, |text, line| text + "\n    " + &cut(line))
}

fn cut(text: &str) -> String {
    let short: String = text.chars().take(WIDEST).collect();
    one_line(&short) + if short.len() < text.len() { "…" } else { "" }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{JobStatus, parse};

    use super::describe;

    fn job(stderr: &str) -> JobStatus {
        let json = serde_json::json!({
            "job_id": "j", "action_id": "a", "plan_id": "p", "status": "failed", "state": "discarded", "index": 3,
            "attempt": 1, "queue": "ready", "priority": 0, "created_at": "2026-01-31T08:00:00.000Z",
            "started_at": null, "completed_at": null, "worker_id": "w", "inputs": {"line": "x"}, "error": "it broke",
            "task_results": [{"task_number": 1, "command": "sh", "exit_code": 1, "stderr": stderr}],
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn failures_show_the_last_lines_of_stderr() {
        assert_eq!(describe(&job("one\n")), r#"agx: input 3 {"line":"x"} failed: it broke"#);
        let report = describe(&job("one\ntwo\n\nthree\nfour\n"));
        assert_eq!(report, "agx: input 3 {\"line\":\"x\"} failed: it broke\n    two\n    three\n    four");
        assert!(describe(&job(&format!("a\n{}", "x".repeat(1000)))).ends_with("x…"));
        let report = describe(&job("one\n\u{1b}[2Jtwo\r\nthree\u{202e}\n"));
        assert!(report.ends_with("\n    one\n    \\x1b[2Jtwo\n    three\\u202e"), "{report}");
        let input = serde_json::value::RawValue::from_string("{\"a\":\n \"\u{85}\"}".into()).unwrap();
        let other = JobStatus { inputs: input, error: Some("x\nagx: all jobs completed".into()), ..job("") };
        assert_eq!(describe(&other), r#"agx: input 3 {"a":\n "\u0085"} failed: x\nagx: all jobs completed"#);
    }
}
