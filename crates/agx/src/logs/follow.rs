//! Polls a job, or the jobs of an action, for output until they have ended.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status},
    ids::{ActionId, JobId},
};
use tokio::time::{Instant, sleep};

use crate::{
    error::{CliError, Result},
    logs::{
        job::{FollowedJob, SilentWorkers},
        printer::LineForm,
    },
    output::OutputFormat,
    remote::retrying_client::RetryingClient,
    watch::{idle_reason::TRY_LATER, progress::not_found},
};

/// Minimum interval of polls of the jobs of an action.
const MIN_ACTION_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// First and longest interval of polls of a single job.
const FIRST_JOB_POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_JOB_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which the user of a command that submits a job is notified that the job waits.
pub(crate) const WAIT_NOTED_AFTER: Duration = Duration::from_secs(2);
/// Number of jobs per request.
const AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    /// True to follow until the end, instead of printing the present output.
    pub(crate) follow: bool,
    /// Number of the only task to print, if any.
    pub(crate) task: Option<u32>,
    /// Time after which a note shows that the job waits for a worker.
    pub(crate) wait_noted_after: Duration,
    /// Maximum number of attempts of a job that asks for a later one. Default: no bound.
    pub(crate) max_attempts: Option<u32>,
}

impl LogOptions {
    /// Returns true if the job asks for a later attempt (exit code 75) and may have none.
    fn gives_up(&self, job: &JobStatus) -> bool {
        let asks = job.status == Status::Pending && job.exit_code == Some(TRY_LATER);
        asks && self.max_attempts.is_some_and(|most| job.attempt >= most)
    }
}

/// Prints the output of a job. Returns the job in its last state, which is not an end after
/// `max_attempts` attempts of a job that asks for a later one. Cancels the action of such a job.
pub(crate) async fn of_job(
    agq: &mut RetryingClient,
    mut job: JobStatus,
    wanted: &LogOptions,
    output: OutputFormat,
) -> Result<JobStatus> {
    let mut followed = FollowedJob::new(job.job_id.clone(), LineForm::Chunks, wanted.task, output);
    let mut silent = SilentWorkers::new(output);
    let (begun, mut is_noted, mut interval) = (Instant::now(), !wanted.follow, FIRST_JOB_POLL_INTERVAL);
    loop {
        let gives_up = wanted.gives_up(&job);
        let waits_for_start = job.status == Status::Pending && !gives_up;
        if !is_noted && waits_for_start && begun.elapsed() >= wanted.wait_noted_after {
            output.note(&waits(&job));
            is_noted = true;
        }
        if gives_up {
            // The cancellation comes before the output: a stopped reader would let another attempt
            // begin.
            agq.cancel_action(&job.action_id).await?;
        }
        let is_over = followed.poll(agq, &job, wanted.follow, &mut silent).await?;
        if is_over || gives_up || !wanted.follow {
            followed.end()?;
            return Ok(job);
        }
        sleep(interval).await;
        interval = MAX_JOB_POLL_INTERVAL.min(interval * 2);
        let found = agq.jobs(std::slice::from_ref(&job.job_id)).await?.pop().flatten();
        job =
            found.ok_or_else(|| CliError::not_found("job", &job.job_id, "it was removed in the meantime"))?;
    }
}

/// Returns the message for a job that has not started, or waits for another attempt.
pub(crate) fn waits(job: &JobStatus) -> String {
    let id = &job.job_id;
    match job.run_at {
        _ if job.attempt == 0 => format!("agx: job {id} has not begun; `agx job explain {id}` says why"),
        Some(run_at) => format!("agx: job {id} waits for another attempt, which begins after {run_at}"),
        None => format!("agx: job {id} waits for another attempt; `agx job explain {id}` says why"),
    }
}

