//! Cache of the capabilities that registered workers offer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agenix_protocol::{documents, ids::WorkerId, time::Timestamp};
use agenix_rules::{capability::Abilities, worker::Worker};

use super::lock;
use crate::store::{Store, StoreError};

/// What registered workers can run, as it was read from their registrations: read once, not at every claim, for a machine
/// has a thousand programs. The registration's time says whether it is still the same.
#[derive(Default)]
pub(crate) struct CapabilityCache(Mutex<HashMap<WorkerId, (Timestamp, Arc<Abilities>)>>);

impl CapabilityCache {
    /// What the worker can run.
    pub(crate) async fn of(&self, store: &dyn Store, worker: &Worker) -> Result<Arc<Abilities>, StoreError> {
        if let Some((at, abilities)) = lock(&self.0).get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Ok(Arc::clone(abilities));
        }
        let told = store.registration(&worker.worker_id).await?;
        let told = told.and_then(|told| documents::parse(told.as_bytes()).ok());
        let abilities = Arc::new(told.as_ref().map_or(Abilities::Nothing, Abilities::of));
        lock(&self.0).insert(worker.worker_id.clone(), (worker.registered_at, Arc::clone(&abilities)));
        Ok(abilities)
    }

    /// Forgets a worker that is no more.
    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        lock(&self.0).remove(worker_id);
    }
}
