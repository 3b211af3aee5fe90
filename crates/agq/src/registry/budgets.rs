//! Budgets of the keys that this agq knows, from the config file.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use agenix_rules::budget::Budget;

/// Terms of budgets by the name of their key.
pub(crate) type BudgetTerms = BTreeMap<String, Budget>;

#[derive(Default)]
pub(crate) struct Budgets(RwLock<BudgetTerms>);

impl Budgets {
    pub(crate) fn of(&self, name: &str) -> Option<Budget> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(crate) fn replace(&self, terms: BudgetTerms) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = terms;
    }
}
