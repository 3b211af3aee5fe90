//! The worker: register → claim → run → report → drain, through as many stays at agq as it takes.

use std::{sync::Arc, time::Duration};

use agenix_client::{Backoff, ClientError, Server};
use agenix_protocol::{documents::WorkerRegistration, ids::JobId};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{error, info, warn};

use crate::{
    crew::Crew,
    session::{Claims, Session},
    signals::{Order, Orders},
    vitals::Vitals,
};

/// How long the last words may take.
const PARTING: Duration = Duration::from_secs(5);

/// How the worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Every job it took is reported.
    Drained,
    /// Jobs were left unfinished; agq gives them to others.
    Forced,
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) server: Server,
    pub(crate) registration: WorkerRegistration,
    pub(crate) crew: Arc<Crew>,
    pub(crate) vitals: Vitals,
    /// How long to wait for running jobs when draining.
    pub(crate) grace: Duration,
}

/// Why a stay at agq ended.
enum Left {
    /// The connection is lost, or agq does not know us any more.
    Lost(ClientError),
    /// The worker is to end.
    Ended(End),
}

impl Worker {
    /// Works until it is told to end. The error means that agq will not have this worker at all.
    pub(crate) async fn run(mut self, mut orders: Orders) -> Result<End, ClientError> {
        let mut backoff = Backoff::default();
        let mut was_registered = false;
        let mut deadline = None;
        loop {
            let registration =
                WorkerRegistration { active_job_ids: Some(self.crew.job_ids()), ..self.registration.clone() };
            let server = self.server.clone();
            let opened =
                match self.attend(Session::open(&server, &registration), &mut orders, &mut deadline).await {
                    Ok(opened) => opened,
                    Err(end) => return Ok(end),
                };
            let left = match opened {
                Ok((session, claims)) => {
                    backoff.reset();
                    was_registered = true;
                    self.stay(&session, claims, &mut orders, &mut deadline).await
                }
                Err(error) => Left::Lost(error),
            };
            self.crew.report_over(None);
            let error = match left {
                Left::Ended(end) => return Ok(end),
                // Before it ever worked, a refusal is a mistake of whoever started us; later it passes.
                Left::Lost(error) if !was_registered && !error.is_connection() => return Err(error),
                Left::Lost(error) => error,
            };
            let wait = backoff.next_wait();
            let seconds = wait.as_secs();
            warn!(jobs = self.crew.job_ids().len(), "not connected, trying again in {seconds} s: {error}");
            if let Err(end) = self.attend(sleep(wait), &mut orders, &mut deadline).await {
                return Ok(end);
            }
        }
    }

    /// Waits for something while there is no session. Running jobs carry on, and orders are obeyed: the error is how the
    /// worker ends.
    async fn attend<T>(
        &self,
        work: impl Future<Output = T>,
        orders: &mut Orders,
        deadline: &mut Option<Instant>,
    ) -> Result<T, End> {
        tokio::pin!(work);
        loop {
            if deadline.is_some() && self.crew.job_ids().is_empty() {
                return Err(End::Drained);
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                order = orders.next() => match order {
                    Order::Drain => *deadline = Some(Instant::now() + self.grace),
                    Order::Force => return Err(abandon(&self.crew).await),
                },
                () = passed(*deadline) => return Err(abandon(&self.crew).await),
            }
        }
    }

    /// Works as long as the session lasts.
    async fn stay(
        &mut self,
        session: &Session,
        claims: Claims,
        orders: &mut Orders,
        deadline: &mut Option<Instant>,
    ) -> Left {
        let (id, slots) = (&self.registration.worker_id, self.registration.max_concurrent_jobs);
        info!(slots, "worker {id} is registered at {}", self.server.address());
        let crew = &self.crew;
        let lost = crew.lost.notified();
        tokio::pin!(lost);
        // From here on no failure of a report is missed.
        lost.as_mut().enable();
        crew.report_over(Some(session.reports.clone()));
        let beat = session.beat(&mut self.vitals, &crew.counters);
        tokio::pin!(beat);
        if deadline.is_none() {
            tokio::select! {
                error = Arc::clone(crew).pull(claims) => return Left::Lost(error),
                error = &mut beat => return Left::Lost(error),
                () = &mut lost => return Left::Lost(lost_at(&self.server)),
                _ = orders.next() => {
                    info!(jobs = crew.job_ids().len(), "draining: no more jobs are taken; a second signal ends the running ones");
                    *deadline = Some(Instant::now() + self.grace);
                }
            }
        }
        let end = tokio::select! {
            () = crew.idle() => End::Drained,
            error = &mut beat => return Left::Lost(error),
            () = &mut lost => return Left::Lost(lost_at(&self.server)),
            _ = orders.next() => abandon(crew).await,
            () = passed(*deadline) => abandon(crew).await,
        };
        // agq may be gone too; then it finds out by our silence.
        match timeout(PARTING, session.unregister()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "could not unregister"),
            Err(_elapsed) => warn!("could not unregister: agq does not answer"),
        }
        Left::Ended(end)
    }
}

/// A report found the connection dead.
fn lost_at(server: &Server) -> ClientError {
    ClientError::Unreachable { address: server.address(), reason: "a report could not be sent".into() }
}

/// Gives up on what runs: its processes are killed before agq hears of it and gives the jobs to others.
async fn abandon(crew: &Crew) -> End {
    let jobs = crew.job_ids();
    if jobs.is_empty() {
        return End::Drained;
    }
    let ids: Vec<_> = jobs.iter().map(JobId::as_str).collect();
    error!(jobs = ids.join(" "), "ending with these jobs unfinished; agq gives them to others");
    if timeout(PARTING, crew.abort()).await.is_err() {
        warn!("some of their processes may still run");
    }
    End::Forced
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
