//! Heartbeats: each one sends the statistics of the worker, and returns the directives of agq.

use std::sync::Arc;

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{Directives, JobStatus, Status},
    ids::WorkerId,
};
use tokio::{
    sync::{Notify, watch},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use tracing::{debug, warn};

use crate::{
    jobs::JobPool, report::registration::Registration, stats::HostStats, worker::challenge::PendingChallenges,
};

/// Work on the disk of the spool in the background. No heartbeat waits for it: agq would take the
/// worker for dead while the disk does not answer.
#[derive(Default)]
struct DiskWork(Option<JoinHandle<()>>);

impl DiskWork {
    /// Starts `work`, unless earlier work has not ended.
    fn start(&mut self, work: impl FnOnce() + Send + 'static) {
        if self.0.as_ref().is_none_or(JoinHandle::is_finished) {
            self.0 = Some(spawn_blocking(work));
        }
    }
}

/// Sends heartbeats until one fails: at the heartbeat interval, and whenever `wake` is notified.
/// Carries out directives about jobs and capabilities. Passes all directives to `tell`, because
/// some are about the worker as a whole.
pub(crate) async fn run(
    registration: &Registration,
    host_stats: &Arc<HostStats>,
    pool: &Arc<JobPool>,
    wake: &Notify,
    tell: &watch::Sender<Directives>,
) -> ClientError {
    let mut reports = registration.reports.clone();
    let (mut challenges, mut disk_work) = (PendingChallenges::default(), DiskWork::default());
    let mut beats = interval(registration.heartbeat_interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_called = tokio::select! {
            _ = beats.tick() => false,
            () = wake.notified() => true,
        };
        let (looking, expiring) = (Arc::clone(host_stats), Arc::clone(pool));
        disk_work.start(move || {
            looking.read_disk();
            expiring.expire_recent_output();
        });
        let (jobs, next) = pool.running_jobs();
        let (looking, counting) = (Arc::clone(host_stats), Arc::clone(pool));
        let stats = spawn_blocking(move || looking.take(&counting.counters, &jobs).to_string()).await;
        let stats = stats.expect("collecting statistics does not panic");
        let directives = match reports.heartbeat(&registration.worker_id, stats).await {
            Ok(directives) => directives,
            // agq has the heartbeat. Another version of agq may have unknown directives.
            Err(ClientError::Unexpected(reason)) => {
                warn!("the directives of agq cannot be read: {reason}");
                continue;
            }
            Err(error) => return error,
        };
        pool.cancel(&directives.cancel, next);
        challenges.take(&directives.verify, &pool.context(), &reports);
        tell.send_replace(directives);
        if is_called
            && let Err(error) = drop_revoked_claims(pool, &mut reports, &registration.worker_id).await
        {
            return error;
        }
    }
}

/// Asks agq about each claimed job that waits for a slot, and drops the claims that are no longer
/// valid. A call from agq may concern such a job. A heartbeat does not name these jobs, because agq
/// takes a named job for started (ADR 8).
async fn drop_revoked_claims(
    pool: &Arc<JobPool>,
    reports: &mut Connection,
    worker_id: &WorkerId,
) -> Result<(), ClientError> {
    for (job_id, attempt) in pool.waiting() {
        match reports.job(&job_id).await {
            Ok(Some(job)) if is_claim(&job, worker_id, attempt) => {}
            Ok(_) => {
                debug!(%job_id, "the claim of a waiting job is no longer valid; dropping it");
                pool.dismiss(&job_id, attempt);
            }
            Err(error) if error.is_connection() => return Err(error),
            // The first report of the job shows later whether the claim is still valid.
            Err(error) => debug!(%job_id, %error, "agq could not be asked about a job"),
        }
    }
    Ok(())
}

/// Returns true if this worker holds the job by the claim with this `attempt`.
fn is_claim(job: &JobStatus, worker_id: &WorkerId, attempt: u32) -> bool {
    job.status == Status::Running
        && job.attempt == attempt
        && job.worker_id.as_deref() == Some(worker_id.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use agenix_protocol::documents::{JobStatus, parse};

    use super::{DiskWork, is_claim};

    #[tokio::test]
    async fn work_on_a_disk_that_does_not_answer_is_neither_awaited_nor_started_again() {
        let (disk, answers) = mpsc::channel::<()>();
        let (mut disk_work, started) = (DiskWork::default(), Arc::<AtomicU32>::default());
        disk_work.start(move || answers.recv().unwrap());
        let count = || {
            let started = Arc::clone(&started);
            move || {
                started.fetch_add(1, Ordering::Relaxed);
            }
        };
        disk_work.start(count());
        disk.send(()).unwrap();
        disk_work.0.as_mut().unwrap().await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 0);
        disk_work.start(count());
        disk_work.0.as_mut().unwrap().await.unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 1);
    }

    fn job(status: &str, attempt: u32, worker: &str) -> JobStatus {
        let json = format!(
            r#"{{"job_id":"j","action_id":"a","plan_id":"p","status":"{status}","state":"any","index":0,
                "attempt":{attempt},"queue":"ready","priority":0,"created_at":"2025-11-17T10:00:00.000Z",
                "started_at":null,"completed_at":null,"worker_id":{worker},"inputs":{{}},"task_results":null}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn claim_is_valid_while_the_job_runs_here_at_its_attempt() {
        let w1 = "w1".parse().unwrap();
        assert!(is_claim(&job("running", 2, r#""w1""#), &w1, 2));
        assert!(!is_claim(&job("cancelled", 2, r#""w1""#), &w1, 2));
        assert!(!is_claim(&job("running", 3, r#""w1""#), &w1, 2));
        assert!(!is_claim(&job("running", 2, r#""w2""#), &w1, 2));
        assert!(!is_claim(&job("pending", 2, "null"), &w1, 2));
    }
}
