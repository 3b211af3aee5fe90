//! Typed calls for workers and their programs.

use agenix_protocol::{
    documents::{
        self, CapabilityList, ChallengeAnswer, Directives, JobOutput, WorkerRegistration, WorkerStatus,
    },
    ids::WorkerId,
    request::{ClientCommand, Request},
};
use redis::Value;

use crate::{
    connection::Connection,
    error::ClientError,
    replies::{document, field, optional_document, texts},
};

/// Reply to WORKER.REGISTER.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredWorker {
    /// Interval of heartbeats that agq expects, in seconds.
    pub heartbeat_interval_secs: f64,
}

impl Connection {
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

    /// WORKER.DRAIN. `by` is the program that may resume or end the worker later.
    pub async fn drain_worker(&mut self, worker_id: &WorkerId, by: Option<&str>) -> Result<(), ClientError> {
        let (worker_id, by) = (worker_id.clone(), by.map(str::to_owned));
        self.call(&Request::WorkerDrain { worker_id, by }).await.map(drop)
    }

    /// WORKER.RESUME.
    pub async fn resume_worker(&mut self, worker_id: &WorkerId) -> Result<(), ClientError> {
        self.call(&Request::WorkerResume { worker_id: worker_id.clone() }).await.map(drop)
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
