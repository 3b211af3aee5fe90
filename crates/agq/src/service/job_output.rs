//! Live output of running jobs. agq does not store the output, but requests it from the worker that
//! runs the job. The answer is published on a reply channel, so that any node can receive it.

use std::time::Duration;

use agenix_protocol::{
    documents::{JobOutput, OutputCall, OutputPosition, OutputRequest, Status, to_json},
    ids::{JobId, WorkerId},
    reserved_keys::{orders_channel, reply_channel},
};
use agenix_rules::{rejection::Rejection, worker::Liveness};
use bytes::Bytes;

use super::{identity, lookup};
use crate::{
    app::{AppState, Caller},
    error::Result,
};

const ANSWER_SECONDS: u64 = 3;

/// Returns the output after `position`, or `None` if no live worker runs the job. With a
/// `position`, an ended job counts too, because a client that follows it wants its last output. The
/// results have the whole output.
pub(crate) async fn read(
    app: &AppState,
    job_id: &JobId,
    position: Option<OutputPosition>,
) -> Result<Option<Bytes>> {
    let job = lookup::job_record(app, job_id).await?;
    let is_wanted = job.status() == Status::Running || position.is_some();
    let worker = job.holder.as_deref().filter(|_| is_wanted).and_then(|holder| WorkerId::new(holder).ok());
    let Some(worker) = worker else { return Ok(None) };
    let record = app.store.worker(&worker).await?;
    if record.is_none_or(|record| record.standing != Liveness::Active) {
        return Ok(None);
    }
    let request_id = app.clock.challenge_id();
    let answer = app.pubsub.reply_on(reply_channel(worker.as_str(), &request_id).into());
    let position = position.unwrap_or_default();
    let request = OutputRequest { request_id, job_id: job_id.clone(), position };
    let call = to_json(&OutputCall { output: request });
    app.pubsub.publish(&orders_channel(worker.as_str()).into(), &call.into());
    let answer = app.clock.within(Duration::from_secs(ANSWER_SECONDS), answer).await;
    let Some(Ok(answer)) = answer else {
        return Err(Rejection::OutputTimedOut { worker, seconds: ANSWER_SECONDS }.into());
    };
    Ok(Some(answer).filter(|answer| &answer[..] != b"null"))
}

/// The channel contains the id of the worker, so no other worker can answer. The client may wait at
/// another node, so this node does not know whether it still waits.
pub(crate) async fn deliver(
    app: &AppState,
    caller: &Caller,
    request_id: &str,
    output: Option<&JobOutput>,
) -> Result<()> {
    let own = identity::reporter_id(app, caller).await?.ok_or(Rejection::NotRegistered)?;
    let channel = reply_channel(own.as_str(), request_id);
    app.pubsub.publish(&channel.into(), &to_json(&output).into());
    Ok(())
}
