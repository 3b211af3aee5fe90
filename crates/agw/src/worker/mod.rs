//! The worker: searches capabilities, registers, claims jobs, runs them, reports them, and drains.
//! After a lost connection, the worker connects and registers again.

pub(crate) mod capabilities;
pub(crate) mod challenge;
pub(crate) mod heartbeat;
pub(crate) mod lifecycle;
pub(crate) mod signals;

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use agenix_client::{Backoff, ClientError, Connection, DirectiveMessage, DirectiveSubscription, Server};
use agenix_protocol::{
    documents::{Capabilities, Directives, JobUpdate, OutputRequest, Status, WorkerRegistration},
    ids::{ActionId, JobId, QueueName},
};
use futures_util::future::join_all;
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    config::other_id,
    jobs::{ClaimStopped, JobPool},
    report::registration::{ClaimStream, Registration},
    stats::HostStats,
    worker::{
        capabilities::FoundCapabilities,
        lifecycle::{Lifecycle, LifecycleEvent},
    },
};

/// Pause without claims after no task could be started.
const STARVED_PAUSE: Duration = Duration::from_secs(60);
/// Maximum time for unregistering, and for ending the processes of abandoned jobs.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(5);

/// The way in which the worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerEnd {
    /// Every claimed job was reported.
    Drained,
    /// Jobs were left unfinished, and agq gives them to other workers.
    Forced,
}

/// Main loop of the worker: registers with agq and claims jobs, and repeats both after a loss.
pub(crate) struct WorkerLoop {
    pub(crate) server: Server,
    pub(crate) registration: WorkerRegistration,
    /// Queues that jobs are claimed from. Each claim takes from the first queue that has a job.
    pub(crate) queues: Vec<QueueName>,
    pub(crate) pool: Arc<JobPool>,
    pub(crate) host_stats: Arc<HostStats>,
    pub(crate) lifecycle: Lifecycle,
    /// True if the user gave the worker its id, or the worker already took another one.
    pub(crate) has_own_id: bool,
    /// True if the worker ends if it cannot start tasks for long: its starter waits for results.
    pub(crate) ends_when_starved: bool,
    /// Number of capability changes so far. agq learns of a change only from a new registration.
    pub(crate) capability_changes: u64,
}

/// Reason why a registration ended.
enum RegistrationEnd {
    /// The connection is lost, or agq no longer knows the worker.
    Lost(ClientError),
    /// The capabilities have changed, and agq needs a new registration.
    CapabilitiesFound(FoundCapabilities),
    /// No task can be started here, and the worker has given its jobs back.
    Starved,
    /// The worker has to end.
    Ended(WorkerEnd),
}

impl WorkerLoop {
    /// Works until a signal or agq ends the worker. An error: agq refused the first registration.
    pub(crate) async fn run(mut self) -> Result<WorkerEnd, ClientError> {
        let look = self.lifecycle.search().look();
        match self.attend(look).await {
            Ok(found) => self.set_capabilities(found),
            Err(end) => return Ok(end),
        }
        let mut backoff = Backoff::default();
        let mut was_registered = false;
        loop {
            let registration =
                WorkerRegistration { active_job_ids: Some(self.pool.job_ids()), ..self.registration.clone() };
            let (server, queues, capability_changes) =
                (self.server.clone(), self.queues.clone(), self.capability_changes);
            let mut opening = pin!(Registration::open(&server, &registration, &queues));
            let opened = match self.attend(opening.as_mut()).await {
                Ok(opened) => opened,
                Err(end) => {
                    // agq may already have the registration, and would expect heartbeats from a
                    // worker that has ended.
                    if let Ok(Ok((registration, ..))) = timeout(UNREGISTER_TIMEOUT, opening).await {
                        unregister(&registration, end).await;
                    }
                    return Ok(end);
                }
            };
            let left = match opened {
                // The capabilities have changed since the registration was sent.
                Ok(_) if capability_changes != self.capability_changes => continue,
                Ok((registration, claims, directives)) => {
                    backoff.reset();
                    was_registered = true;
                    self.stay(&registration, claims, directives).await
                }
                Err(error) => RegistrationEnd::Lost(error),
            };
            self.pool.report_over(None);
            // The next registration omits the waiting jobs, so other workers get them.
            self.pool.dismiss_all();
            let error = match left {
                RegistrationEnd::Ended(end) => return Ok(end),
                RegistrationEnd::Starved if self.ends_when_starved => return Ok(WorkerEnd::Forced),
                RegistrationEnd::Starved => {
                    if let Err(end) = self.attend(sleep(STARVED_PAUSE)).await {
                        return Ok(end);
                    }
                    continue;
                }
                RegistrationEnd::CapabilitiesFound(found) => {
                    self.set_capabilities(found);
                    continue;
                }
                RegistrationEnd::Lost(error) if !was_registered && self.takes_another_id(&error) => continue,
                // A refusal of the first registration is an error in the settings. A later refusal
                // is temporary.
                RegistrationEnd::Lost(error) if !was_registered && !error.is_outage() => {
                    return Err(error);
                }
                RegistrationEnd::Lost(error) => error,
            };
            if let Err(end) = self.pause(&error, backoff.next_wait()).await {
                return Ok(end);
            }
        }
    }

