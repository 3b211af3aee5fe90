//! JOB.OUTPUT and WORKER.OUTPUT: live output of running jobs.

use agenix_protocol::{
    documents::{JobOutput, OutputPosition},
    ids::JobId,
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, parsed},
    service::job_output,
};

/// Maximum number of bytes of an answer, because other nodes receive the answer too.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

pub(crate) async fn show(app: &AppState, job_id: &JobId, position: Option<&Bytes>) -> CommandResult {
    let parse = |json: &Bytes| parsed::<OutputPosition>(json, Rejection::InvalidOutput);
    let position = position.map(parse).transpose()?;
    Ok(job_output::read(app, job_id, position).await?.map_or(Reply::Nil, Reply::Bulk))
}

pub(crate) async fn deliver(
    app: &AppState,
    caller: &Caller,
    request_id: &[u8],
    output: &[u8],
) -> CommandResult {
    if output.len() > MAX_ANSWER_BYTES {
        let text = format!("it has {} bytes, max {MAX_ANSWER_BYTES}", output.len());
        return Err(Rejection::InvalidOutput(text).into());
    }
    let output: Option<JobOutput> = parsed(output, Rejection::InvalidOutput)?;
    job_output::deliver(app, caller, &String::from_utf8_lossy(request_id), output.as_ref()).await?;
    Ok(Reply::ok())
}
