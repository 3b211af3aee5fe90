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
    output::Output,
    remote::retrying_client::RetryingClient,
    watch::progress::not_found,
};

/// Minimum interval of polls.
const LOOK: Duration = Duration::from_millis(200);
/// First and longest interval of polls of a single job.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// Time after which the user of a command that submits a job is told that the job waits.
pub(crate) const WAIT_NOTED_AFTER: Duration = Duration::from_secs(2);
/// Number of jobs per request.
const AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    /// True to follow until the end, instead of printing the present output.
    pub(crate) follow: bool,
    /// Number of the only task to print, if any.
    pub(crate) task: Option<u32>,
    /// Time after which a note says that the job waits for a worker.
    pub(crate) wait_noted_after: Duration,
}

/// Prints the output of a job. Returns the job in its last state.
pub(crate) async fn of_job(
    agq: &mut RetryingClient,
    mut job: JobStatus,
    wanted: &LogOptions,
    output: Output,
) -> Result<JobStatus> {
    let mut followed = FollowedJob::new(job.job_id.clone(), LineForm::Pieces, wanted.task, output);
    let mut silent = SilentWorkers::new(output);
    let (begun, mut is_noted, mut look) = (Instant::now(), !wanted.follow, FIRST_LOOK);
    loop {
        if !is_noted && job.status == Status::Pending && begun.elapsed() >= wanted.wait_noted_after {
            output.note(&waits(&job));
            is_noted = true;
        }
        if followed.poll(agq, &job, wanted.follow, &mut silent).await? || !wanted.follow {
            followed.end()?;
            return Ok(job);
        }
        sleep(look).await;
        look = LONGEST_LOOK.min(look * 2);
        let found = agq.jobs(std::slice::from_ref(&job.job_id)).await?.pop().flatten();
        job =
            found.ok_or_else(|| CliError::not_found("job", &job.job_id, "it was removed in the meantime"))?;
    }
}

/// Returns the message for a job that has not started.
pub(crate) fn waits(job: &JobStatus) -> String {
    let (id, what) =
        (&job.job_id, if job.attempt == 0 { "has not begun" } else { "waits for another attempt" });
    format!("agx: job {id} {what}; `agx job explain {id}` says why")
}

/// Prints the jobs of an action, each line after the input's number. Returns the last state.
pub(crate) async fn of_action(
    agq: &mut RetryingClient,
    action_id: &ActionId,
    wanted: &LogOptions,
    output: Output,
) -> Result<ActionStatus> {
    let (mut followed, mut done) = (BTreeMap::<u64, FollowedJob>::new(), EndedJobs::default());
    let (mut silent, mut has_waited) = (SilentWorkers::new(output), false);
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
                if of.poll(agq, &job, wanted.follow, &mut silent).await? {
                    of.end()?;
                    followed.remove(&job.index);
                    done.0.insert(job.job_id, job.status);
                }
            }
        }
        let is_over = !action.open && action.ended() == action.total_jobs && ids.is_empty();
        if !wanted.follow || is_over {
            followed.values_mut().try_for_each(FollowedJob::end)?;
            return Ok(action);
        }
        if !has_waited && ids.is_empty() {
            has_waited = true;
            output.note(&format!(
                "agx: nothing of it runs now; `agx action watch {action_id}` says why if that lasts"
            ));
        }
        // Polls that take agq long are repeated less often.
        sleep(LOOK.max(begun.elapsed() * 2)).await;
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
