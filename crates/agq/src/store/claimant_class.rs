//! Classes of claimants: claimants with equal capabilities, which can run the same jobs.

use std::sync::Arc;

use agenix_rules::capability::ClaimantCapabilities;

/// Identity of capabilities as long as a class has them.
pub(crate) type ClassId = usize;

/// Returns the identity of capabilities. Those of workers are shared by workers that have equal
/// ones; the others have no fields.
pub(crate) fn class_id(capabilities: &Arc<ClaimantCapabilities>) -> ClassId {
    match **capabilities {
        ClaimantCapabilities::Nothing => 0,
        ClaimantCapabilities::Anything => 1,
        ClaimantCapabilities::Worker { .. } => Arc::as_ptr(capabilities).addr(),
    }
}
