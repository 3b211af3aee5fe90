//! WORKER.VERIFY and WORKER.ANSWER (worker spec §7.3).

use agenix_protocol::{
    documents::{self, ChallengeAnswer},
    ids::WorkerId,
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use serde::Deserialize;

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, parsed},
    service::challenges,
};

/// `command` has to be the capability.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChallengeRequest {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

pub(crate) async fn verify(
    app: &AppState,
    capability: &str,
    json: &[u8],
    worker_id: Option<&WorkerId>,
) -> CommandResult {
    let ChallengeRequest { command, args } = parsed(json, Rejection::InvalidChallenge)?;
    let output = challenges::verify(app, capability, (command, args), worker_id).await?;
    Ok(Reply::Simple(format!("OK output={}", documents::to_json(&output))))
}

pub(crate) async fn answer(
    app: &AppState,
    caller: &Caller,
    challenge_id: &[u8],
    json: &[u8],
) -> CommandResult {
    let answer: ChallengeAnswer = parsed(json, Rejection::InvalidChallenge)?;
    challenges::answer(app, caller, &String::from_utf8_lossy(challenge_id), answer).await?;
    Ok(Reply::ok())
}
