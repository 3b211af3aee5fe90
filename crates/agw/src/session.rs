//! One stay at agq: registered, with a connection for reports and heartbeats, one for claims, and one on which agq calls.

use std::{convert::Infallible, time::Duration};

use agenix_client::{Backoff, ClientError, Connection, OrderCalls, Server};
use agenix_protocol::{
    documents::{JobDocument, WorkerRegistration},
    ids::{QueueName, WorkerId},
    request::Wait,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tracing::debug;

/// How long a claim waits before it is made again: agq may have forgotten us meanwhile.
const CLAIM_WAIT: Wait = Wait::Ms(5000);
/// How long an answer to a claim may take.
const CLAIM_BOUND: Duration = Duration::from_secs(60);

/// A stay.
pub(crate) struct Session {
    /// For reports and heartbeats.
    pub(crate) reports: Connection,
    pub(crate) worker_id: WorkerId,
    pub(crate) heartbeat_interval: Duration,
    server: Server,
    queues: Vec<QueueName>,
}

/// Where jobs come from. Nothing but claims goes over its connection.
pub(crate) struct Claims {
    connection: Connection,
    queues: Vec<QueueName>,
    address: String,
}

impl Session {
    /// Connects and registers; jobs come from these queues, the first one with a job each time.
    pub(crate) async fn open(
        server: &Server,
        registration: &WorkerRegistration,
        queues: &[QueueName],
    ) -> Result<(Self, Claims), ClientError> {
        let mut reports = Connection::open(server).await?;
        let registered = reports.register(registration).await?;
        let seconds = registered.heartbeat_interval_secs.clamp(0.001, 86_400.0);
        let session = Self {
            reports,
            worker_id: registration.worker_id.clone(),
            heartbeat_interval: Duration::from_secs_f64(seconds),
            server: server.clone(),
            queues: queues.to_vec(),
        };
        let claims = session.claims().await?;
        Ok((session, claims))
    }

    /// Connects for claims.
    pub(crate) async fn claims(&self) -> Result<Claims, ClientError> {
        let opened = async {
            // Its commands wait for ever; to be let in must not.
            let mut connection = Connection::open_patiently(&self.server).await?;
            connection.speak_for(&self.worker_id).await?;
            Ok(connection)
        };
        let address = self.server.address();
        let silent = |_| ClientError::Unreachable {
            address: address.clone(),
            reason: "it did not answer in time".into(),
        };
        let connection = timeout(CLAIM_BOUND, opened).await.map_err(silent)??;
        Ok(Claims { connection, queues: self.queues.clone(), address })
    }

    /// Tells `nudge` whenever agq has orders. A mere convenience: without it they come with the next heartbeat.
    pub(crate) async fn listen(&self, nudge: &Notify) -> Infallible {
        let mut backoff = Backoff::default();
        loop {
            let error = match OrderCalls::open(&self.server, &self.worker_id).await {
                Ok(mut calls) => {
                    backoff.reset();
                    loop {
                        // The first time too: what was called before was not heard.
                        nudge.notify_one();
                        if let Err(error) = calls.next().await {
                            break error;
                        }
                    }
                }
                Err(error) => error,
            };
            debug!(%error, "agq's calls are not heard for a while");
            sleep(backoff.next_wait()).await;
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
                address: self.address.clone(),
                reason: "a claim was not answered in time".into(),
            };
            let claim = self.connection.claim(&self.queues, CLAIM_WAIT);
            if let Some(job) = timeout(CLAIM_BOUND, claim).await.map_err(silence)?? {
                return Ok(job);
            }
        }
    }
}
