//! What all connections share at the door: whose keys are known, who tried wrong ones, and how many come from where.

use std::sync::Arc;

use agenix_protocol::limits::Limits;

use super::{guests::Guests, throttle::AuthGuard};
use crate::keyring::Keyring;

/// The door that every connection comes through.
#[derive(Debug)]
pub(crate) struct Door {
    pub(super) keyring: Arc<Keyring>,
    pub(super) auth_guard: AuthGuard,
    pub(super) guests: Arc<Guests>,
}

impl Door {
    /// A door with these keys and the bounds that concern whoever comes in.
    pub(crate) fn new(keyring: Arc<Keyring>, limits: &Limits) -> Self {
        let auth_guard = AuthGuard::new(limits.max_auth_failures);
        Self { keyring, auth_guard, guests: Guests::new(limits.max_connections_per_ip) }
    }
}
