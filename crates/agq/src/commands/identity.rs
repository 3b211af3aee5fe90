//! Who a connection is (ADR 1): the worker that registered on it, else the registered worker whose name it bears, else
//! the connection itself.

use std::sync::Arc;

use agenix_protocol::ids::WorkerId;
use agenix_rules::{
    capability::Abilities,
    rejection::Rejection,
    worker::{self, Standing, Worker},
};

use crate::{
    error::CommandError,
    house::{Caller, House},
    store::Claimant,
};

/// The worker that the connection speaks for.
async fn worker_of(house: &House, caller: &Caller) -> Result<Option<Worker>, CommandError> {
    if let Some(worker_id) = &caller.registered {
        let worker =
            house.store.worker(worker_id).await?.filter(|worker| worker.standing == Standing::Active);
        return Ok(Some(worker.ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))?));
    }
    let Some(name) = &caller.name else { return Ok(None) };
    match house.store.worker(name).await? {
        None => Ok(None),
        Some(worker) if worker.standing == Standing::Active => Ok(Some(worker)),
        Some(_dead) => Err(Rejection::WorkerUnknown(name.clone()).into()),
    }
}

/// The connection as one who takes jobs.
pub(super) async fn claimant(house: &House, caller: &Caller) -> Result<Claimant, CommandError> {
    let Some(worker) = worker_of(house, caller).await? else {
        return Ok(Claimant {
            holder: Arc::clone(&caller.connection),
            abilities: Arc::new(Abilities::Anything),
        });
    };
    Ok(Claimant { holder: worker.worker_id.as_str().into(), abilities: house.abilities.of(&worker) })
}

/// The name under which the connection reports on jobs.
pub(super) async fn reporter(
    house: &House,
    caller: &Caller,
    named: Option<&WorkerId>,
) -> Result<Arc<str>, CommandError> {
    // A worker that was found dead may still say what it did: the job's holder and attempt decide.
    let own = match caller.registered.as_ref().or(caller.name.as_ref()) {
        Some(worker_id) => house.store.worker(worker_id).await?.map(|worker| worker.worker_id),
        None => None,
    };
    let Some(who) = worker::reporter(own.as_ref(), named)? else {
        return Ok(Arc::clone(&caller.connection));
    };
    if own.is_none() && house.store.worker(who).await?.is_none() {
        return Err(Rejection::WorkerUnknown(who.clone()).into());
    }
    Ok(who.as_str().into())
}
