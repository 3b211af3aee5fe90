//! Unacknowledged claims: claims whose replies may not have reached the client. They return to
//! their queues when the connection closes.

use std::{collections::VecDeque, sync::Arc};

use agenix_protocol::ids::JobId;

/// A client that always waits for one more job acknowledges no claim by a pause. `--start-timeout`
/// takes back an older claim that did not arrive.
const MAX_CLAIMS: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnackedClaim {
    pub(crate) job_id: JobId,
    pub(crate) holder: Arc<str>,
    pub(crate) attempt: u32,
}

#[derive(Debug, Default)]
pub(crate) struct UnackedClaims(VecDeque<UnackedClaim>);

impl UnackedClaims {
    /// Removes the oldest claim if there are more than [`MAX_CLAIMS`].
    pub(crate) fn push(&mut self, claim: UnackedClaim) {
        if self.0.len() == MAX_CLAIMS {
            self.0.pop_front();
        }
        self.0.push_back(claim);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnackedClaim> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CLAIMS, UnackedClaim, UnackedClaims};

    #[test]
    fn unacked_claims_are_bounded_for_a_client_that_never_pauses() {
        let claim = |attempt| UnackedClaim { job_id: "j".parse().unwrap(), holder: "w".into(), attempt };
        let max = u32::try_from(MAX_CLAIMS).unwrap();
        let mut claims = UnackedClaims::default();
        (0..max).for_each(|attempt| claims.push(claim(attempt)));
        assert_eq!((claims.iter().count(), claims.iter().next()), (MAX_CLAIMS, Some(&claim(0))));
        claims.push(claim(max));
        assert_eq!((claims.iter().count(), claims.iter().next()), (MAX_CLAIMS, Some(&claim(1))));
        claims.clear();
        assert_eq!(claims.iter().count(), 0);
    }
}
