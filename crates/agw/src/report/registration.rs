//! One registration of the worker at agq. A registration has a connection for reports and
//! heartbeats, one for claims, and one on which agq calls the worker.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use agenix_client::{Backoff, ClientError, Connection, DirectiveMessage, DirectiveSubscription, Server};
use agenix_protocol::{
    documents::{JobDocument, WorkerRegistration},
    ids::{JobId, QueueName, WorkerId},
    request::BlockingWait,
};
use futures_util::future::BoxFuture;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tracing::debug;

use crate::report::link::ReportLink;

/// Time that a claim waits in agq, and is then repeated: agq may have lost the registration.
const CLAIM_WAIT: BlockingWait = BlockingWait::Ms(5000);
/// Maximum time for the reply to a claim. The time is much longer than the wait in agq, because agq
/// may be busy.
const CLAIM_BOUND: Duration = Duration::from_secs(60);
/// Maximum time for the registration in [`Registration::keep_only`].
const KEEP_BOUND: Duration = Duration::from_secs(5);

pub(crate) struct Registration {
    /// Connection for reports and heartbeats.
    pub(crate) reports: Connection,
    pub(crate) worker_id: WorkerId,
    pub(crate) heartbeat_interval: Duration,
    server: Server,
    registration: WorkerRegistration,
    queues: Arc<[QueueName]>,
}

/// Stream of claimed jobs over a connection of its own. The drop closes the connection, which shows
/// agq that the worker has not received the jobs of the last claim.
pub(crate) struct ClaimStream {
    connection: Connection,
    queues: Arc<[QueueName]>,
    address: String,
    /// The claim that agq has not answered.
    asked: Option<ClaimFuture>,
    /// Claimed jobs that [`Self::next`] has not returned.
    claimed: VecDeque<JobDocument>,
}

/// Reply to a claim: the claimed jobs.
type ClaimFuture = BoxFuture<'static, Result<Vec<JobDocument>, ClientError>>;

impl Registration {
    /// Connects and registers. Each claim takes from the first of `queues` that has a job. The
    /// subscription is there before the first claim, because agq may call the worker about a job as
    /// soon as the job is claimed. [`Self::listen`] opens the subscription again if it is `None`.
    pub(crate) async fn open(
        server: &Server,
        registration: &WorkerRegistration,
        queues: &[QueueName],
    ) -> Result<(Self, ClaimStream, Option<DirectiveSubscription>), ClientError> {
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
        let (claims, directives) = tokio::join!(registration.claims(), registration.subscribe());
        Ok((registration, claims?, directives.ok()))
    }

    /// Returns the connections for reports and uploads.
    pub(crate) fn link(&self) -> ReportLink {
        ReportLink::new(self.reports.clone(), self.server.clone(), self.worker_id.clone())
    }

    /// Opens a connection for claims.
    pub(crate) async fn claims(&self) -> Result<ClaimStream, ClientError> {
        let opened = async {
            // Commands on this connection have no timeout, but the login needs one.
            let mut connection = Connection::open_without_timeout(&self.server).await?;
            connection.act_for(&self.worker_id).await?;
            Ok::<_, ClientError>(connection)
        };
        let connection = timeout(CLAIM_BOUND, opened).await.map_err(|_| self.silent())??;
        let (queues, address) = (Arc::clone(&self.queues), self.server.address());
        Ok(ClaimStream { connection, queues, address, asked: None, claimed: VecDeque::new() })
    }

    /// Registers once more and names only `jobs`. agq gives all other unreported claims of this
    /// worker to other workers, and the return does not count as a failed attempt (ADR 8). The
    /// caller must not use claim streams from before the call.
    pub(crate) async fn keep_only(&self, jobs: Vec<JobId>) -> Result<(), ClientError> {
        let registration = WorkerRegistration { active_job_ids: Some(jobs), ..self.registration.clone() };
        let mut reports = self.reports.clone();
        let registered = timeout(KEEP_BOUND, reports.register(&registration)).await;
        registered.map_err(|_| self.silent())?.map(drop)
    }

    fn silent(&self) -> ClientError {
        let reason = "no answer in time".into();
        ClientError::Unreachable { address: self.server.address(), reason }
    }

    async fn subscribe(&self) -> Result<DirectiveSubscription, ClientError> {
        DirectiveSubscription::open(&self.server, &self.worker_id).await
    }

    /// Notifies `wake` whenever agq has directives, and passes any other call to `answer`. Without
    /// calls of agq, directives arrive with the next heartbeat. `directives` is the subscription of
    /// [`Self::open`].
    pub(crate) async fn listen(
        &self,
        mut directives: Option<DirectiveSubscription>,
        wake: &Notify,
        answer: impl Fn(DirectiveMessage),
    ) -> Infallible {
        let mut backoff = Backoff::default();
        loop {
            let opened = match directives.take() {
                Some(open) => Ok(open),
                None => self.subscribe().await,
            };
            let error = match opened {
                Ok(mut calls) => {
                    backoff.reset();
                    // Calls from before the subscription were missed.
                    wake.notify_one();
                    loop {
                        match calls.next().await {
                            Ok(DirectiveMessage::Directives) => wake.notify_one(),
                            Ok(other) => answer(other),
                            Err(error) => break error,
                        }
                    }
                }
                Err(error) => error,
            };
            debug!(%error, "not subscribed to calls from agq; subscribing again");
            sleep(backoff.next_wait()).await;
        }
    }

    pub(crate) async fn unregister(&self) -> Result<(), ClientError> {
        self.reports.clone().unregister(&self.worker_id).await
    }
}

impl ClaimStream {
    /// Returns true if every claimed job was processed. The worker may send a claim only then: the
    /// next command after a pause confirms the reply to agq, which keeps the claims until then.
    pub(crate) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.claimed.is_empty()
    }

    /// Sends a claim of at most `count` jobs.
    pub(crate) fn request(&mut self, count: usize) {
        let (mut connection, queues) = (self.connection.clone(), Arc::clone(&self.queues));
        let address = self.address.clone();
        self.asked = Some(Box::pin(async move {
            match timeout(CLAIM_BOUND, connection.claim(&queues, count, CLAIM_WAIT)).await {
                Ok(answer) => answer,
                // agq answers in time, with or without a job, so silence means a dead connection.
                // On this error the caller drops the connection and with it any claim in flight.
                Err(_elapsed) => {
                    let reason = "a claim was not answered in time".into();
                    Err(ClientError::Unreachable { address, reason })
                }
            }
        }));
    }

    /// Returns the next claimed job, and waits for the reply to the claim if necessary. Returns
    /// `None` after a reply without a job. Cancel-safe: dropping the future loses no job.
    pub(crate) async fn next(&mut self) -> Result<Option<JobDocument>, ClientError> {
        if let Some(asked) = &mut self.asked {
            let answer = asked.await;
            self.asked = None;
            self.claimed = answer?.into();
        }
        Ok(self.claimed.pop_front())
    }
}
