//! Sender of a command, and names of connections.

use std::sync::Arc;

use agenix_protocol::ids::WorkerId;

use crate::auth::keyring::{Identity, Role};

/// The name of a connection, unlike any worker's id, and unlike that of any at another node.
pub(crate) fn connection_name(node: Option<&str>, number: u64) -> Arc<str> {
    match node {
        None => format!("connection:{number}").into(),
        Some(node) => format!("connection:{node}:{number}").into(),
    }
}

/// The node that a connection is at, where its name says so.
pub(crate) fn node_of(connection: &str) -> Option<&str> {
    connection.strip_prefix("connection:")?.split_once(':').map(|(node, _)| node)
}

/// Whether a holder is a connection rather than a worker.
pub(crate) fn is_connection(holder: &str) -> bool {
    holder.starts_with("connection:")
}

/// Who sent a command (ADR 1).
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The connection's name, unlike any worker's id.
    pub(crate) connection: Arc<str>,
    /// Its number.
    pub(crate) number: u64,
    /// Where it comes from, for people.
    pub(crate) from: Arc<str>,
    /// Whose key it has shown.
    pub(crate) identity: Option<Identity>,
    /// The worker that registered on this connection.
    pub(crate) registered: Option<WorkerId>,
    /// The name that it gave itself, where that could be a worker's.
    pub(crate) name: Option<WorkerId>,
    /// Whether it sent HELLO or CLIENT, as client libraries do: it then expects the reply shapes of Redis.
    pub(crate) is_introduced: bool,
}

impl Caller {
    /// The worker that registered on it; a client's key speaks for no worker, whatever was said before it was shown.
    pub(crate) fn registered_here(&self) -> Option<&WorkerId> {
        let is_client = self.identity.as_ref().is_some_and(|identity| identity.role == Role::Client);
        self.registered.as_ref().filter(|_| !is_client)
    }

    /// The worker whose name it bears, where it may: a name is no key, so only one who may do everything can speak for a worker
    /// by its name alone.
    pub(crate) fn claimed_name(&self) -> Option<&WorkerId> {
        let is_admin = self.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin);
        self.name.as_ref().filter(|_| is_admin)
    }

    /// The worker whose own key this is.
    pub(crate) fn key_worker(&self) -> Option<WorkerId> {
        let identity = self.identity.as_ref().filter(|identity| identity.role == Role::Worker)?;
        WorkerId::new(&*identity.name).ok()
    }
}
