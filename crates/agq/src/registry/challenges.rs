//! Challenges to workers (worker spec §7.3). A challenge waits until its worker asks for
//! directives, and then for the answer.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use agenix_protocol::{
    documents::{Challenge, ChallengeAnswer},
    ids::WorkerId,
};
use tokio::sync::oneshot;

/// Challenges without an answer, by their id.
#[derive(Default)]
pub(crate) struct Challenges(Mutex<HashMap<String, PendingChallenge>>);

struct PendingChallenge {
    worker_id: WorkerId,
    challenge: Challenge,
    reply: oneshot::Sender<ChallengeAnswer>,
}

impl Challenges {
    /// Adds a challenge for a worker, and returns the receiver of the answer.
    pub(crate) fn pose(
        &self,
        worker_id: WorkerId,
        challenge: Challenge,
    ) -> oneshot::Receiver<ChallengeAnswer> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.lock();
        // A caller that has given up has dropped its receiver.
        waiting.retain(|_, waiting| !waiting.reply.is_closed());
        waiting.insert(challenge.challenge_id.clone(), PendingChallenge { worker_id, challenge, reply });
        answer
    }

    /// Returns the challenges without an answer for a worker.
    pub(crate) fn of(&self, worker_id: &WorkerId) -> Vec<Challenge> {
        let waiting = self.lock();
        let own =
            waiting.values().filter(|waiting| waiting.worker_id == *worker_id && !waiting.reply.is_closed());
        own.map(|waiting| waiting.challenge.clone()).collect()
    }

    /// Delivers an answer. Returns true if the challenge exists, is for `worker_id` if that is
    /// given, and its caller still waits.
    pub(crate) fn answer(
        &self,
        challenge_id: &str,
        worker_id: Option<&WorkerId>,
        answer: ChallengeAnswer,
    ) -> bool {
        let mut waiting = self.lock();
        let is_own =
            |waiting: &PendingChallenge| worker_id.is_none_or(|worker_id| waiting.worker_id == *worker_id);
        if !waiting.get(challenge_id).is_some_and(is_own) {
            return false;
        }
        waiting.remove(challenge_id).is_some_and(|waiting| waiting.reply.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PendingChallenge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
