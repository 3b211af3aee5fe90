//! Terms of the shares of queues, from the settings and from the keys of the config file.

use std::sync::{Arc, PoisonError, RwLock};

use agenix_rules::{
    fair_share::{KeyShares, ShareTerms},
    owner::Owner,
};

pub(crate) struct Shares {
    /// Terms that a reload does not change.
    settings: ShareTerms,
    current: RwLock<Arc<ShareTerms>>,
}

impl Shares {
    pub(crate) fn new(settings: ShareTerms) -> Self {
        let current = RwLock::new(Arc::new(settings.clone()));
        Self { settings, current }
    }

    pub(crate) fn terms(&self) -> Arc<ShareTerms> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the shares of the keys of the config file, instead of earlier ones.
    pub(crate) fn set_keys(&self, keys: &[(Owner, KeyShares)]) {
        let terms = self.settings.clone().with_keys(keys);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }
}

#[cfg(test)]
mod tests {
    use agenix_rules::{
        fair_share::{KeyShares, ShareTerms},
        owner::Owner,
    };

    use super::Shares;

    #[test]
    fn weights_of_owners_are_replaced_and_those_of_the_settings_stay() {
        let settings =
            ShareTerms { weights: [("share:night".to_owned(), 2)].into(), ..ShareTerms::default() };
        let shares = Shares::new(settings);
        for (role, name, weight) in [("client", "alice", 3), ("agent", "one", 4)] {
            let of_key = KeyShares { weight: Some(weight), ..KeyShares::default() };
            shares.set_keys(&[(Owner::new(role, name), of_key)]);
        }
        let weights =
            ["share:night", "client:alice", "agent:one"].map(|share| shares.terms().weight_of(Some(share)));
        assert_eq!(weights, [2, 1, 4]);
    }
}
