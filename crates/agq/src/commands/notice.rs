//! Messages to workers and judgements on workers beside their commands: nudges, quarantine and
//! trials.

use agenix_protocol::{
    documents::{self, WithdrawCall},
    ids::{ActionId, WorkerId},
    names::orders_channel,
};
use agenix_rules::{
    capability::Abilities,
    job::Job,
    rejection::Rejection,
    worker::{self, Liveness, Worker},
};
use tracing::{debug, info, warn};

use crate::{
    app::{House, is_connection},
    error::CommandError,
    herald::tell_of_worker,
    store::{Lane, Promise},
};

pub(crate) use crate::herald::nudge;

/// Asks a worker to give up the jobs of `action_id` that the worker has claimed and not started. A
/// worker that does not subscribe to its orders channel starts those jobs.
pub(super) fn withdraw(house: &House, worker_id: &str, action_id: &ActionId) {
    if is_connection(worker_id) {
        return;
    }
    let call = documents::to_json(&WithdrawCall { withdraw: action_id.clone() });
    house.hub.publish(&orders_channel(worker_id).into(), &call.into());
}

/// Records the end of a job of `holder`. Quarantines a worker that fails far more often than the
/// other workers at the same kind of work.
pub(crate) async fn note_outcome(
    house: &House,
    holder: &str,
    job: &Job,
    failed: bool,
) -> Result<(), CommandError> {
    let (Ok(worker_id), kind) = (WorkerId::new(holder), job.kind()) else { return Ok(()) };
    let is_worth_a_look = house.reputation.note(&worker_id, kind, failed);
    if house.reputation.take_trial(&worker_id, job.started_at) {
        return end_trial(house, &worker_id, failed).await;
    }
    if !is_worth_a_look || !house.settings.quarantine {
        return Ok(());
    }
    let workers = house.store.worker_records().await?;
    let Some(reason) = house.reputation.verdict(&worker_id, kind, &workers) else { return Ok(()) };
    warn!(%worker_id, reason, "a worker is quarantined; WORKER.RESUME gives it jobs again, or a trial job that succeeds");
    let now = house.clock.now();
    let rule = move |known: Option<&Worker>| {
        let takes = known.filter(|known| known.standing == Liveness::Active && known.quarantine.is_none());
        Ok(takes.map(|known| worker::quarantined(known, &reason, now)))
    };
    house.store.decide_worker(&worker_id, Promise::Durable, None, Box::new(rule)).await??;
    house.matchmaker.dismiss(worker_id.as_str());
    tell_of_worker(house, &worker_id, "quarantined");
    Ok(())
}

/// Begins the trial of a quarantined worker if the trial is due, and returns whether the worker may
/// claim one job of `queues` now. A claim that does not wait begins no trial if there is no job for
/// the worker, because the store would be written twice for nothing.
pub(super) async fn begin_trial(
    house: &House,
    worker: &Worker,
    queues: &[String],
    waits: bool,
) -> Result<bool, CommandError> {
    let now = house.clock.now();
    if worker::tried(worker, now).is_none() || !(waits || has_job_for(house, worker, queues).await?) {
        return Ok(false);
    }
    let worker_id = worker.worker_id.clone();
    let rule = move |known: Option<&Worker>| {
        // The rule checks again, because only one of several simultaneous claims is the trial.
        let tried = known.and_then(|known| worker::tried(known, now));
        tried.map(Some).ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))
    };
    let begun = house.store.decide_worker(&worker.worker_id, Promise::Visible, None, Box::new(rule)).await?;
    if begun.is_ok() {
        house.reputation.try_again(&worker.worker_id, now);
        debug!(worker_id = %worker.worker_id, "a quarantined worker may claim one job to show that it does well again");
    }
    Ok(begun.is_ok())
}

/// Tells whether a job that `worker` can run is ready in one of `queues`.
async fn has_job_for(house: &House, worker: &Worker, queues: &[String]) -> Result<bool, CommandError> {
    let abilities = house.abilities.of(&*house.store, worker).await?;
    Ok(is_for(&house.store.lanes().await?, queues, &abilities))
}

fn is_for(lanes: &[Lane], queues: &[String], abilities: &Abilities) -> bool {
    lanes.iter().any(|lane| lane.length > 0 && queues.contains(&lane.queue) && abilities.cover(&lane.needs))
}

/// Ends the claim of a quarantined worker on trial. If the claim got no job, the next claim of the
/// worker is the trial.
pub(super) async fn end_trial_claim(
    house: &House,
    worker_id: &WorkerId,
    has_job: bool,
) -> Result<(), CommandError> {
    if has_job {
        info!(%worker_id, "a quarantined worker got one job to show that it does well again");
        return Ok(());
    }
    house.reputation.drop_trial(worker_id);
    let rule = |known: Option<&Worker>| Ok(known.and_then(worker::untried));
    Ok(house.store.decide_worker(worker_id, Promise::Visible, None, Box::new(rule)).await??)
}

/// Records the end of the trial job of a quarantined worker, and ends the quarantine if the job
/// succeeded.
async fn end_trial(house: &House, worker_id: &WorkerId, failed: bool) -> Result<(), CommandError> {
    let rule = move |known: Option<&Worker>| Ok(known.and_then(|known| worker::judged(known, failed)));
    house.store.decide_worker(worker_id, Promise::Durable, None, Box::new(rule)).await??;
    if failed {
        return Ok(());
    }
    info!(%worker_id, "the trial job of a quarantined worker succeeded; it gets jobs again");
    house.reputation.forget(worker_id);
    // The waiting claims of the worker came while the worker was to get no jobs.
    house.matchmaker.dismiss(worker_id.as_str());
    tell_of_worker(house, worker_id, "resumed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::capability::Abilities;

    use super::{Lane, is_for};

    #[test]
    fn a_trial_needs_a_job_in_a_queue_of_the_worker_that_it_can_run() {
        let lane = |queue: &str, length| Lane {
            queue: queue.into(),
            needs: Default::default(),
            length,
            span: (Timestamp(0), Timestamp(0)),
        };
        let lanes = [lane("ready", 1), lane("night", 0)];
        let of = |queue: &str, abilities| is_for(&lanes, &[queue.to_owned()], abilities);
        assert!(of("ready", &Abilities::Anything));
        assert!(!of("ready", &Abilities::Nothing));
        assert!(!of("night", &Abilities::Anything), "no job is ready");
        assert!(!of("other", &Abilities::Anything));
    }
}
