//! Cache of the capabilities that registered workers offer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use agenix_protocol::{documents, ids::WorkerId, time::Timestamp};
use agenix_rules::{capability::ClaimantCapabilities, worker::Worker};

use crate::{
    store::{Store, StoreError},
    sync::lock,
};

/// Minimum number of shared capabilities at which unused ones are removed.
const MIN_SHARED: usize = 64;

/// Capabilities by worker, because parsing a registration at every claim would cost too much. An
/// entry is valid as long as the time of the registration is the same.
#[derive(Default)]
pub(crate) struct CapabilityCache {
    of_workers: Mutex<HashMap<WorkerId, (Timestamp, Arc<ClaimantCapabilities>)>>,
    /// Capabilities in use. Equal capabilities are shared, because the store knows capabilities by
    /// their address.
    shared: Mutex<SharedCapabilities>,
}

#[derive(Default)]
struct SharedCapabilities {
    all: HashSet<Arc<ClaimantCapabilities>>,
    /// Number of capabilities that were in use when unused ones were last removed.
    in_use: usize,
}

impl CapabilityCache {
    pub(crate) async fn of(
        &self,
        store: &dyn Store,
        worker: &Worker,
    ) -> Result<Arc<ClaimantCapabilities>, StoreError> {
        if let Some((at, capabilities)) = lock(&self.of_workers).get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Ok(Arc::clone(capabilities));
        }
        let json = store.registration(&worker.worker_id).await?;
        let registration = json.and_then(|json| documents::parse(json.as_bytes()).ok());
        let capabilities = self
            .shared(registration.as_ref().map_or(ClaimantCapabilities::Nothing, ClaimantCapabilities::of));
        let entry = (worker.registered_at, Arc::clone(&capabilities));
        lock(&self.of_workers).insert(worker.worker_id.clone(), entry);
        Ok(capabilities)
    }

    /// Returns the capabilities at the address of equal ones that are in use.
    pub(crate) fn shared(&self, capabilities: ClaimantCapabilities) -> Arc<ClaimantCapabilities> {
        lock(&self.shared).share(capabilities)
    }

    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        lock(&self.of_workers).remove(worker_id);
    }
}

impl SharedCapabilities {
    fn share(&mut self, capabilities: ClaimantCapabilities) -> Arc<ClaimantCapabilities> {
        if let Some(known) = self.all.get(&capabilities) {
            return Arc::clone(known);
        }
        if self.all.len() >= MIN_SHARED.max(2 * self.in_use) {
            self.all.retain(|capabilities| Arc::strong_count(capabilities) > 1);
            self.in_use = self.all.len();
        }
        let capabilities = Arc::new(capabilities);
        self.all.insert(Arc::clone(&capabilities));
        capabilities
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_rules::capability::ClaimantCapabilities;

    use super::{MIN_SHARED, SharedCapabilities};

    fn with_command(command: String) -> ClaimantCapabilities {
        ClaimantCapabilities::Worker {
            commands: [command].into(),
            tags: Default::default(),
            profiles: None,
            offered: Default::default(),
        }
    }

    #[test]
    fn equal_capabilities_have_one_address_as_long_as_they_are_in_use() {
        let mut shared = SharedCapabilities::default();
        let sort = shared.share(with_command("sort".into()));
        for number in 0..5 * MIN_SHARED {
            shared.share(with_command(format!("tool-{number}")));
            assert!(shared.all.len() <= MIN_SHARED, "unused ones are removed");
        }
        assert!(Arc::ptr_eq(&sort, &shared.share(with_command("sort".into()))));
        assert!(!Arc::ptr_eq(&sort, &shared.share(with_command("uniq".into()))));
    }
}
