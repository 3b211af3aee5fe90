//! Cache of the capabilities that registered workers offer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agenix_protocol::{documents, ids::WorkerId, time::Timestamp};
use agenix_rules::{capability::Abilities, worker::Worker};

use crate::{
    store::{Store, StoreError},
    sync::lock,
};

/// Capabilities by worker, because parsing a registration at every claim would cost too much. An
/// entry is valid as long as the time of the registration is the same.
#[derive(Default)]
pub(crate) struct CapabilityCache(Mutex<HashMap<WorkerId, (Timestamp, Arc<Abilities>)>>);

impl CapabilityCache {
    pub(crate) async fn of(&self, store: &dyn Store, worker: &Worker) -> Result<Arc<Abilities>, StoreError> {
        if let Some((at, abilities)) = lock(&self.0).get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Ok(Arc::clone(abilities));
        }
        let json = store.registration(&worker.worker_id).await?;
        let registration = json.and_then(|json| documents::parse(json.as_bytes()).ok());
        let abilities = Arc::new(registration.as_ref().map_or(Abilities::Nothing, Abilities::of));
        lock(&self.0).insert(worker.worker_id.clone(), (worker.registered_at, Arc::clone(&abilities)));
        Ok(abilities)
    }

    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        lock(&self.0).remove(worker_id);
    }
}
