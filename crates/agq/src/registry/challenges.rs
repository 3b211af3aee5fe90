//! Challenges to workers (worker spec §7.3): each waits until its worker asks for orders, and then for its answer.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use agenix_protocol::{
    documents::{Challenge, ChallengeAnswer},
    ids::WorkerId,
};
use tokio::sync::oneshot;

/// The challenges that wait for their answers.
#[derive(Default)]
pub(crate) struct Challenges(Mutex<HashMap<String, PendingChallenge>>);

struct PendingChallenge {
    worker_id: WorkerId,
    challenge: Challenge,
    give: oneshot::Sender<ChallengeAnswer>,
}

impl Challenges {
    /// Leaves a challenge for a worker.
    pub(crate) fn pose(
        &self,
        worker_id: WorkerId,
        challenge: Challenge,
    ) -> oneshot::Receiver<ChallengeAnswer> {
        let (give, get) = oneshot::channel();
        let mut waiting = self.lock();
        // Whoever gave up waiting for an answer has dropped the other end.
        waiting.retain(|_, waiting| !waiting.give.is_closed());
        waiting.insert(challenge.challenge_id.clone(), PendingChallenge { worker_id, challenge, give });
        get
    }

    /// The challenges that wait for a worker.
    pub(crate) fn of(&self, worker_id: &WorkerId) -> Vec<Challenge> {
        let waiting = self.lock();
        let own =
            waiting.values().filter(|waiting| waiting.worker_id == *worker_id && !waiting.give.is_closed());
        own.map(|waiting| waiting.challenge.clone()).collect()
    }

    /// A worker answers; whether there was such a challenge, for this worker where one is named.
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
        waiting.remove(challenge_id).is_some_and(|waiting| waiting.give.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PendingChallenge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
