//! Classes of claimants: claimants with equal capabilities, which can run the same jobs.

use std::sync::Arc;

use agenix_rules::capability::ClaimantCapabilities;

/// Identity of capabilities as long as a class has them.
pub(crate) type ClassId = usize;

/// Returns the identity of capabilities. Workers with equal capabilities share one value; the
/// capabilities of other claimants have no fields.
pub(crate) fn class_id(capabilities: &Arc<ClaimantCapabilities>) -> ClassId {
    match **capabilities {
        ClaimantCapabilities::Nothing => 0,
        ClaimantCapabilities::Anything => 1,
        ClaimantCapabilities::Worker { .. } => Arc::as_ptr(capabilities).addr(),
    }
}
