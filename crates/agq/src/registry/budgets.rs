//! Budgets of the keys that this agq knows, from the config file.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use agenix_rules::budget::Budget;

/// Terms of budgets by the name of their key; `None` for a key that has none.
pub(crate) type BudgetTerms = BTreeMap<String, Option<Budget>>;

#[derive(Default)]
pub(crate) struct Budgets(RwLock<BudgetTerms>);

impl Budgets {
    pub(crate) fn of(&self, name: &str) -> Option<Budget> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied().flatten()
    }

    /// Sets the terms of some keys. All other keys keep theirs.
    pub(crate) fn set(&self, terms: BudgetTerms) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(terms);
    }
}
