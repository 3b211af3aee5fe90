//! One stay at agq: registered, with a connection for reports and heartbeats, one for claims, and one on which agq calls.

use std::{convert::Infallible, sync::Arc, time::Duration};

use agenix_client::{Backoff, ClientError, Connection, OrderMessage, OrderSubscription, Server};
use agenix_protocol::{
    documents::{JobDocument, WorkerRegistration},
    ids::{JobId, QueueName, WorkerId},
    request::BlockingWait,
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesOrdered};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tracing::debug;

/// How long a claim waits before it is made again: agq may have forgotten us meanwhile.
const CLAIM_WAIT: BlockingWait = BlockingWait::Ms(5000);
/// How long an answer to a claim may take: agq answers those that came together one after the other.
const CLAIM_BOUND: Duration = Duration::from_secs(60);
/// Most claims that are sent together.
const MOST_CLAIMS: usize = 32;
/// How long it may take to say which jobs we keep.
const KEEP_BOUND: Duration = Duration::from_secs(5);

/// A stay.
pub(crate) struct Registration {
    /// For reports and heartbeats.
    pub(crate) reports: Connection,
    pub(crate) worker_id: WorkerId,
    pub(crate) heartbeat_interval: Duration,
    server: Server,
    registration: WorkerRegistration,
    queues: Arc<[QueueName]>,
}

/// Where jobs come from. Nothing but claims goes over its connection. Dropping this closes it, and by that agq learns that a
/// claim on its way was not received.
pub(crate) struct ClaimStream {
    connection: Connection,
    queues: Arc<[QueueName]>,
    address: String,
    /// Those that agq has not answered, or whose answer was not looked at; in their order.
    asked: FuturesOrdered<ClaimFuture>,
}

/// What agq will say to a claim: a job, or none.
type ClaimFuture = BoxFuture<'static, Result<Option<JobDocument>, ClientError>>;

impl Registration {
    /// Connects and registers; jobs come from these queues, the first one with a job each time.
    pub(crate) async fn open(
        server: &Server,
        registration: &WorkerRegistration,
        queues: &[QueueName],
    ) -> Result<(Self, ClaimStream), ClientError> {
        let mut reports = Connection::open(server).await?;
        let registered = reports.register(registration).await?;
        let seconds = registered.heartbeat_interval_secs.clamp(0.001, 86_400.0);
        let registration = Self {
            reports,
            worker_id: registration.worker_id.clone(),
            heartbeat_interval: Duration::from_secs_f64(seconds),
            server: server.clone(),
            registration: registration.clone(),
            queues: queues.into(),
        };
        let claims = registration.claims().await?;
        Ok((registration, claims))
    }

    /// Connects for claims.
    pub(crate) async fn claims(&self) -> Result<ClaimStream, ClientError> {
        let opened = async {
            // Its commands wait for ever; to be let in must not.
            let mut connection = Connection::open_patiently(&self.server).await?;
            connection.speak_for(&self.worker_id).await?;
            Ok::<_, ClientError>(connection)
        };
        let connection = timeout(CLAIM_BOUND, opened).await.map_err(|_| self.silent())??;
        let (queues, address) = (Arc::clone(&self.queues), self.server.address());
        Ok(ClaimStream { connection, queues, address, asked: FuturesOrdered::new() })
    }

    /// Registers once more, with these jobs: what agq has given us besides them, and was never reported, goes to others at no
    /// cost (ADR 8). The claims that are open now are not to be looked at any more.
    pub(crate) async fn keep_only(&self, jobs: Vec<JobId>) -> Result<(), ClientError> {
        let registration = WorkerRegistration { active_job_ids: Some(jobs), ..self.registration.clone() };
        let mut reports = self.reports.clone();
        let registered = timeout(KEEP_BOUND, reports.register(&registration)).await;
        registered.map_err(|_| self.silent())?.map(drop)
    }

    fn silent(&self) -> ClientError {
        let reason = "it did not answer in time".into();
        ClientError::Unreachable { address: self.server.address(), reason }
    }

    /// Notifies `nudge` whenever agq has orders, and passes any other call to `answer`. Without
    /// these calls, orders come with the next heartbeat.
    pub(crate) async fn listen(&self, nudge: &Notify, answer: impl Fn(OrderMessage)) -> Infallible {
        let mut backoff = Backoff::default();
        loop {
            let error = match OrderSubscription::open(&self.server, &self.worker_id).await {
                Ok(mut calls) => {
                    backoff.reset();
                    // What was called before was not heard.
                    nudge.notify_one();
                    loop {
                        match calls.next().await {
                            Ok(OrderMessage::Orders) => nudge.notify_one(),
                            Ok(other) => answer(other),
                            Err(error) => break error,
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

impl ClaimStream {
    /// Whether every answer was looked at. Only then more should be asked for: by what is sent after a silence agq learns that
    /// its answers have come, and until then it remembers them.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// Asks for so many jobs, or for as many as may be asked for together.
    pub(crate) fn request(&mut self, count: usize) {
        for _ in 0..count.min(MOST_CLAIMS) {
            self.asked.push_back(self.one());
        }
    }

    /// The next answer: a job, or none. Dropped before it is there, it is not lost.
    pub(crate) async fn next(&mut self) -> Result<Option<JobDocument>, ClientError> {
        self.asked.next().await.unwrap_or(Ok(None))
    }

    fn one(&self) -> ClaimFuture {
        let (mut connection, queues) = (self.connection.clone(), Arc::clone(&self.queues));
        let address = self.address.clone();
        Box::pin(async move {
            match timeout(CLAIM_BOUND, connection.claim(&queues, CLAIM_WAIT)).await {
                Ok(answer) => answer,
                // agq answers in time, with a job or without; silence means that the way there is dead. Whoever gets this
                // error drops the connection, and a claim on its way with it.
                Err(_elapsed) => {
                    let reason = "a claim was not answered in time".into();
                    Err(ClientError::Unreachable { address, reason })
                }
            }
        })
    }
}
