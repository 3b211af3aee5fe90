//! `agx_wait`: waits for the jobs of an action, for a bounded time.

use std::time::Duration;

use agenix_protocol::{documents::ActionStatus, ids::ActionId};
use tokio::time::{Instant, sleep};

use super::results;
use crate::{
    action,
    arguments::{MAX_WAIT_SECS, ResultFilter, WaitArguments, WaitUntil, default_job_bytes},
    error::Result,
    progress::ProgressNotifier,
    queue::Queue,
    reports::ActionReport,
};

/// Shortest and longest pause between two polls of an action. A long wait has long pauses.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(
    queue: &Queue,
    arguments: WaitArguments,
    progress: &mut ProgressNotifier,
) -> Result<ActionReport> {
    let WaitArguments { action_id, secs, until, max_bytes } = arguments;
    let status = until_event(queue, &action_id, (secs, until), progress).await?;
    with_results(queue, &status, max_bytes).await
}

/// Waits at most `secs` seconds for an event, and returns the status at the end.
pub(crate) async fn until_event(
    queue: &Queue,
    action_id: &ActionId,
    (secs, until): (u64, WaitUntil),
    progress: &mut ProgressNotifier,
) -> Result<ActionStatus> {
    let started = Instant::now();
    let bound = Duration::from_secs(secs.min(MAX_WAIT_SECS));
    let mut at_first = None;
    loop {
        let status = action::status(queue, action_id).await?;
        let ended_before = *at_first.get_or_insert(status.ended());
        let is_there = match until {
            WaitUntil::Done => false,
            WaitUntil::FirstFailure => status.failed + status.dead > 0,
            WaitUntil::Progress => status.ended() > ended_before,
        };
        let waited = started.elapsed();
        if is_there || action::has_ended(&status) || waited >= bound {
            return Ok(status);
        }
        progress.show(&status).await;
        let pause = (waited / 10).clamp(MIN_PAUSE, MAX_PAUSE);
        sleep(pause.min(bound - waited)).await;
    }
}

/// Returns the report of an action, with its first results if it has ended.
pub(crate) async fn with_results(
    queue: &Queue,
    status: &ActionStatus,
    max_bytes: usize,
) -> Result<ActionReport> {
    let mut report = action::report(queue, status, (queue.settings.now)()).await?;
    if report.state.has_ended() {
        let budget = (max_bytes, default_job_bytes());
        let page = results::page(queue, status, ResultFilter::All, None, budget).await?;
        report.next = page.cursor.as_ref().map(|cursor| {
            let id = &status.action_id;
            format!(
                "call agx_results with action_id {id} and cursor \"{cursor}\" for more, or agx_run with stdin_of {id} \
                 to process all outputs"
            )
        });
        report.results = Some(page);
    }
    Ok(report)
}
