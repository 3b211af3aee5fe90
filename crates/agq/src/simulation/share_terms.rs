//! Shares that actions name, and their terms.

use agenix_protocol::ids::ShareName;
use agenix_rules::fair_share::{ShareTerms, named_share};

use crate::{app::Caller, auth::keyring::Role};

pub(super) const NAMES: [&str; 2] = ["s1", "s2"];
const WEIGHT_OF_SECOND: u32 = 2;
/// Returns the terms of shares: the second one has a weight.
pub(super) fn terms() -> ShareTerms {
    let second = NAMES[1].parse::<ShareName>().map(|name| (named_share(&name), WEIGHT_OF_SECOND));
    ShareTerms { weights: second.into_iter().collect(), ..ShareTerms::default() }
}

/// Returns true if a user may name shares.
pub(super) fn may_name(user: &Caller) -> bool {
    user.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin)
}

/// Returns the field of an action that names its share, if it names one. There is no draw for it,
/// so that seeds without shares stay as they are.
pub(super) fn field(user: &Caller, number: &str) -> String {
    let named = number.parse::<usize>().ok().and_then(|number| NAMES.get(number % 3));
    let named = named.filter(|_| may_name(user));
    named.map(|name| format!(r#","share":"{name}""#)).unwrap_or_default()
}
