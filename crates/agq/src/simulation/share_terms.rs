//! Shares that actions name, and their terms.

use agenix_protocol::ids::ShareName;
use agenix_rules::{
    fair_share::{ShareTerms, named_share},
    owner::Owner,
};

use crate::{app::Caller, auth::keyring::Role, simulation::budgets};

pub(super) const NAMES: [&str; 2] = ["s1", "s2"];
const WEIGHT_OF_SECOND: u32 = 2;

/// Returns the weight of a share that an action has named, or of another share.
pub(super) fn weight_of(share: Option<&str>) -> i64 {
    if share == Some(NAMES[1]) { WEIGHT_OF_SECOND.into() } else { 1 }
}

/// Returns the terms of shares: the second share has a weight. A user with a budget may name both.
pub(super) fn terms() -> ShareTerms {
    let second = NAMES[1].parse::<ShareName>().map(|name| (named_share(&name), WEIGHT_OF_SECOND));
    let named = NAMES.iter().filter_map(|name| name.parse().ok()).collect();
    let names = [(Owner::new("client", budgets::NAME).to_string(), named)].into();
    ShareTerms { weights: second.into_iter().collect(), names, ..ShareTerms::default() }
}

/// Returns true if a user may name any share, and claim jobs.
pub(super) fn is_admin(user: &Caller) -> bool {
    user.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin)
}

/// Returns the field of an action that names its share, if it names one. There is no random draw
/// for the share, so that seeds without shares stay as they are.
pub(super) fn field(number: &str) -> String {
    let named = number.parse::<usize>().ok().and_then(|number| NAMES.get(number % 3));
    named.map(|name| format!(r#","share":"{name}""#)).unwrap_or_default()
}
