//! Unacknowledged claims: claims whose replies may not have reached the client. Unacknowledged
//! claims return to their queues when the connection closes.

use std::collections::VecDeque;

use crate::registry::unreturned_claims::UnackedClaim;

/// A client that always waits for one more job acknowledges no claim by a pause. `--start-timeout`
/// takes back an older claim that did not arrive.
const MAX_CLAIMS: usize = 1024;

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

    /// Removes all claims, and returns them.
    pub(crate) fn take(&mut self) -> Vec<UnackedClaim> {
        std::mem::take(&mut self.0).into()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CLAIMS, UnackedClaims};
    use crate::registry::unreturned_claims::UnackedClaim;

    #[test]
    fn unacked_claims_are_bounded_for_a_client_that_never_pauses() {
        let claim = |attempt| UnackedClaim { job_id: "j".parse().unwrap(), holder: "w".into(), attempt };
        let max = u32::try_from(MAX_CLAIMS).unwrap();
        let mut claims = UnackedClaims::default();
        (0..max).for_each(|attempt| claims.push(claim(attempt)));
        assert_eq!((claims.0.len(), claims.0.front()), (MAX_CLAIMS, Some(&claim(0))));
        claims.push(claim(max));
        assert_eq!((claims.0.len(), claims.0.front()), (MAX_CLAIMS, Some(&claim(1))));
        assert_eq!(claims.take().len(), MAX_CLAIMS);
        assert!(claims.take().is_empty());
    }
}
