//! One stay at agq: registered, with a connection for reports and heartbeats and one for claims.

use std::time::Duration;

use agenix_client::{ClientError, Connection, Server};
use agenix_protocol::{
    documents::{JobDocument, WorkerRegistration},
    ids::WorkerId,
    request::Wait,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::vitals::{Counters, Vitals};

/// How long a claim waits before it is made again: agq may have forgotten us meanwhile.
const CLAIM_WAIT: Wait = Wait::Ms(5000);
/// How long an answer to a claim may take.
const CLAIM_BOUND: Duration = Duration::from_secs(60);

/// A stay.
pub(crate) struct Session {
    /// For reports and heartbeats.
    pub(crate) reports: Connection,
    worker_id: WorkerId,
    heartbeat_interval: Duration,
}

/// Where jobs come from. Nothing but claims goes over this connection.
pub(crate) struct Claims(Connection, String);

impl Session {
    /// Connects and registers.
    pub(crate) async fn open(
        server: &Server,
        registration: &WorkerRegistration,
    ) -> Result<(Self, Claims), ClientError> {
        let mut reports = Connection::open(server).await?;
        let registered = reports.register(registration).await?;
        let mut claims = Connection::open_patiently(server).await?;
        let worker_id = registration.worker_id.clone();
        claims.speak_for(&worker_id).await?;
        let seconds = registered.heartbeat_interval_secs.clamp(0.001, 86_400.0);
        let heartbeat_interval = Duration::from_secs_f64(seconds);
        Ok((Self { reports, worker_id, heartbeat_interval }, Claims(claims, server.address())))
    }

    /// Sends heartbeats until one fails.
    pub(crate) async fn beat(&self, vitals: &mut Vitals, counters: &Counters) -> ClientError {
        let mut reports = self.reports.clone();
        let mut beats = interval(self.heartbeat_interval);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let stats = vitals.take(counters).to_string();
            if let Err(error) = reports.heartbeat(&self.worker_id, stats).await {
                return error;
            }
        }
    }

    /// Says goodbye.
    pub(crate) async fn unregister(&self) -> Result<(), ClientError> {
        self.reports.clone().unregister(&self.worker_id).await
    }
}

impl Claims {
    /// Waits for a job. Not to be dropped and called again: a claim that was given up on takes its job with it.
    pub(crate) async fn next(&mut self) -> Result<JobDocument, ClientError> {
        loop {
            // agq answers in time, with a job or without; silence means that the way there is dead. Whoever gets this error
            // drops the connection, and a claim on its way with it.
            let silence = |_| ClientError::Unreachable {
                address: self.1.clone(),
                reason: "a claim was not answered in time".into(),
            };
            if let Some(job) = timeout(CLAIM_BOUND, self.0.claim(CLAIM_WAIT)).await.map_err(silence)?? {
                return Ok(job);
            }
        }
    }
}
