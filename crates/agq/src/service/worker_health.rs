//! Health of workers: quarantines workers whose jobs fail far more often than those of others, and
//! ends a quarantine after a trial job that succeeds.

use agenix_protocol::ids::WorkerId;
use agenix_rules::{
    capability::ClaimantCapabilities,
    job::Job,
    rejection::Rejection,
    worker::{self, Liveness, Worker},
};
use tracing::{debug, info, warn};

use super::worker_messages::publish_worker_event;
use crate::{
    app::AppState,
    error::Result,
    store::{AckLevel, LaneSummary},
};

/// Quarantines a worker that fails far more often than others at the same kind of work.
pub(crate) async fn record_outcome(app: &AppState, holder: &str, job: &Job, failed: bool) -> Result<()> {
    let (Ok(worker_id), kind) = (WorkerId::new(holder), job.kind()) else { return Ok(()) };
    let is_suspicious = app.outcomes.record(&worker_id, kind, failed);
    if app.outcomes.take_trial(&worker_id, job.started_at) {
        return end_trial(app, &worker_id, failed).await;
    }
    if !is_suspicious || !app.settings.quarantine {
        return Ok(());
    }
    let workers = app.store.worker_records().await?;
    let Some(reason) = app.outcomes.quarantine_reason(&worker_id, kind, &workers) else { return Ok(()) };
    warn!(%worker_id, reason, "a worker is quarantined; WORKER.RESUME gives it jobs again, or a trial job that succeeds");
    let now = app.clock.now();
    let rule = move |known: Option<&Worker>| {
        let takes = known.filter(|known| known.liveness == Liveness::Active && known.quarantine.is_none());
        Ok(takes.map(|known| worker::quarantined(known, &reason, now)))
    };
    app.store.decide_worker(&worker_id, AckLevel::Durable, None, Box::new(rule)).await??;
    app.waiters.evict(worker_id.as_str());
    publish_worker_event(app, &worker_id, "quarantined");
    Ok(())
}

/// Returns true if a quarantined worker may claim one job of `queues` now, as its trial. A claim
/// that does not wait begins no trial without a job, because that would write the store twice for
/// nothing.
pub(crate) async fn begin_trial(
    app: &AppState,
    worker: &Worker,
    queues: &[String],
    waits: bool,
) -> Result<bool> {
    let now = app.clock.now();
    if worker::tried(worker, now).is_none() || !(waits || has_job_for(app, worker, queues).await?) {
        return Ok(false);
    }
    let worker_id = worker.worker_id.clone();
    let rule = move |known: Option<&Worker>| {
        // The rule checks again, because only one of several simultaneous claims is the trial.
        let tried = known.and_then(|known| worker::tried(known, now));
        tried.map(Some).ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))
    };
    let begun = app.store.decide_worker(&worker.worker_id, AckLevel::Applied, None, Box::new(rule)).await?;
    if begun.is_ok() {
        app.outcomes.begin_trial(&worker.worker_id, now);
        debug!(worker_id = %worker.worker_id, "a quarantined worker may claim one trial job");
    }
    Ok(begun.is_ok())
}

async fn has_job_for(app: &AppState, worker: &Worker, queues: &[String]) -> Result<bool> {
    let capabilities = app.capabilities.of(&*app.store, worker).await?;
    Ok(is_for(&app.store.lanes().await?, queues, &capabilities))
}

fn is_for(lanes: &[LaneSummary], queues: &[String], capabilities: &ClaimantCapabilities) -> bool {
    lanes
        .iter()
        .any(|lane| lane.length > 0 && queues.contains(&lane.queue) && capabilities.cover(&lane.needs))
}

/// Makes the next claim of the worker the trial if this claim got no job.
pub(crate) async fn end_trial_claim(app: &AppState, worker_id: &WorkerId, has_job: bool) -> Result<()> {
    if has_job {
        info!(%worker_id, "a quarantined worker got a trial job");
        return Ok(());
    }
    app.outcomes.drop_trial(worker_id);
    let rule = |known: Option<&Worker>| Ok(known.and_then(worker::untried));
    Ok(app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??)
}

/// Ends the quarantine if the trial job succeeded.
async fn end_trial(app: &AppState, worker_id: &WorkerId, failed: bool) -> Result<()> {
    let rule = move |known: Option<&Worker>| Ok(known.and_then(|known| worker::judged(known, failed)));
    app.store.decide_worker(worker_id, AckLevel::Durable, None, Box::new(rule)).await??;
    if failed {
        return Ok(());
    }
    info!(%worker_id, "the trial job of a quarantined worker succeeded; it gets jobs again");
    app.outcomes.forget(worker_id);
    // The waiting claims of the worker began in quarantine, so they cannot get jobs.
    app.waiters.evict(worker_id.as_str());
    publish_worker_event(app, worker_id, "resumed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::capability::ClaimantCapabilities;

    use super::{LaneSummary, is_for};

    #[test]
    fn trial_needs_a_job_in_a_queue_of_the_worker_that_it_can_run() {
        let lane = |queue: &str, length| LaneSummary {
            queue: queue.into(),
            needs: Default::default(),
            length,
            span: (Timestamp(0), Timestamp(0)),
        };
        let lanes = [lane("ready", 1), lane("night", 0)];
        let of = |queue: &str, capabilities| is_for(&lanes, &[queue.to_owned()], capabilities);
        assert!(of("ready", &ClaimantCapabilities::Anything));
        assert!(!of("ready", &ClaimantCapabilities::Nothing));
        assert!(!of("night", &ClaimantCapabilities::Anything), "no job is ready");
        assert!(!of("other", &ClaimantCapabilities::Anything));
    }
}
