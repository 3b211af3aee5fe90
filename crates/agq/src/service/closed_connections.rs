//! Return of the jobs that a closed connection held in its own name, and of its claims whose
//! replies may be lost.

use super::{
    job_changes::{release_all, release_unreported},
    workers::detach,
};
use crate::{app::AppState, error::Result, registry::unreturned_claims::ClosedConnection};

/// Returns the jobs of a closed connection to their queues, and detaches its worker. If the store
/// is not reachable, [`release_unreturned`] repeats the return.
pub(crate) async fn release(app: &AppState, closed: ClosedConnection) -> Result<()> {
    let outcome = try_release(app, &closed).await;
    if outcome.is_err() {
        app.unreturned_claims.add(closed);
    }
    outcome
}

/// Does all parts of the return, because a part that always fails must not prevent the others.
async fn try_release(app: &AppState, closed: &ClosedConnection) -> Result<()> {
    let mut outcome = Ok(());
    for claim in &closed.unacked {
        outcome = outcome.and(release_unreported(app, &claim.job_id, &claim.holder, claim.attempt).await);
    }
    outcome = outcome.and(release_all(app, &closed.name).await);
    if let Some(worker_id) = &closed.worker_id {
        outcome = outcome.and(detach(app, worker_id, &closed.name).await);
    }
    outcome
}

/// Repeats failed returns, up to the first failure: the store is probably still away, and each try
/// takes as long as its timeout. Every node calls this, because each knows only its own
/// connections.
pub(crate) async fn release_unreturned(app: &AppState) -> Result<()> {
    let mut closed = app.unreturned_claims.take().into_iter();
    while let Some(next) = closed.next() {
        if let Err(error) = release(app, next).await {
            closed.for_each(|rest| app.unreturned_claims.add(rest));
            return Err(error);
        }
    }
    Ok(())
}
