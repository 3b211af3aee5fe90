//! Actors of the simulation: three workers and a connection without a worker.

use std::sync::Arc;

use agenix_protocol::ids::WorkerId;

use crate::{
    app::{AppState, Caller, connection_name},
    auth::keyring::{Identity, Role},
    registry::unreturned_claims::UnackedClaim,
    resp::outcome::CommandOutcome,
};
use agenix_protocol::resp::Reply;

/// Job that an actor holds as far as its replies show.
#[derive(Debug, Clone)]
pub(super) struct HeldJob {
    pub(super) job_id: String,
    pub(super) attempt: u32,
}

/// Blob that a job of an actor may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommittedBlob {
    pub(super) job_id: String,
    pub(super) attempt: u32,
    pub(super) content: String,
}

#[derive(Debug, Clone)]
pub(super) struct Actor {
    /// `None` for a connection that registers no worker.
    pub(super) worker_id: Option<WorkerId>,
    pub(super) caller: Arc<Caller>,
    pub(super) registered: bool,
    /// Number of the claim for which the actor waits.
    pub(super) waits: Option<u64>,
    pub(super) holds: Vec<HeldJob>,
    /// Blobs that agq has acknowledged, and no report has named.
    pub(super) committed: Vec<CommittedBlob>,
    /// Reports that the actor has sent, as job id and document. Some of these reports are sent
    /// again later.
    pub(super) sent: Vec<(String, String)>,
    /// Claims whose replies may not have arrived at the actor.
    pub(super) unconfirmed: Vec<UnackedClaim>,
    /// Simulated time until which the actor does nothing, in milliseconds.
    pub(super) silent_until_ms: u64,
}

impl Actor {
    pub(super) fn new(number: u64, worker_id: Option<&str>) -> Self {
        let worker_id = worker_id.map(|id| WorkerId::new(id).expect("the simulation's ids are legal"));
        let mut actor = Self {
            caller: Arc::new(caller(number, worker_id.as_ref())),
            worker_id,
            registered: false,
            waits: None,
            holds: Vec::new(),
            committed: Vec::new(),
            sent: Vec::new(),
            unconfirmed: Vec::new(),
            silent_until_ms: 0,
        };
        actor.connect(number);
        actor
    }

    /// Opens a new connection, which has no state of the previous one.
    pub(super) fn connect(&mut self, number: u64) {
        self.caller = Arc::new(caller(number, self.worker_id.as_ref()));
        (self.registered, self.waits) = (false, None);
        self.unconfirmed.clear();
    }

    pub(super) fn holder(&self) -> String {
        self.worker_id
            .as_ref()
            .map_or_else(|| self.caller.connection.to_string(), |id| id.as_str().to_owned())
    }

    /// Returns the ids of the held jobs as elements of a JSON array.
    pub(super) fn held_ids(&self) -> String {
        self.holds.iter().map(|held| format!("\"{}\"", held.job_id)).collect::<Vec<_>>().join(",")
    }
}

fn caller(number: u64, worker_id: Option<&WorkerId>) -> Caller {
    let identity = match worker_id {
        Some(id) if number.is_multiple_of(2) => Identity::new(Role::Worker, id.as_str()),
        _ => Identity::of_session_key(),
    };
    Caller {
        connection: connection_name(None, number),
        number,
        from: "simulation".into(),
        identity: Some(identity),
        registered: None,
        name: None,
        is_introduced: false,
        process: None,
    }
}

/// Does the work of agq when the connection of `actor` is closed.
pub(super) fn close_connection(
    app: &Arc<AppState>,
    actor: &Actor,
) -> impl Future<Output = CommandOutcome> + 'static {
    let (app, caller, unconfirmed) = (Arc::clone(app), Arc::clone(&actor.caller), actor.unconfirmed.clone());
    async move {
        for claim in unconfirmed {
            let holder = &*claim.holder;
            let _failing =
                crate::service::job_changes::release_unreported(&app, &claim.job_id, holder, claim.attempt)
                    .await;
        }
        let _failing = crate::service::job_changes::release_all(&app, &caller.connection).await;
        if let Some(worker_id) = &caller.registered {
            let _failing = crate::service::workers::detach(&app, worker_id, &caller.connection).await;
        }
        CommandOutcome::plain(Reply::Nil)
    }
}
