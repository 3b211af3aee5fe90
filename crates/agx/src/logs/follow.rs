//! Looks again and again at a job, or at the jobs of an action, until they have ended.

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
    error::CliError,
    logs::job::{FollowedJob, SilentWorkers},
    output::Output,
    remote::retrying_client::RetryingClient,
    watch::progress::not_found,
};

/// How often what is new is asked for, at the most.
const LOOK: Duration = Duration::from_millis(200);
/// How many jobs are asked for in one go.
const AT_ONCE: usize = 256;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    /// To go on until the end, rather than print what there is.
    pub(crate) follow: bool,
    /// Of this task alone.
    pub(crate) task: Option<u32>,
}

/// Prints what a job writes; the job as it stood last.
pub(crate) async fn of_job(
    agq: &mut RetryingClient,
    mut job: JobStatus,
    wanted: &LogOptions,
    output: Output,
) -> Result<JobStatus, CliError> {
    let mut followed = FollowedJob::new(job.job_id.clone(), None, wanted.task, output);
    let mut mutes = SilentWorkers::new(output);
    if wanted.follow && job.status == Status::Pending {
        output.note(&waits(&job));
    }
    loop {
        if followed.poll(agq, &job, wanted.follow, &mut mutes).await? || !wanted.follow {
            followed.end()?;
            return Ok(job);
        }
        sleep(LOOK).await;
        let found = agq.jobs(std::slice::from_ref(&job.job_id)).await?.pop().flatten();
        job = found.ok_or_else(|| CliError::not_found("job", &job.job_id, "it was removed meanwhile"))?;
    }
}

/// What is said of a job that does not run.
pub(crate) fn waits(job: &JobStatus) -> String {
    let (id, what) =
        (&job.job_id, if job.attempt == 0 { "has not begun" } else { "waits for another attempt" });
    format!("agx: job {id} {what}; `agx job explain {id}` says why")
}

/// Prints what the jobs of an action write, each line with the number of its input before it; the action as it stood last.
pub(crate) async fn of_action(
    agq: &mut RetryingClient,
    action_id: &ActionId,
    wanted: &LogOptions,
    output: Output,
) -> Result<ActionStatus, CliError> {
    let (mut followed, mut done) = (BTreeMap::<u64, FollowedJob>::new(), EndedJobs::default());
    let (mut mutes, mut has_waited) = (SilentWorkers::new(output), false);
    loop {
        let begun = Instant::now();
        let action = agq.action(action_id).await?.ok_or_else(|| not_found(action_id))?;
        let ids = may_have_output(agq, &action, &mut done, &followed).await?;
        for ids in ids.chunks(AT_ONCE) {
            let mut jobs: Vec<JobStatus> = agq.jobs(ids).await?.into_iter().flatten().collect();
            jobs.sort_by_key(|job| job.index);
            // One that is not there any more has nothing to say.
            let is_there = |of: &FollowedJob| jobs.iter().any(|job| job.job_id == of.job_id);
            followed.retain(|_, of| !ids.contains(&of.job_id) || is_there(of));
            for job in jobs {
                let prefix = || Some(format!("[{}] ", job.index));
                let of = followed
                    .entry(job.index)
                    .or_insert_with(|| FollowedJob::new(job.job_id.clone(), prefix(), wanted.task, output));
                if of.poll(agq, &job, wanted.follow, &mut mutes).await? {
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
        // What takes agq long is not asked for all the time.
        sleep(LOOK.max(begun.elapsed() * 2)).await;
    }
}

/// The jobs that were shown to their end, and what that was.
#[derive(Default)]
struct EndedJobs(HashMap<JobId, Status>);

impl EndedJobs {
    fn count(&self, status: Status) -> u64 {
        self.0.values().filter(|done| **done == status).count() as u64
    }
}

/// The jobs that run, those that were followed, and those that have ended since.
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
            // One that is tried again writes anew.
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
        // A list of a large action is long.
        if count != done.count(status) {
            let jobs = agq.jobs_of(action, status).await?;
            let is_news =
                |job_id: &JobId| done.0.get(job_id) != Some(&status) && known.insert(job_id.clone());
            wanted.extend(jobs.into_iter().filter(is_news));
        }
    }
    Ok(wanted)
}
