//! WORKER.REGISTER, HEARTBEAT, UNREGISTER, LIST, GET, and directives (the worker spec).

use agenix_protocol::{
    documents::{self, WorkerRegistration},
    ids::WorkerId,
    resp::Reply,
};
use agenix_rules::{rejection::Rejection, worker::Directive};
use bytes::Bytes;

use crate::{
    app::{AppState, Caller},
    error::Result,
    resp::outcome::{CommandOutcome, CommandResult, Effect, json as document, object},
    service::workers,
};

pub(crate) async fn register(app: &AppState, caller: &Caller, json: &[u8]) -> Result<CommandOutcome> {
    let worker_id = workers::register(app, caller, read_registration(json)?).await?;
    let seconds = heartbeat_seconds(app.settings.heartbeat_interval_ms);
    let reply = Reply::Simple(format!("OK worker_id={worker_id} heartbeat_interval={seconds}"));
    Ok(CommandOutcome::with(reply, Effect::Registered(worker_id)))
}

/// Returns one of the three texts of the specifications for a bad registration.
fn read_registration(json: &[u8]) -> Result<WorkerRegistration, Rejection> {
    documents::parse_object(json).map_err(|error| {
        let text = error.to_string();
        if text.starts_with("capabilities:") {
            Rejection::CapabilitiesFormat
        } else {
            Rejection::InvalidRegistration(text)
        }
    })
}

/// `30`, or `0.5`.
fn heartbeat_seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => (ms / 1000).to_string(),
        rest => format!("{}.{rest:03}", ms / 1000).trim_end_matches('0').to_owned(),
    }
}

pub(crate) async fn heartbeat(
    app: &AppState,
    caller: &Caller,
    worker_id: &WorkerId,
    stats: Option<Bytes>,
) -> CommandResult {
    let stats = stats.map(|stats| object(&stats, Rejection::InvalidStats)).transpose()?;
    let directives = workers::heartbeat(app, caller, worker_id, stats).await?;
    if directives.is_empty() {
        return Ok(Reply::ok());
    }
    Ok(Reply::Simple(format!("OK orders={}", documents::to_json(&directives))))
}

pub(crate) async fn unregister(
    app: &AppState,
    caller: &Caller,
    worker_id: WorkerId,
) -> Result<CommandOutcome> {
    workers::unregister(app, caller, &worker_id).await?;
    Ok(CommandOutcome::with(Reply::ok(), Effect::Unregistered(worker_id)))
}

pub(crate) async fn list(app: &AppState) -> CommandResult {
    Ok(Reply::bulks(workers::list(app).await?.iter().map(documents::to_json)))
}

pub(crate) async fn get(app: &AppState, worker_id: &WorkerId) -> CommandResult {
    Ok(workers::status(app, worker_id).await?.map_or(Reply::Nil, |worker| document(&worker)))
}

pub(crate) async fn drain(app: &AppState, worker_id: &WorkerId, by: Option<String>) -> CommandResult {
    match by {
        None => workers::set_directive(app, worker_id, Some(Directive::Drain)).await?,
        Some(by) => workers::drain_by(app, worker_id, by).await?,
    }
    Ok(Reply::ok())
}

/// WORKER.TERMINATE, WORKER.RESUME
pub(crate) async fn set_directive(
    app: &AppState,
    worker_id: &WorkerId,
    directive: Option<Directive>,
) -> CommandResult {
    workers::set_directive(app, worker_id, directive).await?;
    Ok(Reply::ok())
}

#[cfg(test)]
mod tests {
    use super::heartbeat_seconds;

    #[test]
    fn heartbeat_interval_is_shown_without_trailing_zeros() {
        assert_eq!([30_000, 500, 1250].map(heartbeat_seconds), ["30", "0.5", "1.25"]);
    }
}
