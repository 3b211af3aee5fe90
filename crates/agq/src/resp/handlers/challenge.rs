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
    resp::outcome::CommandResult,
    service::challenges,
};

/// Argument of WORKER.VERIFY. `command` has to be the capability.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChallengeRequest {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

/// WORKER.VERIFY
pub(crate) async fn verify(
    app: &AppState,
    capability: &str,
    json: &[u8],
    worker_id: Option<&WorkerId>,
) -> CommandResult {
    let ChallengeRequest { command, args } =
        documents::parse(json).map_err(|error| Rejection::InvalidChallenge(error.to_string()))?;
    let output = challenges::verify(app, capability, (command, args), worker_id).await?;
    Ok(Reply::Simple(format!("OK output={}", documents::to_json(&output))))
}

/// WORKER.ANSWER
pub(crate) async fn answer(
    app: &AppState,
    caller: &Caller,
    challenge_id: &[u8],
    json: &[u8],
) -> CommandResult {
    let answer: ChallengeAnswer =
        documents::parse(json).map_err(|error| Rejection::InvalidChallenge(error.to_string()))?;
    challenges::answer(app, caller, &String::from_utf8_lossy(challenge_id), answer).await?;
    Ok(Reply::ok())
}
