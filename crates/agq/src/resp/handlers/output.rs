//! JOB.OUTPUT and WORKER.OUTPUT: what the tasks of a running job write, asked of the worker that runs it.

use std::time::Duration;

use agenix_protocol::{
    documents::{self, JobOutput, OutputCall, OutputPosition, OutputRequest, Status},
    ids::{JobId, WorkerId},
    reserved_keys::{orders_channel, reply_channel},
    resp::Reply,
};
use agenix_rules::{rejection::Rejection, worker::Liveness};
use bytes::Bytes;

use crate::{
    app::{AppState, Caller},
    resp::outcome::CommandResult,
    service::identity,
};

/// How long a worker has to answer, in seconds.
const SECONDS: u64 = 3;
/// Most bytes of an answer: other nodes hear it, too.
const MOST_BYTES: usize = 1024 * 1024;

/// JOB.OUTPUT
pub(crate) async fn show(app: &AppState, job_id: &JobId, position: Option<&Bytes>) -> CommandResult {
    let known = position.map(|json| documents::parse::<OutputPosition>(json)).transpose();
    let known = known.map_err(|error| Rejection::InvalidOutput(error.to_string()))?;
    let job = app.store.job_record(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?;
    // Whoever followed it is told what it wrote last; all others find that in its results.
    let is_wanted = job.status() == Status::Running || known.is_some();
    let worker = job.holder.as_deref().filter(|_| is_wanted).and_then(|holder| WorkerId::new(holder).ok());
    let Some(worker) = worker else { return Ok(Reply::Nil) };
    let known_worker = app.store.worker(&worker).await?;
    if known_worker.is_none_or(|known| known.standing != Liveness::Active) {
        return Ok(Reply::Nil);
    }
    let request_id = app.clock.challenge_id();
    let answer = app.pubsub.reply_on(reply_channel(worker.as_str(), &request_id).into());
    let request = OutputRequest { request_id, job_id: job_id.clone(), position: known.unwrap_or_default() };
    let call = documents::to_json(&OutputCall { output: request });
    app.pubsub.publish(&orders_channel(worker.as_str()).into(), &call.into());
    let answer = app.clock.within(Duration::from_secs(SECONDS), answer).await;
    let Some(Ok(answer)) = answer else {
        return Err(Rejection::OutputTimedOut { worker, seconds: SECONDS }.into());
    };
    Ok(if &answer[..] == b"null" { Reply::Nil } else { Reply::Bulk(answer) })
}

/// WORKER.OUTPUT: only who was asked can answer, for the channel has its name. Whether anyone still waits is not known here:
/// it may be at another node.
pub(crate) async fn bring(
    app: &AppState,
    caller: &Caller,
    request_id: &[u8],
    output: &[u8],
) -> CommandResult {
    if output.len() > MOST_BYTES {
        let text = format!("it has {} bytes, max {MOST_BYTES}", output.len());
        return Err(Rejection::InvalidOutput(text).into());
    }
    let output: Option<JobOutput> =
        documents::parse(output).map_err(|error| Rejection::InvalidOutput(error.to_string()))?;
    let own = identity::reporter_id(app, caller).await?.ok_or(Rejection::NotRegistered)?;
    let channel = reply_channel(own.as_str(), &String::from_utf8_lossy(request_id));
    app.pubsub.publish(&channel.into(), &documents::to_json(&output).into());
    Ok(Reply::ok())
}
