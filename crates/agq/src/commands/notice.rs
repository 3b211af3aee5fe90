//! What workers are told and judged by beside their commands: nudges, and quarantine.

use agenix_protocol::{ids::WorkerId, names::orders_channel};
use agenix_rules::worker::{self, Standing, Worker};
use bytes::Bytes;
use tracing::warn;

use crate::{
    error::CommandError,
    herald::tell_of_worker,
    house::{House, is_connection},
    store::Promise,
};

/// Lets a worker know that it should ask for orders now. One that does not listen asks with its next heartbeat.
pub(crate) fn nudge(house: &House, worker_id: &str) {
    if is_connection(worker_id) {
        return;
    }
    house.hub.publish(&orders_channel(worker_id).into(), &Bytes::from_static(b"heartbeat"));
}

/// A job of a holder ended: a worker that fails far more often than the others gets no more.
pub(crate) async fn note_outcome(house: &House, holder: &str, failed: bool) -> Result<(), CommandError> {
    let Ok(worker_id) = WorkerId::new(holder) else { return Ok(()) };
    if !house.reputation.note(&worker_id, failed) || !house.settings.quarantine {
        return Ok(());
    }
    let workers: Vec<Worker> = house.store.workers().await?.into_iter().map(|(worker, _)| worker).collect();
    let Some(reason) = house.reputation.verdict(&worker_id, &workers) else { return Ok(()) };
    warn!(%worker_id, reason, "a worker is quarantined; WORKER.RESUME gives it jobs again");
    let rule = move |known: Option<&Worker>| {
        let takes = known.filter(|known| known.standing == Standing::Active && known.quarantine.is_none());
        Ok(takes.map(|known| worker::quarantined(known, &reason)))
    };
    house.store.decide_worker(&worker_id, Promise::Durable, None, Box::new(rule)).await??;
    house.matchmaker.dismiss(worker_id.as_str());
    tell_of_worker(house, &worker_id, "quarantined");
    Ok(())
}
