//! Reports of actions: state, rate, and what waiting jobs wait for.

use agenix_protocol::{
    documents::{ActionStatus, Status},
    ids::ActionId,
    printable::printable,
    time::Timestamp,
};

use crate::{
    error::{Result, ToolError},
    queue::Queue,
    reports::{ActionJobCounts, ActionReport, ActionState},
};

/// Stored state of a job whose plan waits for an approval.
const STAGED: &str = "staged";

pub(crate) async fn status(queue: &Queue, action_id: &ActionId) -> Result<ActionStatus> {
    let found = find(queue, action_id).await?;
    found.ok_or_else(|| ToolError::no_action(action_id.as_str()))
}

/// Returns the status of an action, or `None` if agq does not have it.
pub(crate) async fn find(queue: &Queue, action_id: &ActionId) -> Result<Option<ActionStatus>> {
    queue.call(|mut agq| async move { agq.action(action_id).await }).await
}

/// Returns true if no job of the action will run again.
pub(crate) fn has_ended(status: &ActionStatus) -> bool {
    status.ended() == status.total_jobs && !status.open
}

/// Returns the report of an action without results. Asks agq why nothing runs.
pub(crate) async fn report(queue: &Queue, status: &ActionStatus, now: Timestamp) -> Result<ActionReport> {
    let mut report = of_status(status, now);
    if report.state != ActionState::Waiting {
        return Ok(report);
    }
    let id = &status.action_id;
    let first = queue.call(|mut agq| async move { agq.first_jobs(id, Status::Pending, 1).await }).await?;
    let Some(job_id) = first.first() else { return Ok(report) };
    let explained = queue.call(|mut agq| async move { agq.explain_job(job_id).await }).await?;
    if explained.state == STAGED {
        report.state = ActionState::WaitingForApproval;
        report.next = Some("tell a person what waits_for says, and call agx_wait later".into());
    }
    report.waits_for = Some(printable(&explained.reason));
    Ok(report)
}

/// Returns the report of a status, without what agq has to be asked for.
pub(crate) fn of_status(status: &ActionStatus, now: Timestamp) -> ActionReport {
    let state = state(status);
    let (jobs_per_second, seconds_left) =
        if state == ActionState::Running { pace(status, now) } else { (None, None) };
    let id = &status.action_id;
    let next = match state {
        ActionState::Waiting | ActionState::WaitingForApproval | ActionState::Running => {
            format!("call agx_wait with action_id {id}")
        }
        ActionState::Completed | ActionState::Cancelled => {
            format!("call agx_results with action_id {id}")
        }
        ActionState::Failed => {
            format!("call agx_results with action_id {id} and only \"failed\", or agx_retry")
        }
    };
    ActionReport {
        action_id: id.to_string(),
        state,
        jobs: ActionJobCounts {
            total: status.total_jobs,
            pending: status.pending,
            running: status.running,
            completed: status.completed,
            failed: status.failed + status.dead,
            cancelled: status.cancelled,
        },
        jobs_per_second,
        seconds_left,
        waits_for: None,
        failures: Vec::new(),
        results: None,
        next: Some(next),
    }
}

fn state(status: &ActionStatus) -> ActionState {
    // An open action whose jobs have all ended waits for inputs only, and no job has a reason to
    // show.
    let waits = status.pending > 0 || status.ended() == 0;
    match () {
        () if !has_ended(status) && status.running == 0 && waits => ActionState::Waiting,
        () if !has_ended(status) => ActionState::Running,
        () if status.failed + status.dead > 0 => ActionState::Failed,
        () if status.cancelled > 0 => ActionState::Cancelled,
        () => ActionState::Completed,
    }
}

/// Returns the jobs per second since the submission, and the estimated seconds until the end.
fn pace(status: &ActionStatus, now: Timestamp) -> (Option<f64>, Option<u64>) {
    let (ended, ms) = (status.ended(), now.ms_since(status.created_at).max(1));
    if ended == 0 {
        return (None, None);
    }
    let left = (status.total_jobs - ended).saturating_mul(ms) / ended / 1000;
    #[expect(clippy::cast_precision_loss, reason = "a rate is rounded")]
    let rate = ended as f64 * 1000.0 / ms as f64;
    (Some((rate * 10.0).round() / 10.0), Some(left))
}

/// Returns the progress in words, such as `812/1000 done, 3 failed, about 41 s left`.
pub(crate) fn progress_text(report: &ActionReport) -> String {
    let jobs = &report.jobs;
    let done = jobs.completed + jobs.failed + jobs.cancelled;
    let mut text = format!("{done}/{} done", jobs.total);
    if jobs.failed > 0 {
        text.push_str(&format!(", {} failed", jobs.failed));
    }
    if let Some(seconds) = report.seconds_left {
        text.push_str(&format!(", about {seconds} s left"));
    }
    if let Some(reason) = &report.waits_for {
        text.push_str(&format!("; {reason}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::ActionStatus, documents::parse, time::Timestamp};

    use super::{of_status, progress_text};
    use crate::reports::ActionState;

    fn status(counts: [u64; 5], open: bool) -> ActionStatus {
        let [pending, running, completed, failed, cancelled] = counts;
        let total: u64 = counts.iter().sum();
        let json = format!(
            r#"{{"action_id":"a","plan_id":"p","total_jobs":{total},"pending":{pending},"running":{running},
            "completed":{completed},"failed":{failed},"dead":0,"cancelled":{cancelled},"queue":"ready","priority":0,
            "open":{open},"created_at":"1970-01-01T00:00:10.000Z","completed_jobs_at":null}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn state_follows_from_the_numbers_of_jobs() {
        let state = |counts, open| of_status(&status(counts, open), Timestamp(20_000)).state;
        assert_eq!(state([2, 0, 0, 0, 0], false), ActionState::Waiting);
        assert_eq!(state([1, 1, 1, 0, 0], false), ActionState::Running);
        assert_eq!(state([1, 0, 1, 0, 0], false), ActionState::Waiting, "none runs any more");
        assert_eq!(state([1, 0, 1, 0, 0], true), ActionState::Waiting);
        assert_eq!(state([0, 0, 0, 0, 0], true), ActionState::Waiting);
        assert_eq!(state([0, 0, 2, 0, 0], true), ActionState::Running, "further inputs may come");
        assert_eq!(state([0, 0, 2, 0, 0], false), ActionState::Completed);
        assert_eq!(state([0, 0, 1, 1, 1], false), ActionState::Failed);
        assert_eq!(state([0, 0, 1, 0, 1], false), ActionState::Cancelled);
    }

    #[test]
    fn pace_is_that_since_the_submission() {
        let report = of_status(&status([6, 1, 2, 1, 0], false), Timestamp(16_000));
        assert_eq!((report.jobs_per_second, report.seconds_left), (Some(0.5), Some(14)));
        assert_eq!(progress_text(&report), "3/10 done, 1 failed, about 14 s left");
        for counts in [[9, 1, 0, 0, 0], [7, 0, 2, 1, 0]] {
            let report = of_status(&status(counts, false), Timestamp(16_000));
            assert_eq!((report.jobs_per_second, report.seconds_left), (None, None), "{counts:?}");
        }
    }
}
