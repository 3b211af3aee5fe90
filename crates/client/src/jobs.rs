//! Typed calls for jobs.

use agenix_protocol::{
    documents::{
        self, ActionStatus, Explanation, JobDocument, JobOutput, JobStatus, JobUpdate, OutputPosition, Status,
    },
    ids::{ActionId, JobId, QueueName},
    request::{BlockingWait, Request, Slice},
};

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{document, ids, optional_document, texts},
};

/// Maximum number of jobs per page, which limits a reply to a few megabytes.
const PAGE: usize = 50_000;

impl Connection {
    /// JOB.LIST in the order of the inputs: all jobs, page by page, or the jobs with `status`.
    pub async fn jobs(
        &mut self,
        action: &ActionStatus,
        status: Option<Status>,
    ) -> Result<Vec<JobId>, ClientError> {
        let ask = |slice| Request::JobList { action_id: action.action_id.clone(), status, slice };
        if status.is_some() {
            // Jobs change their status between two pages, so some would be missed.
            return ids(self.call(&ask(Slice::ALL)).await?);
        }
        let total = usize::try_from(action.total_jobs).unwrap_or(usize::MAX);
        let mut found: Vec<JobId> = Vec::new();
        for offset in (0..total).step_by(PAGE) {
            found.extend(ids::<JobId>(self.call(&ask(Slice { limit: PAGE, offset })).await?)?);
        }
        Ok(found)
    }

    /// JOB.LIST of the kept jobs among `limit` inputs of an action, from input `offset`.
    pub async fn jobs_from(
        &mut self,
        action_id: &ActionId,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<JobId>, ClientError> {
        let slice = Slice { limit, offset };
        let list = Request::JobList { action_id: action_id.clone(), status: None, slice };
        ids(self.call(&list).await?)
    }

    /// JOB.LIST of the first jobs with `status`, at most `limit`.
    pub async fn first_jobs(
        &mut self,
        action_id: &ActionId,
        status: Status,
        limit: usize,
    ) -> Result<Vec<JobId>, ClientError> {
        self.jobs_with(action_id, status, (0, limit)).await
    }

    /// JOB.LIST of the jobs with `status`: at most `limit` after the first `offset` of them.
    pub async fn jobs_with(
        &mut self,
        action_id: &ActionId,
        status: Status,
        (offset, limit): (usize, usize),
    ) -> Result<Vec<JobId>, ClientError> {
        let slice = Slice { limit, offset };
        let list = Request::JobList { action_id: action_id.clone(), status: Some(status), slice };
        ids(self.call(&list).await?)
    }

    /// JOB.CANCEL.
    pub async fn cancel_job(&mut self, job_id: &JobId) -> Result<(), ClientError> {
        self.call(&Request::JobCancel { job_id: job_id.clone() }).await.map(drop)
    }

    /// JOB.FORGET: removes an ended job with its results.
    pub async fn forget_job(&mut self, job_id: &JobId) -> Result<(), ClientError> {
        self.call(&Request::JobForget { job_id: job_id.clone() }).await.map(drop)
    }

    /// JOB.RETRY. With `force`, also of a dead or cancelled job.
    pub async fn retry_job(&mut self, job_id: &JobId, force: bool) -> Result<(), ClientError> {
        self.call(&Request::JobRetry { job_id: job_id.clone(), force }).await.map(drop)
    }

    /// JOB.EXPLAIN: why the job is not running.
    pub async fn explain_job(&mut self, job_id: &JobId) -> Result<Explanation, ClientError> {
        let reply = self.call(&Request::JobExplain { job_id: job_id.clone() }).await?;
        optional_document(reply)?.ok_or_else(|| ClientError::Unexpected("no explanation".into()))
    }

    /// JOB.OUTPUT of a running job after `position`, or `None` if no worker has the job.
    pub async fn job_output(
        &mut self,
        job_id: &JobId,
        position: Option<&OutputPosition>,
    ) -> Result<Option<JobOutput>, ClientError> {
        let position = position.map(|position| documents::to_json(position).into());
        let reply = self.call(&Request::JobOutput { job_id: job_id.clone(), position }).await?;
        optional_document(reply)
    }

    /// JOB.STATUS. Returns `None` if the job does not exist.
    pub async fn job(&mut self, job_id: &JobId) -> Result<Option<JobStatus>, ClientError> {
        let reply = self.call(&Request::JobStatus { job_id: job_id.clone() }).await?;
        optional_document(reply)
    }

    /// JOB.UPDATE: reports the state of a job.
    pub async fn update_job(&mut self, job_id: &JobId, update: &JobUpdate) -> Result<(), ClientError> {
        self.update_job_json(job_id, documents::to_json(update)).await
    }

    /// JOB.UPDATE with the update in JSON.
    pub async fn update_job_json(&mut self, job_id: &JobId, json: String) -> Result<(), ClientError> {
        self.call(&Request::JobUpdate { job_id: job_id.clone(), update: json.into() }).await.map(drop)
    }

    /// JOB.CLAIM: claims at most `count` jobs of `queues`, the first queue first. Returns no job
    /// after `wait`. Needs [`Connection::open_without_timeout`], because an abandoned reply would
    /// lose its jobs.
    pub async fn claim(
        &mut self,
        queues: &[QueueName],
        count: usize,
        wait: BlockingWait,
    ) -> Result<Vec<JobDocument>, ClientError> {
        let claim = Request::JobClaim { queues: queues.to_vec(), timeout: wait, count };
        texts(self.call(&claim).await?)?.iter().map(|text| document(text)).collect()
    }
}
