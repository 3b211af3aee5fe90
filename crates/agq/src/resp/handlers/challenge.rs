//! WORKER.VERIFY and WORKER.ANSWER: a worker proves a capability (worker spec §7.3).

use std::time::Duration;

use agenix_protocol::{
    documents::{self, Challenge, ChallengeAnswer},
    ids::WorkerId,
    resp::Reply,
};
use agenix_rules::{
    capability::Needs,
    rejection::Rejection,
    worker::{Liveness, Worker},
};
use serde::Deserialize;

use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::CommandResult,
    service::{identity, worker_messages::notify_worker},
};

/// How long a challenged worker has, in seconds.
const SECONDS: u64 = 10;
/// Most bytes of a worker's output that are shown.
const MAX_OUTPUT: usize = 4096;

/// What the asker sends: the command must be the capability.
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
    let asked: ChallengeRequest =
        documents::parse(json).map_err(|error| Rejection::InvalidChallenge(error.to_string()))?;
    if asked.command != capability {
        let text = format!("command is '{}', it must be '{capability}'", asked.command.escape_debug());
        return Err(Rejection::InvalidChallenge(text).into());
    }
    let worker = capable(app, capability, worker_id).await?;
    let challenge_id = app.clock.challenge_id();
    let challenge = Challenge { challenge_id, command: asked.command, args: asked.args };
    let answer = app.challenges.pose(worker.clone(), challenge);
    notify_worker(app, worker.as_str());
    let Some(Ok(answer)) = app.clock.within(Duration::from_secs(SECONDS), answer).await else {
        return Err(Rejection::VerificationTimedOut { worker, seconds: SECONDS }.into());
    };
    let output = shortened(&answer.output);
    if answer.exit_code != 0 {
        let output = output.lines().collect::<Vec<_>>().join(" ");
        return Err(Rejection::VerificationFailed { worker, exit_code: answer.exit_code, output }.into());
    }
    Ok(Reply::Simple(format!("OK output={}", documents::to_json(&output))))
}

/// A worker that lives and says that it has the capability: the one that is named, else the one heard of last.
async fn capable(
    app: &AppState,
    capability: &str,
    named: Option<&WorkerId>,
) -> Result<WorkerId, CommandError> {
    let capable = workers_with(app, capability).await?.into_iter();
    let wanted = capable.filter(|worker| named.is_none_or(|named| *named == worker.worker_id));
    let latest = wanted.max_by_key(|worker| worker.last_seen_at).map(|worker| worker.worker_id);
    let shown = || capability.chars().take(64).collect::<String>().escape_debug().to_string();
    Ok(latest.ok_or_else(|| Rejection::NoCapableWorker(shown()))?)
}

/// The workers that live and say that they have a capability.
pub(crate) async fn workers_with(app: &AppState, capability: &str) -> Result<Vec<Worker>, CommandError> {
    let needs = Needs { tools: vec![capability.to_owned()], ..Needs::default() };
    let mut found = Vec::new();
    for worker in app.store.worker_records().await? {
        if worker.standing == Liveness::Active && app.abilities.of(&*app.store, &worker).await?.cover(&needs)
        {
            found.push(worker);
        }
    }
    Ok(found)
}

fn shortened(output: &str) -> String {
    let mut end = output.len().min(MAX_OUTPUT);
    while !output.is_char_boundary(end) {
        end -= 1;
    }
    output[..end].trim().to_owned()
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
    let id = String::from_utf8_lossy(challenge_id);
    let own = identity::reporter_id(app, caller).await?;
    if app.challenges.answer(&id, own.as_ref(), answer) {
        Ok(Reply::ok())
    } else {
        Err(Rejection::ChallengeNotFound(id.escape_debug().to_string()).into())
    }
}
