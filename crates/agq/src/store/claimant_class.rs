//! Classes of claimants: claimants with equal abilities, which can run the same jobs.

use std::sync::Arc;

use agenix_rules::capability::Abilities;

/// Identity of abilities as long as a class has them.
pub(crate) type ClassId = usize;

/// Returns the identity of abilities. Abilities of workers are shared by those that have equal
/// ones; the others have no fields.
pub(crate) fn class_id(abilities: &Arc<Abilities>) -> ClassId {
    match **abilities {
        Abilities::Nothing => 0,
        Abilities::Anything => 1,
        Abilities::Worker { .. } => Arc::as_ptr(abilities).addr(),
    }
}
