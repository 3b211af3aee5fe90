//! Asks what jobs write: of a running one its worker, of one that has ended what was kept of it.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status},
    ids::{ActionId, JobId},
};
use tokio::time::{Instant, sleep};

use super::{paper::Paper, seen::Seen};
use crate::{failure::Failure, output::Output, patient::Patient, progress::not_found};

/// How often what is new is asked for.
const LOOK: Duration = Duration::from_millis(200);
/// How long a job is let alone whose worker does not say what it writes.
const MUTE: Duration = Duration::from_secs(10);
/// How many jobs are asked for in one go.
const AT_ONCE: usize = 256;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// To go on until the end, rather than print what there is.
    pub(crate) follow: bool,
    /// Of this task alone.
    pub(crate) task: Option<u32>,
}

/// One job that is followed.
struct Followed {
    job_id: JobId,
    seen: Seen,
    paper: Paper,
    mute_until: Option<Instant>,
    output: Output,
}

/// Prints what a job writes; the job as it stood last.
pub(crate) async fn of_job(
    agq: &mut Patient,
    mut job: JobStatus,
    wanted: &Wanted,
    output: Output,
) -> Result<JobStatus, Failure> {
    let mut followed = Followed::new(job.job_id.clone(), None, wanted.task, output);
    if wanted.follow && job.status == Status::Pending {
        let id = &job.job_id;
        output.note(&format!("agx: job {id} has not begun; `agx job explain {id}` says why"));
    }
    loop {
        if followed.look(agq, &job).await? || !wanted.follow {
            followed.paper.end()?;
            return Ok(job);
        }
        sleep(LOOK).await;
        let found = agq.jobs(std::slice::from_ref(&job.job_id)).await?.pop().flatten();
        job = found.ok_or_else(|| Failure::not_found("job", &job.job_id, "it was removed meanwhile"))?;
    }
}

/// Prints what the jobs of an action write, each line with the number of its input before it; the action as it stood last.
pub(crate) async fn of_action(
    agq: &mut Patient,
    action_id: &ActionId,
    wanted: &Wanted,
    output: Output,
) -> Result<ActionStatus, Failure> {
    let (mut followed, mut done) = (BTreeMap::<u64, Followed>::new(), HashSet::new());
    let mut has_waited = false;
    loop {
        let action = agq.action(action_id).await?.ok_or_else(|| not_found(action_id))?;
        let ids = worth_a_look(agq, &action, &done, &followed).await?;
        for ids in ids.chunks(AT_ONCE) {
            let mut jobs: Vec<JobStatus> = agq.jobs(ids).await?.into_iter().flatten().collect();
            jobs.sort_by_key(|job| job.index);
            // One that is not there any more has nothing to say.
            followed
                .retain(|_, of| !ids.contains(&of.job_id) || jobs.iter().any(|job| job.job_id == of.job_id));
            for job in jobs {
                let prefix = || Some(format!("[{}] ", job.index));
                let of = followed
                    .entry(job.index)
                    .or_insert_with(|| Followed::new(job.job_id.clone(), prefix(), wanted.task, output));
                if of.look(agq, &job).await? {
                    of.paper.end()?;
                    followed.remove(&job.index);
                    done.insert(job.job_id);
                }
            }
        }
        let is_over = !action.open && action.ended() == action.total_jobs && ids.is_empty();
        if !wanted.follow || is_over {
            followed.values_mut().try_for_each(|followed| followed.paper.end())?;
            return Ok(action);
        }
        if !has_waited && ids.is_empty() {
            has_waited = true;
            output.note(&format!(
                "agx: nothing of it runs now; `agx action watch {action_id}` says why if that lasts"
            ));
        }
        sleep(LOOK).await;
    }
}

/// The jobs that run, those that were followed, and those that have ended since.
async fn worth_a_look(
    agq: &mut Patient,
    action: &ActionStatus,
    done: &HashSet<JobId>,
    followed: &BTreeMap<u64, Followed>,
) -> Result<Vec<JobId>, ClientError> {
    let mut wanted: Vec<JobId> = followed.values().map(|followed| followed.job_id.clone()).collect();
    let mut known: HashSet<JobId> = wanted.iter().chain(done).cloned().collect();
    let counted = [
        (Status::Running, action.running),
        (Status::Completed, action.completed),
        (Status::Failed, action.failed),
        (Status::Dead, action.dead),
        (Status::Cancelled, action.cancelled),
    ];
    if action.running == 0 && action.ended() == done.len() as u64 {
        return Ok(wanted);
    }
    for (status, _) in counted.into_iter().filter(|(_, count)| *count > 0) {
        let jobs = agq.jobs_of(action, status).await?;
        wanted.extend(jobs.into_iter().filter(|job_id| known.insert(job_id.clone())));
    }
    Ok(wanted)
}

impl Followed {
    fn new(job_id: JobId, prefix: Option<String>, task: Option<u32>, output: Output) -> Self {
        let paper = Paper::new(job_id.clone(), task, prefix, output);
        Self { job_id, seen: Seen::default(), paper, mute_until: None, output }
    }

    /// Prints what is new; whether that was the last of it. `job` was asked for before this.
    async fn look(&mut self, agq: &mut Patient, job: &JobStatus) -> Result<bool, Failure> {
        let is_followed = self.seen.position().attempt == job.attempt;
        if job.status == Status::Running || (is_followed && job.status.is_ended()) {
            self.ask(agq).await?;
        }
        if !job.status.is_ended() {
            return Ok(false);
        }
        let fresh = self.seen.of_results(job.attempt, job.results());
        self.paper.print(fresh)?;
        Ok(true)
    }

    /// Asks the worker until it has said all that there is.
    async fn ask(&mut self, agq: &mut Patient) -> Result<(), Failure> {
        if self.mute_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        loop {
            let position = self.seen.position();
            match agq.job_output(&self.job_id, &position).await {
                Ok(Some(output)) => {
                    let more = output.more;
                    let fresh = self.seen.of_output(output);
                    self.paper.print(fresh)?;
                    if !more {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(ClientError::Rejected(reason)) if reason.starts_with("Output not available") => {
                    if self.mute_until.is_none() {
                        let job_id = &self.job_id;
                        self.output
                            .note(&format!("agx: {reason}; what was kept of job {job_id} comes at its end"));
                    }
                    self.mute_until = Some(Instant::now() + MUTE);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
