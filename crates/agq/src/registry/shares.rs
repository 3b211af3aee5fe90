//! Terms of the shares of queues, from the settings and from the keys of the config file.

use std::sync::{Arc, PoisonError, RwLock};

use agenix_rules::{fair_share::ShareTerms, owner::Owner};

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

    /// Sets the weights of the owners that have one in the config file.
    pub(crate) fn set_owners(&self, weights: &[(Owner, u32)]) {
        let mut terms = self.settings.clone();
        terms.weights.extend(weights.iter().map(|(owner, weight)| (owner.to_string(), *weight)));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(terms);
    }
}

#[cfg(test)]
mod tests {
    use agenix_rules::{fair_share::ShareTerms, owner::Owner};

    use super::Shares;

    #[test]
    fn weights_of_owners_are_replaced_and_those_of_the_settings_stay() {
        let settings =
            ShareTerms { weights: [("share:night".to_owned(), 2)].into(), ..ShareTerms::default() };
        let shares = Shares::new(settings);
        shares.set_owners(&[(Owner::new("client", "alice"), 3)]);
        shares.set_owners(&[(Owner::new("agent", "one"), 4)]);
        let weights =
            ["share:night", "client:alice", "agent:one"].map(|share| shares.terms().weight_of(Some(share)));
        assert_eq!(weights, [2, 1, 4]);
    }
}
