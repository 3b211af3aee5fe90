//! Live output of running jobs. agq does not store the output, but requests it from the worker that
//! runs the job. The answer is published on a reply channel, so that any node can receive it.

use std::time::Duration;

use agenix_protocol::{
    blob::OutputStream,
    documents::{
        JobOutput, OutputCall, OutputPosition, OutputRequest, Status, TaskPosition, TaskStream, parse,
        to_json,
    },
    ids::{JobId, WorkerId},
    reserved_keys::{directives_channel, reply_channel},
};
use agenix_rules::{job::Job, rejection::Rejection, worker::Liveness};
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
    if job.status() != Status::Running && position.is_none() {
        return Ok(None);
    }
    ask(app, &job, position.unwrap_or_default(), None).await
}

/// Returns the bytes from `offset` that a stream of a running job has so far. Returns `None` if the
/// worker of the job cannot be asked, or the task has not started.
pub(crate) async fn chunk(
    app: &AppState,
    job: &Job,
    (task_number, stream): (u32, OutputStream),
    offset: u64,
) -> Result<Option<Vec<u8>>> {
    let task = TaskPosition { task_number, stdout: offset, stderr: offset };
    let position = OutputPosition { attempt: job.attempt, tasks: vec![task] };
    let only = Some(TaskStream { task_number, stream });
    let Some(answer) = ask(app, job, position, only).await? else { return Ok(None) };
    // The node of the worker has parsed the answer.
    let Ok(output) = parse::<JobOutput>(&answer) else { return Ok(None) };
    Ok(chunk_of(output, job.attempt, (task_number, stream)))
}

/// Returns the bytes of a stream in an answer about an attempt. An answer about another attempt has
/// no such bytes: the job was started again since its record was read, and the bytes begin at
/// another offset.
fn chunk_of(output: JobOutput, attempt: u32, (task_number, stream): (u32, OutputStream)) -> Option<Vec<u8>> {
    let tasks = (output.attempt == attempt).then_some(output.tasks)?;
    let task = tasks.into_iter().find(|task| task.task_number == task_number)?;
    let chunk = match stream {
        OutputStream::Stdout => task.stdout,
        OutputStream::Stderr => task.stderr,
    };
    Some(chunk?.bytes)
}

/// Asks the worker of the job for output. Returns `None` if no live worker has the job.
async fn ask(
    app: &AppState,
    job: &Job,
    position: OutputPosition,
    only: Option<TaskStream>,
) -> Result<Option<Bytes>> {
    let Some(worker) = job.holder.as_deref().and_then(|holder| WorkerId::new(holder).ok()) else {
        return Ok(None);
    };
    let record = app.store.worker(&worker).await?;
    if record.is_none_or(|record| record.liveness != Liveness::Active) {
        return Ok(None);
    }
    let request_id = app.clock.challenge_id();
    let answer = app.pubsub.reply_on(reply_channel(worker.as_str(), &request_id).into());
    let request = OutputRequest { request_id, job_id: job.job_id.clone(), position, only };
    let call = to_json(&OutputCall { output: request });
    app.pubsub.publish(&directives_channel(worker.as_str()).into(), &call.into());
    let answer = app.clock.within(Duration::from_secs(ANSWER_SECONDS), answer).await;
    let Some(Ok(answer)) = answer else {
        return Err(Rejection::OutputTimedOut { worker, seconds: ANSWER_SECONDS }.into());
    };
    Ok(Some(answer).filter(|answer| &answer[..] != b"null"))
}

/// The channel contains the id of the worker, so no other worker can answer. The client may wait at
/// another node, so this node does not know whether the client still waits.
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

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        blob::OutputStream,
        documents::{JobOutput, OutputChunk, TaskOutput},
    };

    use super::chunk_of;

    #[test]
    fn answer_about_another_attempt_has_no_bytes_of_this_one() {
        let stdout = Some(OutputChunk { from: 0, bytes: b"abc".to_vec() });
        let tasks = vec![TaskOutput { task_number: 1, command: "sh".into(), stdout, stderr: None }];
        let output = JobOutput { job_id: "j".parse().unwrap(), attempt: 2, tasks, more: false, ended: false };
        let chunk = |attempt, stream| chunk_of(output.clone(), attempt, (1, stream));
        assert_eq!(chunk(2, OutputStream::Stdout), Some(b"abc".to_vec()));
        assert_eq!(chunk(2, OutputStream::Stderr), None);
        assert_eq!(chunk(1, OutputStream::Stdout), None);
        assert_eq!(chunk_of(output.clone(), 2, (2, OutputStream::Stdout)), None);
    }
}
