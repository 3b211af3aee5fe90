//! Challenges to workers (worker spec §7.3). A challenge waits until its worker asks for
//! directives, and then for the answer.

use std::{collections::HashMap, sync::Mutex};

use agenix_protocol::{
    documents::{Challenge, ChallengeAnswer},
    ids::WorkerId,
};
use tokio::sync::oneshot;

use crate::sync::lock;

/// Challenges without an answer, by their id.
#[derive(Default)]
pub(crate) struct Challenges(Mutex<HashMap<String, PendingChallenge>>);

struct PendingChallenge {
    worker_id: WorkerId,
    challenge: Challenge,
    reply: oneshot::Sender<ChallengeAnswer>,
}

impl Challenges {
    pub(crate) fn add(
        &self,
        worker_id: WorkerId,
        challenge: Challenge,
    ) -> oneshot::Receiver<ChallengeAnswer> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = lock(&self.0);
        // A caller that has given up has dropped its receiver.
        waiting.retain(|_, waiting| !waiting.reply.is_closed());
        waiting.insert(challenge.challenge_id.clone(), PendingChallenge { worker_id, challenge, reply });
        answer
    }

    pub(crate) fn of(&self, worker_id: &WorkerId) -> Vec<Challenge> {
        let waiting = lock(&self.0);
        let own =
            waiting.values().filter(|waiting| waiting.worker_id == *worker_id && !waiting.reply.is_closed());
        own.map(|waiting| waiting.challenge.clone()).collect()
    }

    /// Returns true if the challenge exists, is for `worker_id` if that is given, and has a caller.
    pub(crate) fn answer(
        &self,
        challenge_id: &str,
        worker_id: Option<&WorkerId>,
        answer: ChallengeAnswer,
    ) -> bool {
        let mut waiting = lock(&self.0);
        let is_own =
            |waiting: &PendingChallenge| worker_id.is_none_or(|worker_id| waiting.worker_id == *worker_id);
        if !waiting.get(challenge_id).is_some_and(is_own) {
            return false;
        }
        waiting.remove(challenge_id).is_some_and(|waiting| waiting.reply.send(answer).is_ok())
    }
}
