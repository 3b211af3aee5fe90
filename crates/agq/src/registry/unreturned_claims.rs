//! Closed connections whose jobs could not be returned, because the store was not reachable.

use std::sync::{Arc, Mutex};

use agenix_protocol::ids::{JobId, WorkerId};

use crate::sync::lock;

/// Claim whose reply may not have reached the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnackedClaim {
    pub(crate) job_id: JobId,
    pub(crate) holder: Arc<str>,
    pub(crate) attempt: u32,
}

#[derive(Debug)]
pub(crate) struct ClosedConnection {
    /// Name under which the connection held jobs.
    pub(crate) name: Arc<str>,
    /// Worker that registered on the connection.
    pub(crate) worker_id: Option<WorkerId>,
    pub(crate) unacked: Vec<UnackedClaim>,
}

/// Closed connections that still hold jobs. Each node keeps its own closed connections in memory,
/// because the leader returns the jobs of the connections of a node that has ended.
#[derive(Debug, Default)]
pub(crate) struct UnreturnedClaims(Mutex<Vec<ClosedConnection>>);

impl UnreturnedClaims {
    pub(crate) fn add(&self, closed: ClosedConnection) {
        lock(&self.0).push(closed);
    }

    /// Removes all connections, and returns them.
    pub(crate) fn take(&self) -> Vec<ClosedConnection> {
        std::mem::take(&mut lock(&self.0))
    }
}