    /// Waits before the next registration, which is at another node if the database of this one is
    /// away. An error: the worker has to end.
    async fn pause(&mut self, error: &ClientError, wait: Duration) -> Result<(), WorkerEnd> {
        self.server.fail_over_after(error);
        let (why, seconds) = (error.outage_text(), wait.as_secs());
        let help = error.limit_help().map(|help| format!("; {help}")).unwrap_or_default();
        let jobs = self.pool.job_ids().len();
        warn!(jobs, "not connected, trying again in {seconds} s: {why}{help}");
        self.attend(sleep(wait)).await
    }

    /// Takes another id if another worker has this default id. Returns true if the id has changed.
    fn takes_another_id(&mut self, error: &ClientError) -> bool {
        let is_taken =
            matches!(error, ClientError::Rejected(reason) if reason.contains("already registered"));
        if !is_taken || self.has_own_id {
            return false;
        }
        let taken = &self.registration.worker_id;
        let Some(other) = other_id(taken, uuid::Uuid::new_v4()) else { return false };
        info!("another worker has the id {taken}, so this worker uses {other}");
        self.registration.worker_id = other;
        self.pool.context().admission.set_worker_id(&self.registration.worker_id);
        // One new id is enough, because the new id is random.
        self.has_own_id = true;
        true
    }

    /// Sets the capabilities for the next registration, and the programs of future jobs.
    fn set_capabilities(&mut self, found: FoundCapabilities) {
        if found.programs.len() == 0 {
            warn!("no program to offer was found, so the worker keeps its earlier programs; check PATH");
            return;
        }
        let (tools, agentic_units) = found.programs.split();
        self.registration.capabilities = Capabilities { tools, agentic_units };
        self.registration.descriptions = found.descriptions;
        self.pool.set_programs(found.programs);
        self.capability_changes += 1;
    }

    /// Waits for `work` while unregistered, and handles events. An error: the worker has to end.
    async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, WorkerEnd> {
        tokio::pin!(work);
        loop {
            if self.lifecycle.is_ending() && self.pool.job_ids().is_empty() {
                return Err(WorkerEnd::Drained);
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                turn = self.lifecycle.next() => match turn {
                    LifecycleEvent::Ignored => {}
                    LifecycleEvent::CapabilitiesFound(found) => self.set_capabilities(found),
                    LifecycleEvent::Force => return Err(abandon(&self.pool).await),
                },
            }
        }
    }

    /// Claims and runs jobs until the registration ends.
    async fn stay(
        &mut self,
        registration: &Registration,
        claims: ClaimStream,
        directives: Option<DirectiveSubscription>,
    ) -> RegistrationEnd {
        let (id, slots) = (&self.registration.worker_id, self.registration.max_concurrent_jobs);
        info!(slots, "worker {id} is registered at {}", self.server.address());
        let pool = Arc::clone(&self.pool);
        let lost = pool.lost.notified();
        tokio::pin!(lost);
        // From here on, a notification of a failed report is not missed.
        lost.as_mut().enable();
        pool.report_over(Some(registration.link()));
        let (wake, (tell, mut told)) = (Notify::new(), watch::channel(Directives::default()));
        let beat = heartbeat::run(registration, &self.host_stats, &pool, &wake, &tell);
        let calls = registration.listen(directives, &wake, |call| answer(&pool, &registration.reports, call));
        tokio::pin!(beat, calls);
        let mut claims = Some(claims);
        loop {
            let (takes, ends) = (self.lifecycle.takes_jobs(), self.lifecycle.is_ending());
            if pool.counters.is_quiet.swap(!takes, Ordering::Relaxed) == takes {
                // The heartbeat sends the new state to agq.
                wake.notify_one();
            }
            let pulled = pull(&pool, registration, claims.take(), takes);
            tokio::pin!(pulled);
            while (self.lifecycle.takes_jobs(), self.lifecycle.is_ending()) == (takes, ends) {
                tokio::select! {
                    error = &mut pulled => return RegistrationEnd::Lost(error),
                    error = &mut beat => return RegistrationEnd::Lost(error),
                    never = &mut calls => match never {},
                    () = &mut lost => return RegistrationEnd::Lost(lost_at(&self.server)),
                    reason = pool.starved(ends) => return starved(registration, &pool, &reason, ends).await,
                    () = pool.idle(), if ends => return unregister(registration, WorkerEnd::Drained).await,
                    _ = told.changed() => self.lifecycle.apply_directives(&told.borrow_and_update()),
                    turn = self.lifecycle.next() => match turn {
                        LifecycleEvent::Ignored => {}
                        LifecycleEvent::CapabilitiesFound(found) => {
                            if let Err(error) = hand_back(registration, &pool).await {
                                debug!(%error, "jobs that were claimed ahead will be returned later");
                            }
                            return RegistrationEnd::CapabilitiesFound(found);
                        }
                        LifecycleEvent::Force => return unregister(registration, abandon(&pool).await).await,
                    },
                }
            }
            if takes
                && !self.lifecycle.takes_jobs()
                && let Err(error) = hand_back(registration, &pool).await
            {
                return RegistrationEnd::Lost(error);
            }
        }
    }
}

