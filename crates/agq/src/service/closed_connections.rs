//! Return of the jobs that a closed connection held in its own name, and of its claims whose
//! replies may be lost.

use super::{
    job_changes::{release_all, release_unreported},
    workers::detach,
};
use crate::{app::AppState, error::Result, registry::unreturned_claims::ClosedConnection};

/// Returns the jobs of a closed connection to their queues, and detaches its worker. If the store
/// is not reachable, [`release_unreturned`] repeats this.
pub(crate) async fn release(app: &AppState, closed: ClosedConnection) -> Result<()> {
    let outcome = try_release(app, &closed).await;
    if outcome.is_err() {
        app.unreturned_claims.add(closed);
    }
    outcome
}

async fn try_release(app: &AppState, closed: &ClosedConnection) -> Result<()> {
    for claim in &closed.unacked {
        release_unreported(app, &claim.job_id, &claim.holder, claim.attempt).await?;
    }
    release_all(app, &closed.name).await?;
    match &closed.worker_id {
        Some(worker_id) => detach(app, worker_id, &closed.name).await,
        None => Ok(()),
    }
}

/// Repeats what has failed. Every node calls this, because each knows only its own connections.
pub(crate) async fn release_unreturned(app: &AppState) -> Result<()> {
    let mut outcome = Ok(());
    for closed in app.unreturned_claims.take() {
        outcome = outcome.and(release(app, closed).await);
    }
    outcome
}
