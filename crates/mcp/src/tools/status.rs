//! `agx_status`: numbers of jobs, rate, first failures, and what waiting jobs wait for.

use super::results;
use crate::{
    action,
    arguments::{ResultFilter, StatusArguments},
    error::Result,
    queue::Queue,
    reports::ActionReport,
};

/// Maximum number of failed jobs in a report.
const MAX_FAILURES: usize = 3;

/// Maximum number of bytes of the outputs of a failed job, each.
const FAILURE_BYTES: usize = 512;

pub(crate) async fn run(queue: &Queue, arguments: StatusArguments) -> Result<ActionReport> {
    let status = action::status(queue, &arguments.action_id).await?;
    let mut report = action::report(queue, &status, (queue.settings.now)()).await?;
    if report.jobs.failed > 0 {
        let budget = (8 * MAX_FAILURES * FAILURE_BYTES, FAILURE_BYTES);
        let page = results::page(queue, &status, ResultFilter::Failed, None, budget).await?;
        report.failures = page.jobs;
        report.failures.truncate(MAX_FAILURES);
    }
    Ok(report)
}