/// Claims jobs if `takes` is true, over `claims` or a new connection; a drop closes it.
async fn pull(
    pool: &Arc<JobPool>,
    registration: &Registration,
    mut claims: Option<ClaimStream>,
    takes: bool,
) -> ClientError {
    if !takes {
        drop(claims);
        return std::future::pending().await;
    }
    loop {
        let mut open = match claims.take() {
            Some(open) => open,
            None => match registration.claims().await {
                Ok(open) => open,
                Err(error) => return error,
            },
        };
        match pool.pull(&mut open).await {
            ClaimStopped::Failed(error) => return error,
            ClaimStopped::Stuck => {
                pool.stalled();
                if let Err(error) = hand_back(registration, pool).await {
                    return error;
                }
            }
        }
    }
}

/// Returns the waiting claims to agq at once. The return does not count as a failed attempt. The
/// caller closes the claiming connection only afterwards: on the close, agq takes back every claim
/// without a report, and a running job may have none yet.
async fn hand_back(registration: &Registration, pool: &JobPool) -> Result<(), ClientError> {
    let waited = pool.dismiss_all();
    let running = pool.job_ids();
    if waited == 0 && running.is_empty() {
        return Ok(());
    }
    debug!(waited, running = running.len(), "returning jobs that were claimed ahead");
    registration.keep_only(running).await
}

/// Handles a call from agq.
fn answer(pool: &Arc<JobPool>, reports: &Connection, call: DirectiveMessage) {
    match call {
        DirectiveMessage::Directives => {}
        DirectiveMessage::Output(request) => tell_output(pool, reports, request),
        DirectiveMessage::Withdraw(action_id) => withdraw(pool, reports, &action_id),
    }
}

/// Gives up the waiting claims of the action, and reports each of them as cancelled to agq.
fn withdraw(pool: &Arc<JobPool>, reports: &Connection, action_id: &ActionId) {
    let withdrawn = pool.withdraw(action_id);
    debug!(%action_id, jobs = withdrawn.len(), "dropping jobs of a withdrawn action that were claimed ahead");
    let reports = reports.clone();
    tokio::spawn(join_all(withdrawn.into_iter().map(move |(job_id, attempt)| {
        let mut reports = reports.clone();
        async move {
            let update =
                JobUpdate { status: Some(Status::Cancelled), attempt: Some(attempt), ..JobUpdate::default() };
            if let Err(error) = reports.update_job(&job_id, &update).await {
                debug!(%job_id, %error, "agq could not be told that the job is dropped");
            }
        }
    })));
}

/// Sends the output of a job to agq, because a user follows the job.
fn tell_output(pool: &Arc<JobPool>, reports: &Connection, request: OutputRequest) {
    let (pool, mut reports) = (Arc::clone(pool), reports.clone());
    tokio::spawn(async move {
        let OutputRequest { request_id, job_id, position, only } = request;
        // A disk that hangs does not block the protocol thread.
        let output = spawn_blocking(move || pool.output(&job_id, &position, only)).await;
        let output = output.expect("reading output does not panic");
        if let Err(error) = reports.send_output(&request_id, output.as_ref()).await {
            debug!(%error, "the output of a job could not be sent");
        }
    });
}

/// Returns the error for a connection on which a report could not be sent.
fn lost_at(server: &Server) -> ClientError {
    ClientError::Unreachable { address: server.address(), reason: "a report could not be sent".into() }
}

/// Gives all jobs back, because no task can be started here. agq gives the jobs to other workers.
async fn starved(registration: &Registration, pool: &JobPool, reason: &str, ends: bool) -> RegistrationEnd {
    warn!(
        "no task can be started on this machine: {reason}; the jobs are returned to agq. Check `ulimit -n`, `ulimit -u`, and the permissions and the free space of the spool"
    );
    abandon(pool).await;
    let ended = unregister(registration, WorkerEnd::Forced).await;
    if ends { ended } else { RegistrationEnd::Starved }
}

async fn unregister(registration: &Registration, end: WorkerEnd) -> RegistrationEnd {
    // If agq is down too, it notices the missing heartbeats later.
    match timeout(UNREGISTER_TIMEOUT, registration.unregister()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "could not unregister"),
        Err(_elapsed) => warn!("could not unregister: agq does not answer"),
    }
    RegistrationEnd::Ended(end)
}

/// Abandons the running jobs. Kills the processes of the jobs first, because agq then gives the
/// jobs to other workers.
async fn abandon(pool: &JobPool) -> WorkerEnd {
    let jobs = pool.job_ids();
    if jobs.is_empty() {
        return WorkerEnd::Drained;
    }
    let ids: Vec<_> = jobs.iter().map(JobId::as_str).collect();
    warn!(jobs = ids.join(" "), "ending with these jobs unfinished; agq gives them to other workers");
    if timeout(UNREGISTER_TIMEOUT, pool.abort()).await.is_err() {
        warn!("some processes of these jobs may still be running");
    }
    WorkerEnd::Forced
}
