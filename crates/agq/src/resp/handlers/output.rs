//! JOB.OUTPUT and WORKER.OUTPUT: live output of running jobs.

use agenix_protocol::{
    documents::{self, JobOutput, OutputPosition},
    ids::JobId,
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use crate::{
    app::{AppState, Caller},
    resp::outcome::CommandResult,
    service::job_output,
};

/// Maximum number of bytes of an answer, because other nodes receive the answer too.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// JOB.OUTPUT
pub(crate) async fn show(app: &AppState, job_id: &JobId, position: Option<&Bytes>) -> CommandResult {
    let position = position.map(|json| documents::parse::<OutputPosition>(json)).transpose();
    let position = position.map_err(|error| Rejection::InvalidOutput(error.to_string()))?;
    Ok(job_output::read(app, job_id, position).await?.map_or(Reply::Nil, Reply::Bulk))
}

/// WORKER.OUTPUT
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
    let output: Option<JobOutput> =
        documents::parse(output).map_err(|error| Rejection::InvalidOutput(error.to_string()))?;
    job_output::deliver(app, caller, &String::from_utf8_lossy(request_id), output.as_ref()).await?;
    Ok(Reply::ok())
}
