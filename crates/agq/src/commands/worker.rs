//! WORKER.*: who works for us, and whether it still lives (seed 000).

use agenix_protocol::{
    documents::{self, WorkerRegistration},
    ids::WorkerId,
    resp::Reply,
};
use agenix_rules::{
    rejection::Rejection,
    worker::{self, Worker},
};
use bytes::Bytes;

use super::{
    Done, Effect, Outcome,
    job::{hand_back_all, reclaim},
};
use crate::{
    error::CommandError,
    house::{Caller, House, is_connection},
    store::Promise,
};

/// WORKER.REGISTER
pub(super) async fn register(house: &House, caller: &Caller, json: &[u8]) -> Result<Done, CommandError> {
    let mut registration = read_registration(json)?;
    let known = house.store.worker(&registration.worker_id).await?;
    let is_new_run = known.is_some_and(|known| worker::is_new_run(&known, &registration));
    let has = registration.active_job_ids.take().or(is_new_run.then(Vec::new));
    let worker_id = registration.worker_id.clone();
    worker::check_connection(caller.registered.as_ref(), &worker_id)?;
    let (connection, now) = (caller.connection.clone(), house.clock.now());
    let rule =
        move |known: Option<&Worker>| worker::registered(known, &registration, &connection, now).map(Some);
    house.store.decide_worker(&worker_id, Promise::Durable, Box::new(rule)).await??;
    reclaim(house, &worker_id, has).await?;
    let seconds = heartbeat_seconds(house.settings.heartbeat_interval_ms);
    let reply = Reply::Simple(format!("OK worker_id={worker_id} heartbeat_interval={seconds}"));
    Ok(Done { reply, effect: Effect::Registered(worker_id) })
}

/// Which of the seeds' three texts a bad registration gets depends on what is bad in it.
fn read_registration(json: &[u8]) -> Result<WorkerRegistration, Rejection> {
    documents::parse(json).map_err(|error| {
        let text = error.to_string();
        if text.starts_with("capabilities:") {
            Rejection::CapabilitiesFormat
        } else {
            Rejection::InvalidRegistration(text)
        }
    })
}

/// `30`, or `0.5`: whole seconds are written without a point.
fn heartbeat_seconds(ms: u64) -> String {
    match ms % 1000 {
        0 => (ms / 1000).to_string(),
        rest => format!("{}.{rest:03}", ms / 1000).trim_end_matches('0').to_owned(),
    }
}

/// WORKER.HEARTBEAT
pub(super) async fn heartbeat(house: &House, worker_id: &WorkerId, stats: Option<Bytes>) -> Outcome {
    let stats = stats.map(|stats| read_stats(&stats)).transpose()?;
    let (now, id) = (house.clock.now(), worker_id.clone());
    let rule = move |known: Option<&Worker>| {
        let known = known.ok_or_else(|| Rejection::WorkerUnknown(id.clone()))?;
        worker::seen(known, stats.as_deref(), now).map(Some)
    };
    house.store.decide_worker(worker_id, Promise::Visible, Box::new(rule)).await??;
    Ok(Reply::ok())
}

/// The statistics of both seeds, and whatever else a worker counts: any JSON object.
fn read_stats(json: &[u8]) -> Result<String, Rejection> {
    let invalid = |error: documents::BadDocument| Rejection::InvalidStats(error.to_string());
    let stats: serde_json::Map<String, serde_json::Value> = documents::parse(json).map_err(invalid)?;
    Ok(documents::to_json(&stats))
}

/// WORKER.UNREGISTER
pub(super) async fn unregister(house: &House, worker_id: WorkerId) -> Result<Done, CommandError> {
    // First the worker, so that it claims nothing more; a crash between leaves jobs that the reaper finds.
    if !house.store.remove_worker(&worker_id).await? {
        return Err(Rejection::NotRegistered.into());
    }
    house.matchmaker.dismiss(worker_id.as_str());
    house.abilities.forget(&worker_id);
    hand_back_all(house, worker_id.as_str()).await?;
    Ok(Done { reply: Reply::ok(), effect: Effect::Unregistered(worker_id) })
}

/// WORKER.LIST
pub(super) async fn list(house: &House) -> Outcome {
    let workers = house.store.workers().await?;
    Ok(Reply::bulks(workers.iter().map(|(worker, jobs)| documents::to_json(&worker.status(*jobs)))))
}

/// The connection on which a worker registered is closed.
pub(crate) async fn detach(
    house: &House,
    worker_id: &WorkerId,
    connection: &str,
) -> Result<(), CommandError> {
    let connection = connection.to_owned();
    let rule =
        move |known: Option<&Worker>| Ok(known.and_then(|worker| worker::detached(worker, &connection)));
    Ok(house.store.decide_worker(worker_id, Promise::Visible, Box::new(rule)).await??)
}

/// When agq starts, no connection of before is open: workers are free to register, and what connections held goes back.
pub(crate) async fn start_over(house: &House) -> Result<(), CommandError> {
    for (worker, _) in house.store.workers().await? {
        if let Some(connection) = &worker.connection {
            detach(house, &worker.worker_id, connection).await?;
        }
    }
    for holder in house.store.holders().await? {
        if is_connection(&holder) {
            hand_back_all(house, &holder).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::heartbeat_seconds;

    #[test]
    fn whole_seconds_have_no_point() {
        assert_eq!([30_000, 500, 1250].map(heartbeat_seconds), ["30", "0.5", "1.25"]);
    }
}