/// Prints the jobs of an action, each line after the input's number. Returns the last state, and
/// the number of ended jobs whose output could not be fetched.
pub(crate) async fn of_action(
    agq: &mut RetryingClient,
    action_id: &ActionId,
    wanted: &LogOptions,
    output: OutputFormat,
) -> Result<(ActionStatus, u64)> {
    let (mut followed, mut done) = (BTreeMap::<u64, FollowedJob>::new(), EndedJobs::default());
    let (mut silent, mut has_waited, mut unread) = (SilentWorkers::new(output), false, 0);
    loop {
        let begun = Instant::now();
        let action = agq.action(action_id).await?.ok_or_else(|| not_found(action_id))?;
        let ids = may_have_output(agq, &action, &mut done, &followed).await?;
        for ids in ids.chunks(AT_ONCE) {
            let mut jobs: Vec<JobStatus> = agq.jobs(ids).await?.into_iter().flatten().collect();
            jobs.sort_by_key(|job| job.index);
            // A job that agq has removed has no further output.
            let is_there = |of: &FollowedJob| jobs.iter().any(|job| job.job_id == of.job_id);
            followed.retain(|_, of| !ids.contains(&of.job_id) || is_there(of));
            for job in jobs {
                let form = || LineForm::Lines { prefix: format!("[{}] ", job.index), is_completed: true };
                let of = followed
                    .entry(job.index)
                    .or_insert_with(|| FollowedJob::new(job.job_id.clone(), form(), wanted.task, output));
                let is_printed = match of.poll(agq, &job, wanted.follow, &mut silent).await {
                    Err(failure) if failure.is_of_an_output() => {
                        output.note(&format!("agx: job {} (input {}): {failure}", job.job_id, job.index));
                        unread += u64::from(job.status.is_ended());
                        true
                    }
                    polled => polled?,
                };
                if is_printed {
                    of.end()?;
                    followed.remove(&job.index);
                    // The next attempt of another job has further output.
                    if job.status.is_ended() {
                        done.0.insert(job.job_id, job.status);
                    }
                }
            }
        }
        let is_over = !action.open && action.ended() == action.total_jobs && ids.is_empty();
        if !wanted.follow || is_over {
            followed.values_mut().try_for_each(FollowedJob::end)?;
            return Ok((action, unread));
        }
        if !has_waited && ids.is_empty() {
            has_waited = true;
            output.note(&format!(
                "agx: nothing of it runs now; `agx action watch {action_id}` says why if that lasts"
            ));
        }
        // Polls that take agq long are repeated less often.
        sleep(MIN_ACTION_POLL_INTERVAL.max(begun.elapsed() * 2)).await;
    }
}

/// Jobs that were printed to their end, with their final status.
#[derive(Default)]
struct EndedJobs(HashMap<JobId, Status>);

impl EndedJobs {
    fn count(&self, status: Status) -> u64 {
        self.0.values().filter(|done| **done == status).count() as u64
    }
}

/// Returns the running jobs, the followed jobs, and the jobs that have ended since the last poll.
async fn may_have_output(
    agq: &mut RetryingClient,
    action: &ActionStatus,
    done: &mut EndedJobs,
    followed: &BTreeMap<u64, FollowedJob>,
) -> Result<Vec<JobId>, ClientError> {
    let mut wanted: Vec<JobId> = followed.values().map(|followed| followed.job_id.clone()).collect();
    let mut known: HashSet<JobId> = wanted.iter().cloned().collect();
    if action.running > 0 {
        for job_id in agq.jobs_of(action, Status::Running).await? {
            // A retried job writes its output again.
            done.0.remove(&job_id);
            if known.insert(job_id.clone()) {
                wanted.push(job_id);
            }
        }
    }
    let ended = [
        (Status::Completed, action.completed),
        (Status::Failed, action.failed),
        (Status::Dead, action.dead),
        (Status::Cancelled, action.cancelled),
    ];
    for (status, count) in ended {
        // Listing a large action is slow, so the list is fetched only if the count has changed.
        if count != done.count(status) {
            let jobs = agq.jobs_of(action, status).await?;
            let is_news =
                |job_id: &JobId| done.0.get(job_id) != Some(&status) && known.insert(job_id.clone());
            wanted.extend(jobs.into_iter().filter(is_news));
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{JobStatus, parse};

    use super::{LogOptions, waits};

    fn pending(attempt: u32, run_at: Option<&str>, exit_code: Option<i32>) -> JobStatus {
        let json = serde_json::json!({
            "job_id": "j", "action_id": "a", "plan_id": "p", "status": "pending", "state": "scheduled", "index": 0,
            "attempt": attempt, "queue": "ready", "priority": 0, "created_at": "2026-01-31T08:00:00.000Z",
            "run_at": run_at, "started_at": null, "completed_at": null, "worker_id": "w", "inputs": {},
            "exit_code": exit_code, "task_results": null,
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn follower_gives_up_a_job_that_asks_for_more_attempts_than_it_may_have() {
        let gives_up = |max_attempts, attempt, exit_code| {
            let wanted = LogOptions { follow: true, max_attempts, ..LogOptions::default() };
            wanted.gives_up(&pending(attempt, None, exit_code))
        };
        assert!(gives_up(Some(1), 1, Some(75)));
        assert!(gives_up(Some(3), 3, Some(75)) && !gives_up(Some(3), 2, Some(75)));
        assert!(!gives_up(Some(1), 1, Some(1)), "agq decides about other failures");
        assert!(!gives_up(Some(1), 0, None), "it has not begun");
        assert!(!gives_up(None, 9, Some(75)), "agx logs follows it to its end");
    }

    #[test]
    fn note_about_a_waiting_job_names_the_time_of_its_next_attempt() {
        let time = "2026-01-31T08:00:30.000Z";
        assert!(waits(&pending(0, Some(time), None)).contains("has not begun; `agx job explain j`"));
        let again = format!("agx: job j waits for another attempt, which begins after {time}");
        assert_eq!(waits(&pending(1, Some(time), Some(75))), again);
        assert!(waits(&pending(1, None, None)).ends_with("another attempt; `agx job explain j` says why"));
    }
}
