//! The worker: register → claim → run → report → drain, through as many stays at agq as it takes.

use std::{sync::Arc, time::Duration};

use agenix_client::{Backoff, ClientError, Server};
use agenix_protocol::{documents::WorkerRegistration, ids::JobId};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};

use crate::{
    crew::Crew,
    session::{Claims, Session},
    signals::{Order, Orders},
    vitals::Vitals,
};

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
            let has = self.crew.running().iter().cloned().collect();
            let registration = WorkerRegistration { active_job_ids: Some(has), ..self.registration.clone() };
            let left = match Session::open(&self.server, &registration).await {
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
            warn!(jobs = self.crew.running().len(), "not connected, trying again in {seconds} s: {error}");
            if let Some(end) = self.pause(wait, &mut orders, &mut deadline).await {
                return Ok(end);
            }
        }
    }

    /// Waits before the next attempt to connect. Running jobs carry on; without any, an order to end is obeyed at once.
    async fn pause(
        &self,
        wait: Duration,
        orders: &mut Orders,
        deadline: &mut Option<Instant>,
    ) -> Option<End> {
        let waited = sleep(wait);
        tokio::pin!(waited);
        loop {
            if deadline.is_some() && self.crew.running().is_empty() {
                return Some(End::Drained);
            }
            tokio::select! {
                () = &mut waited => return None,
                order = orders.next() => match order {
                    Order::Drain => *deadline = Some(Instant::now() + self.grace),
                    Order::Force => return Some(abandon(&self.crew)),
                },
                () = passed(*deadline) => return Some(abandon(&self.crew)),
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
                    info!(jobs = crew.running().len(), "draining: no more jobs are taken; a second signal ends the running ones");
                    *deadline = Some(Instant::now() + self.grace);
                }
            }
        }
        let end = tokio::select! {
            () = crew.idle() => End::Drained,
            error = &mut beat => return Left::Lost(error),
            () = &mut lost => return Left::Lost(lost_at(&self.server)),
            _ = orders.next() => abandon(crew),
            () = passed(*deadline) => abandon(crew),
        };
        // agq may be gone too; then it finds out by our silence.
        if let Err(error) = session.unregister().await {
            warn!(%error, "could not unregister");
        }
        Left::Ended(end)
    }
}

/// A report found the connection dead.
fn lost_at(server: &Server) -> ClientError {
    ClientError::Unreachable { address: server.address(), reason: "a report could not be sent".into() }
}

/// Gives up on what runs: when this process ends, its children are killed with their groups.
fn abandon(crew: &Crew) -> End {
    let jobs = crew.running();
    if jobs.is_empty() {
        return End::Drained;
    }
    let ids: Vec<_> = jobs.iter().map(JobId::as_str).collect();
    error!(jobs = ids.join(" "), "ending with these jobs unfinished; agq gives them to others");
    End::Forced
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
