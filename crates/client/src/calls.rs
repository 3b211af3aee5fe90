//! Typed calls for the commands of agq. Each call is one command of docs/protocol.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{
        self, ActionStatus, ActionSubmission, BudgetStatus, CapabilityList, ChallengeAnswer, Directives,
        Explanation, JobDocument, JobOutput, JobStatus, JobUpdate, OutputPosition, QueueStats, Status,
        WorkerRegistration, WorkerStatus,
    },
    ids::{ActionId, JobId, QueueName, WorkerId},
    request::{BlockingWait, ClientCommand, Page, Request, Slice},
};
use redis::{FromRedisValue, Value};
use serde::de::DeserializeOwned;

use crate::{connection::Connection, error::ClientError};

/// Maximum number of jobs per page, which limits a reply to a few megabytes.
const PAGE: usize = 50_000;

/// Reply to ACTION.SUBMIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedAction {
    /// Id of the action.
    pub action_id: ActionId,
    /// Number of its jobs.
    pub jobs_created: u64,
}

/// Reply to WORKER.REGISTER.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredWorker {
    /// Interval of heartbeats that agq expects, in seconds.
    pub heartbeat_interval_secs: f64,
}

impl Connection {
    /// ACTION.SUBMIT
    pub async fn submit_action(&mut self, action: &ActionSubmission) -> Result<SubmittedAction, ClientError> {
        let action = documents::to_json(action).into();
        let reply = self.call(&Request::ActionSubmit { action }).await?;
        Ok(SubmittedAction {
            action_id: field(&reply, "action_id")?,
            jobs_created: field(&reply, "jobs_created")?,
        })
    }

    /// ACTION.STATUS. Returns `None` if the action does not exist.
    pub async fn action(&mut self, action_id: &ActionId) -> Result<Option<ActionStatus>, ClientError> {
        let reply = self.call(&Request::ActionStatus { action_id: action_id.clone() }).await?;
        optional_document(reply)
    }

    /// ACTION.ADD of a JSON array from index `at`, so it is idempotent. Returns the number of jobs.
    pub async fn add_inputs(
        &mut self,
        action_id: &ActionId,
        inputs: String,
        at: u64,
    ) -> Result<u64, ClientError> {
        let (action_id, inputs) = (action_id.clone(), inputs.into());
        let reply = self.call(&Request::ActionAdd { action_id, inputs, at: Some(at) }).await?;
        field(&reply, "total_jobs")
    }

    /// ACTION.ADD after the last input. Returns the number of jobs that the action has then. A
    /// repetition adds the inputs once more.
    pub async fn append_inputs(&mut self, action_id: &ActionId, inputs: String) -> Result<u64, ClientError> {
        let (action_id, inputs) = (action_id.clone(), inputs.into());
        let reply = self.call(&Request::ActionAdd { action_id, inputs, at: None }).await?;
        field(&reply, "total_jobs")
    }

    /// ACTION.CANCEL. Returns the number of jobs that were cancelled.
    pub async fn cancel_action(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        self.cancel_jobs(action_id, false).await
    }

    /// ACTION.CANCEL of unstarted jobs. Returns the number of waiting jobs that the call has ended.
    /// A moment later, workers give up claimed jobs that they have not started.
    pub async fn cancel_unstarted(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        self.cancel_jobs(action_id, true).await
    }

    async fn cancel_jobs(&mut self, action_id: &ActionId, unstarted: bool) -> Result<u64, ClientError> {
        let reply = self.call(&Request::ActionCancel { action_id: action_id.clone(), unstarted }).await?;
        field(&reply, "cancelled")
    }

    /// ACTION.RETRY. Returns the number of jobs that are retried.
    pub async fn retry_action(&mut self, action_id: &ActionId) -> Result<u64, ClientError> {
        let reply = self.call(&Request::ActionRetry { action_id: action_id.clone() }).await?;
        field(&reply, "retried")
    }

    /// ACTION.LIST. Returns the ids of all actions.
    pub async fn actions(&mut self) -> Result<Vec<ActionId>, ClientError> {
        self.actions_with(BTreeMap::new()).await
    }

