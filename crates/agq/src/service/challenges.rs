//! Challenges: a worker proves a capability by running a command (worker spec §7.3).

use std::time::Duration;

use agenix_protocol::{
    documents::{Challenge, ChallengeAnswer},
    ids::WorkerId,
};
use agenix_rules::{
    capability::Needs,
    rejection::Rejection,
    worker::{Liveness, Worker},
};

use super::{identity, worker_messages::notify_worker};
use crate::{
    app::{AppState, Caller},
    error::Result,
};

/// Time within which a challenged worker has to answer, in seconds.
const ANSWER_SECONDS: u64 = 10;
/// Maximum number of bytes of a worker's output that are shown.
const MAX_OUTPUT: usize = 4096;
/// Maximum number of characters of a capability that an error shows.
const MAX_SHOWN_NAME: usize = 64;

/// Returns the output of `command` on `worker_id`, or on the worker that was seen last. Rejects a
/// worker that does not list `capability`, fails, or does not answer in time.
pub(crate) async fn verify(
    app: &AppState,
    capability: &str,
    (command, args): (String, Vec<String>),
    worker_id: Option<&WorkerId>,
) -> Result<String> {
    if command != capability {
        let text = format!("command is '{}', it must be '{capability}'", command.escape_debug());
        return Err(Rejection::InvalidChallenge(text).into());
    }
    let worker = capable_worker(app, capability, worker_id).await?;
    let challenge_id = app.clock.challenge_id();
    let challenge = Challenge { challenge_id, command, args };
    let answer = app.challenges.add(worker.clone(), challenge);
    notify_worker(app, worker.as_str());
    let Some(Ok(answer)) = app.clock.within(Duration::from_secs(ANSWER_SECONDS), answer).await else {
        return Err(Rejection::VerificationTimedOut { worker, seconds: ANSWER_SECONDS }.into());
    };
    let output = shortened(&answer.output);
    if answer.exit_code != 0 {
        let output = output.lines().collect::<Vec<_>>().join(" ");
        return Err(Rejection::VerificationFailed { worker, exit_code: answer.exit_code, output }.into());
    }
    Ok(output)
}

/// Rejects an answer to the challenge of another worker.
pub(crate) async fn answer(
    app: &AppState,
    caller: &Caller,
    challenge_id: &str,
    answer: ChallengeAnswer,
) -> Result<()> {
    let own = identity::reporter_id(app, caller).await?;
    if app.challenges.answer(challenge_id, own.as_ref(), answer) {
        Ok(())
    } else {
        Err(Rejection::ChallengeNotFound(challenge_id.escape_debug().to_string()).into())
    }
}

/// Returns `named`, or the worker with the capability that was seen last.
async fn capable_worker(app: &AppState, capability: &str, named: Option<&WorkerId>) -> Result<WorkerId> {
    let capable = workers_with(app, capability).await?.into_iter();
    let wanted = capable.filter(|worker| named.is_none_or(|named| *named == worker.worker_id));
    let latest = wanted.max_by_key(|worker| worker.last_seen_at).map(|worker| worker.worker_id);
    let name = || capability.chars().take(MAX_SHOWN_NAME).collect::<String>().escape_debug().to_string();
    Ok(latest.ok_or_else(|| Rejection::NoCapableWorker(name()))?)
}

/// Returns the live workers that list `capability`.
pub(crate) async fn workers_with(app: &AppState, capability: &str) -> Result<Vec<Worker>> {
    let needs = Needs { tools: vec![capability.to_owned()], ..Needs::default() };
    let mut found = Vec::new();
    for worker in app.store.worker_records().await? {
        if worker.liveness == Liveness::Active
            && app.capabilities.of(&*app.store, &worker).await?.cover(&needs)
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

#[cfg(test)]
mod tests {
    use super::{MAX_OUTPUT, shortened};

    #[test]
    fn challenge_output_is_cut_between_two_characters() {
        assert_eq!(shortened(" a\n"), "a");
        let long = format!("{}é", "a".repeat(MAX_OUTPUT - 1));
        assert_eq!(shortened(&long), "a".repeat(MAX_OUTPUT - 1));
    }
}
