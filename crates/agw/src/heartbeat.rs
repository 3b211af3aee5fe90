//! Heartbeats: they say how the worker is, and bring back what agq wants of it.

use agenix_client::ClientError;
use agenix_protocol::documents::Orders;
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, interval},
};
use tracing::warn;

use crate::{challenge::Challenges, crew::Crew, session::Session, vitals::Vitals};

/// Sends heartbeats until one fails: in time, and whenever `nudge` is told. What is wanted of jobs and tools is seen to
/// here; what is wanted of the worker as a whole goes to `tell`.
pub(crate) async fn beat(
    session: &Session,
    vitals: &mut Vitals,
    crew: &Crew,
    nudge: &Notify,
    tell: &watch::Sender<Orders>,
) -> ClientError {
    let mut reports = session.reports.clone();
    let mut challenges = Challenges::default();
    let mut beats = interval(session.heartbeat_interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beats.tick() => {}
            () = nudge.notified() => {}
        }
        let (jobs, next) = crew.roster();
        let stats = vitals.take(&crew.counters, &jobs).to_string();
        let orders = match reports.heartbeat(&session.worker_id, stats).await {
            Ok(orders) => orders,
            // It was heard, and an agq of another version may want what we cannot do.
            Err(ClientError::Unexpected(reason)) => {
                warn!("agq's orders cannot be read: {reason}");
                continue;
            }
            Err(error) => return error,
        };
        crew.cancel(&orders.cancel, next);
        challenges.take(&orders.verify, &crew.workshop(), &reports);
        tell.send_replace(orders);
    }
}
