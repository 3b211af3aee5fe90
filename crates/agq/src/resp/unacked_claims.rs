//! Unproven claims: nobody knows whether their replies reached the client. Unproven claims go back
//! when the connection closes.

use std::{collections::VecDeque, sync::Arc};

use agenix_protocol::ids::JobId;

/// Maximum number of claims that are remembered of a connection, because a client that always waits
/// for one more job proves none of its claims by a pause. `--start-timeout` takes back an older
/// claim that did not arrive.
const MOST: usize = 1024;

/// A claim of which nobody knows whether it reached its claimant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnackedClaim {
    pub(crate) job_id: JobId,
    pub(crate) holder: Arc<str>,
    pub(crate) attempt: u32,
}

/// The unproven claims of one connection, at most [`MOST`].
#[derive(Debug, Default)]
pub(crate) struct UnackedClaims(VecDeque<UnackedClaim>);

impl UnackedClaims {
    /// Remembers a claim, and forgets the oldest claim if there are more than [`MOST`].
    pub(crate) fn push(&mut self, claim: UnackedClaim) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(claim);
    }

    /// Forgets all claims, because their replies have arrived.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnackedClaim> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, UnackedClaim, UnackedClaims};

    #[test]
    fn a_client_that_never_pauses_has_a_bounded_number_of_unproven_claims() {
        let claim = |attempt| UnackedClaim { job_id: "j".parse().unwrap(), holder: "w".into(), attempt };
        let most = u32::try_from(MOST).unwrap();
        let mut claims = UnackedClaims::default();
        (0..most).for_each(|attempt| claims.push(claim(attempt)));
        assert_eq!((claims.iter().count(), claims.iter().next()), (MOST, Some(&claim(0))));
        claims.push(claim(most));
        assert_eq!((claims.iter().count(), claims.iter().next()), (MOST, Some(&claim(1))));
        claims.clear();
        assert_eq!(claims.iter().count(), 0);
    }
}
