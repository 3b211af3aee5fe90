//! Halted actions: cancels and withdraws their jobs after the store has halted the actions.

use std::{sync::Arc, time::Duration};

use agenix_protocol::ids::ActionId;
use agenix_rules::action::halt::{self, RemainingWork};
use tracing::{error, info};

use super::{
    action_changes::{cancel_jobs, cancel_pending, withdraw_unstarted},
    job_ended::on_jobs_ended,
};
use crate::{
    app::AppState,
    error::Result,
    store::{DocumentKind, StoreError},
};

/// Pauses after a halt, because a job on its way to its worker misses the first request to give it
/// up.
const PAUSES_MS: [u64; 5] = [5, 20, 75, 200, 250];

/// Withdraws the jobs of actions as soon as the actions halt. The rounds of the reaper do the rest.
pub(crate) async fn run(app: Arc<AppState>) {
    let notifier = app.store.notifier();
    loop {
        notifier.halts().await;
        for pause in PAUSES_MS.map(Duration::from_millis) {
            match advance_all(&app).await {
                Ok(true) => app.clock.sleep(pause).await,
                Ok(false) => break,
                Err(error) => {
                    error!(%error, "the jobs of a halted action could not be withdrawn; the reaper tries again");
                    break;
                }
            }
        }
    }
}

/// Returns true if a later round may have more to do.
pub(crate) async fn advance_all(app: &AppState) -> Result<bool> {
    let mut is_more = false;
    for (id, _) in app.store.documents(DocumentKind::Halted).await? {
        let action_id = ActionId::new(id).map_err(|error| StoreError(error.to_string()))?;
        is_more |= advance(app, &action_id).await?;
    }
    Ok(is_more)
}

async fn advance(app: &AppState, action_id: &ActionId) -> Result<bool> {
    let now = app.clock.now();
    let found = app.store.action(action_id).await?;
    let left = found
        .as_ref()
        .map_or(RemainingWork::Nothing, |(action, counts)| halt::remaining_work(action, counts, now));
    match left {
        RemainingWork::Nothing => {
            app.store.complete_halt(action_id, now).await?;
            info!(%action_id, "a halted action has ended");
        }
        RemainingWork::Wait => {}
        RemainingWork::Withdraw { cancels: true } => {
            let cancelled = cancel_jobs(app, action_id).await?;
            on_jobs_ended(app, &cancelled).await;
        }
        RemainingWork::Withdraw { cancels: false } => {
            // The workers come first, because they start jobs meanwhile.
            withdraw_unstarted(app, action_id).await?;
            let cancelled = cancel_pending(app, action_id).await?;
            on_jobs_ended(app, &cancelled).await;
        }
    }
    Ok(matches!(left, RemainingWork::Withdraw { .. }))
}