    /// ACTION.LIST. Returns the ids of the actions that have all of `labels`.
    pub async fn actions_with(
        &mut self,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<ActionId>, ClientError> {
        let page = Page { limit: usize::MAX, ..Page::default() };
        ids(self.call(&Request::ActionList { page, labels }).await?)
    }

    /// ACTION.CLOSE: the action takes no more inputs.
    pub async fn close_action(&mut self, action_id: &ActionId) -> Result<(), ClientError> {
        self.call(&Request::ActionClose { action_id: action_id.clone() }).await.map(drop)
    }

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

    /// WORKER.REGISTER.
    pub async fn register(
        &mut self,
        registration: &WorkerRegistration,
    ) -> Result<RegisteredWorker, ClientError> {
        let worker = documents::to_json(registration).into();
        let reply = self.call(&Request::WorkerRegister { worker }).await?;
        Ok(RegisteredWorker { heartbeat_interval_secs: field(&reply, "heartbeat_interval")? })
    }

    /// CLIENT SETNAME: the connection acts for a worker that registered on another one.
    pub async fn act_for(&mut self, worker_id: &WorkerId) -> Result<(), ClientError> {
        let name = worker_id.as_str().to_owned().into();
        self.call(&Request::Client(ClientCommand::SetName(name))).await.map(drop)
    }

    /// WORKER.HEARTBEAT with statistics in JSON. Returns agq's directives for the worker.
    pub async fn heartbeat(
        &mut self,
        worker_id: &WorkerId,
        stats: String,
    ) -> Result<Directives, ClientError> {
        let stats = Some(stats.into());
        let reply = self.call(&Request::WorkerHeartbeat { worker_id: worker_id.clone(), stats }).await?;
        directives(&reply)
    }

    /// WORKER.ANSWER: sends the answer to a challenge.
    pub async fn answer_challenge(
        &mut self,
        challenge_id: &str,
        answer: &ChallengeAnswer,
    ) -> Result<(), ClientError> {
        let challenge_id = challenge_id.to_owned().into();
        let answer = documents::to_json(answer).into();
        self.call(&Request::WorkerAnswer { challenge_id, answer }).await.map(drop)
    }

    /// WORKER.OUTPUT: sends the output of a job, or `None` if the worker does not have the job.
    pub async fn send_output(
        &mut self,
        request_id: &str,
        output: Option<&JobOutput>,
    ) -> Result<(), ClientError> {
        let (request_id, output) = (request_id.to_owned().into(), documents::to_json(&output).into());
        self.call(&Request::WorkerOutput { request_id, output }).await.map(drop)
    }

    /// WORKER.UNREGISTER.
    pub async fn unregister(&mut self, worker_id: &WorkerId) -> Result<(), ClientError> {
        self.call(&Request::WorkerUnregister { worker_id: worker_id.clone() }).await.map(drop)
    }

    /// WORKER.LIST.
    pub async fn workers(&mut self) -> Result<Vec<WorkerStatus>, ClientError> {
        let reply = self.call(&Request::WorkerList).await?;
        texts(reply)?.iter().map(|text| document(text)).collect()
    }

    /// CAPABILITY.LIST: the programs whose names contain `name_part`, at most `limit`.
    pub async fn capabilities(
        &mut self,
        name_part: &str,
        limit: usize,
    ) -> Result<CapabilityList, ClientError> {
        let name_part = name_part.to_owned();
        let reply = self.call(&Request::CapabilityList { name_part, limit }).await?;
        optional_document(reply)?.ok_or_else(|| ClientError::Unexpected("no list of programs".into()))
    }

    /// QUEUE.PAUSE, or QUEUE.RESUME if `pauses` is false.
    pub async fn pause_queue(&mut self, queue: &QueueName, pauses: bool) -> Result<(), ClientError> {
        let queue = queue.clone();
        let request = if pauses { Request::QueuePause { queue } } else { Request::QueueResume { queue } };
        self.call(&request).await.map(drop)
    }

    /// WORKER.DRAIN. `by` is the program that may resume or end the worker later.
    pub async fn drain_worker(&mut self, worker_id: &WorkerId, by: Option<&str>) -> Result<(), ClientError> {
        let (worker_id, by) = (worker_id.clone(), by.map(str::to_owned));
        self.call(&Request::WorkerDrain { worker_id, by }).await.map(drop)
    }

    /// WORKER.RESUME.
    pub async fn resume_worker(&mut self, worker_id: &WorkerId) -> Result<(), ClientError> {
        self.call(&Request::WorkerResume { worker_id: worker_id.clone() }).await.map(drop)
    }

    /// INFO. Returns its fields by name.
    pub async fn info(&mut self) -> Result<BTreeMap<String, String>, ClientError> {
        let reply = self.call(&Request::Info { sections: Vec::new() }).await?;
        let text = String::from_redis_value(reply).map_err(|error| unexpected(&error))?;
        let field =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(text.lines().filter_map(field).collect())
    }

    /// BUDGET.GET: the budget with a name, or all that the key may see.
    pub async fn budgets(&mut self, name: Option<&str>) -> Result<Vec<BudgetStatus>, ClientError> {
        let reply = self.call(&Request::BudgetGet { name: name.map(str::to_owned) }).await?;
        Ok(optional_document(reply)?.unwrap_or_default())
    }

    /// QUEUE.STATS of all queues.
    pub async fn queue_stats(&mut self) -> Result<QueueStats, ClientError> {
        let reply = self.call(&Request::QueueStats { queue: None }).await?;
        optional_document(reply)?.ok_or_else(|| ClientError::Unexpected("no statistics".into()))
    }
}

pub(crate) fn unexpected(error: &impl ToString) -> ClientError {
    ClientError::Unexpected(error.to_string())
}

pub(crate) fn document<T: DeserializeOwned>(json: &str) -> Result<T, ClientError> {
    documents::parse(json.as_bytes()).map_err(|error| unexpected(&error))
}

pub(crate) fn optional_document<T: DeserializeOwned>(reply: Value) -> Result<Option<T>, ClientError> {
    let text = Option::<String>::from_redis_value(reply).map_err(|error| unexpected(&error))?;
    text.map(|text| document(&text)).transpose()
}

pub(crate) fn texts(reply: Value) -> Result<Vec<String>, ClientError> {
    Vec::<String>::from_redis_value(reply).map_err(|error| unexpected(&error))
}

pub(crate) fn ids<T: std::str::FromStr<Err: std::fmt::Display>>(reply: Value) -> Result<Vec<T>, ClientError> {
    texts(reply)?.iter().map(|text| text.parse().map_err(|error: T::Err| unexpected(&error))).collect()
}

/// Parses a field of `OK name=value name=value`.
pub(crate) fn field<T: std::str::FromStr>(reply: &Value, name: &str) -> Result<T, ClientError> {
    let text = match reply {
        Value::SimpleString(text) => text.as_str(),
        _ => "",
    };
    let found = text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let missing = || ClientError::Unexpected(format!("'{text}' has no {name}"));
    found.and_then(|value| value.parse().ok()).ok_or_else(missing)
}

/// Parses the directives of `OK orders={…}`. Plain `OK` has none.
fn directives(reply: &Value) -> Result<Directives, ClientError> {
    match reply {
        Value::SimpleString(text) => {
            text.strip_prefix("OK orders=").map_or(Ok(Directives::default()), document)
        }
        _ => Ok(Directives::default()),
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::directives;

    #[test]
    fn heartbeat_reply_is_parsed_to_directives() {
        let of = |text: &str| directives(&Value::SimpleString(text.into()));
        assert!(directives(&Value::Okay).unwrap().is_empty());
        assert!(of("OK").unwrap().is_empty());
        let wanted = of(r#"OK orders={"verify":[{"challenge_id":"c","command":"echo","args":["a b"]}]}"#);
        assert_eq!(wanted.unwrap().verify[0].args, ["a b"]);
        assert!(of("OK orders={").is_err());
    }
}
