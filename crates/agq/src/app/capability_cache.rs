//! Cache of the capabilities that registered workers offer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use agenix_protocol::{documents, ids::WorkerId, time::Timestamp};
use agenix_rules::{capability::Abilities, worker::Worker};

use crate::{
    store::{Store, StoreError},
    sync::lock,
};

/// Minimum number of shared abilities at which unused ones are removed.
const MIN_SHARED: usize = 64;

/// Capabilities by worker, because parsing a registration at every claim would cost too much. An
/// entry is valid as long as the time of the registration is the same.
#[derive(Default)]
pub(crate) struct CapabilityCache {
    of_workers: Mutex<HashMap<WorkerId, (Timestamp, Arc<Abilities>)>>,
    /// Abilities in use. Equal ones are shared, because the store knows them by their address.
    shared: Mutex<SharedAbilities>,
}

#[derive(Default)]
struct SharedAbilities {
    all: HashSet<Arc<Abilities>>,
    /// Number of abilities that were in use when unused ones were last removed.
    in_use: usize,
}

impl CapabilityCache {
    pub(crate) async fn of(&self, store: &dyn Store, worker: &Worker) -> Result<Arc<Abilities>, StoreError> {
        if let Some((at, abilities)) = lock(&self.of_workers).get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Ok(Arc::clone(abilities));
        }
        let json = store.registration(&worker.worker_id).await?;
        let registration = json.and_then(|json| documents::parse(json.as_bytes()).ok());
        let abilities = self.shared(registration.as_ref().map_or(Abilities::Nothing, Abilities::of));
        let entry = (worker.registered_at, Arc::clone(&abilities));
        lock(&self.of_workers).insert(worker.worker_id.clone(), entry);
        Ok(abilities)
    }

    /// Returns the abilities at the address of equal ones that are in use.
    pub(crate) fn shared(&self, abilities: Abilities) -> Arc<Abilities> {
        lock(&self.shared).share(abilities)
    }

    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        lock(&self.of_workers).remove(worker_id);
    }
}

impl SharedAbilities {
    fn share(&mut self, abilities: Abilities) -> Arc<Abilities> {
        if let Some(known) = self.all.get(&abilities) {
            return Arc::clone(known);
        }
        if self.all.len() >= MIN_SHARED.max(2 * self.in_use) {
            self.all.retain(|abilities| Arc::strong_count(abilities) > 1);
            self.in_use = self.all.len();
        }
        let abilities = Arc::new(abilities);
        self.all.insert(Arc::clone(&abilities));
        abilities
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_rules::capability::Abilities;

    use super::{MIN_SHARED, SharedAbilities};

    fn with_command(command: String) -> Abilities {
        Abilities::Worker {
            commands: [command].into(),
            tags: Default::default(),
            profiles: None,
            offered: Default::default(),
        }
    }

    #[test]
    fn equal_abilities_have_one_address_as_long_as_they_are_in_use() {
        let mut shared = SharedAbilities::default();
        let sort = shared.share(with_command("sort".into()));
        for number in 0..5 * MIN_SHARED {
            shared.share(with_command(format!("tool-{number}")));
            assert!(shared.all.len() <= MIN_SHARED, "unused ones are removed");
        }
        assert!(Arc::ptr_eq(&sort, &shared.share(with_command("sort".into()))));
        assert!(!Arc::ptr_eq(&sort, &shared.share(with_command("uniq".into()))));
    }
}
