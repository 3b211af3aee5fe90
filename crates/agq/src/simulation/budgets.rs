//! Budget of the user in some worlds.

use std::sync::Arc;

use agenix_rules::budget::Budget;

use crate::{
    app::Caller,
    auth::keyring::{Identity, Role},
    registry::budgets::BudgetTerms,
    simulation::actors::Actor,
};

pub(super) const NAME: &str = "alice";

/// Returns the budgets of the world of a seed: one seed of eight has a budget, without a random
/// draw of its own, so that other seeds stay as they are.
pub(super) fn terms(seed: u64) -> BudgetTerms {
    let budget = Budget {
        // The window is longer than any seed, so that all charges can be compared with the jobs.
        per_hours: 744,
        jobs: Some(6 + seed / 8 % 8),
        plans: Some(3),
        running: Some(1 + seed / 64 % 3),
        cpu_secs: Some(60 + seed / 8 % 100),
        output_bytes: Some(5_000),
    };
    if seed % 8 == 3 { [(NAME.to_owned(), Some(budget))].into() } else { BudgetTerms::default() }
}

/// Returns the connection of the user.
pub(super) fn user(has_budget: bool) -> Arc<Caller> {
    let admin = Actor::new(1, None).caller;
    if !has_budget {
        return admin;
    }
    let identity = Identity::new(Role::Client, NAME);
    Arc::new(Caller { identity: Some(identity), ..(*admin).clone() })
}
