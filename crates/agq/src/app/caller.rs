//! Sender of a command, and names of connections.

use std::sync::Arc;

use agenix_protocol::ids::WorkerId;
use agenix_rules::owner::{AgentTerms, Owner};
use rustix::process::Pid;

use crate::auth::keyring::{Identity, Role};

/// Returns the name of a connection. No worker id and no connection of another node has this name.
pub(crate) fn connection_name(node: Option<&str>, number: u64) -> Arc<str> {
    match node {
        None => format!("connection:{number}").into(),
        Some(node) => format!("connection:{node}:{number}").into(),
    }
}

pub(crate) fn node_of(connection: &str) -> Option<&str> {
    connection.strip_prefix("connection:")?.split_once(':').map(|(node, _)| node)
}

/// Returns true if `holder` is a connection, and false if it is a worker.
pub(crate) fn is_connection(holder: &str) -> bool {
    holder.starts_with("connection:")
}

#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) connection: Arc<str>,
    pub(crate) number: u64,
    /// Address of the client, for people.
    pub(crate) from: Arc<str>,
    /// Identity of the key that the client has shown.
    pub(crate) identity: Option<Identity>,
    /// The worker that registered on this connection.
    pub(crate) registered: Option<WorkerId>,
    /// Name that the client gave itself, if a worker could have that name.
    pub(crate) name: Option<WorkerId>,
    /// Set after HELLO or CLIENT: the client expects the reply shapes of Redis.
    pub(crate) is_introduced: bool,
    /// Process of a client on a Unix socket that runs as the user of agq.
    pub(crate) process: Option<Pid>,
}

/// Agent that sends a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agent<'c> {
    pub(crate) owner: &'c Owner,
    pub(crate) terms: &'c AgentTerms,
}

/// Sender of a plan or an action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submitter<'c> {
    /// Owner of the new records.
    pub(crate) owner: Option<&'c Owner>,
    pub(crate) agent: Option<Agent<'c>>,
    /// Identity of the key.
    pub(crate) identity: Option<&'c Identity>,
}

#[cfg(test)]
impl Submitter<'_> {
    /// Sender without a name.
    pub(crate) const NOBODY: Self = Self { owner: None, agent: None, identity: None };
}

impl Caller {
    pub(crate) fn new(connection: Arc<str>, number: u64, from: &str, identity: Option<Identity>) -> Self {
        let from = from.into();
        Self {
            connection,
            number,
            from,
            identity,
            registered: None,
            name: None,
            is_introduced: false,
            process: None,
        }
    }

    /// `None` for the key of a client or an agent, which never acts for a worker, even if the
    /// connection registered.
    pub(crate) fn registered_here(&self) -> Option<&WorkerId> {
        let is_other = |identity: &Identity| matches!(identity.role, Role::Client | Role::Agent);
        self.registered.as_ref().filter(|_| !self.identity.as_ref().is_some_and(is_other))
    }

    pub(crate) fn submitter(&self) -> Submitter<'_> {
        let owner = self.identity.as_ref().and_then(|identity| identity.owner.as_ref());
        Submitter { owner, agent: self.agent(), identity: self.identity.as_ref() }
    }

    /// Returns the caller as an agent, or `None` if the caller has another role.
    pub(crate) fn agent(&self) -> Option<Agent<'_>> {
        let identity = self.identity.as_ref().filter(|identity| identity.role == Role::Agent)?;
        Some(Agent { owner: identity.owner.as_ref()?, terms: identity.terms.as_deref()? })
    }

    /// `None` unless the key is an admin's, because a name alone proves nothing.
    pub(crate) fn claimed_name(&self) -> Option<&WorkerId> {
        let is_admin = self.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin);
        self.name.as_ref().filter(|_| is_admin)
    }

    pub(crate) fn key_worker(&self) -> Option<WorkerId> {
        let identity = self.identity.as_ref().filter(|identity| identity.role == Role::Worker)?;
        WorkerId::new(&*identity.name).ok()
    }
}
