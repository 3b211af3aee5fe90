//! What all connections share at the door: whose keys are known, who tried wrong ones, and how many come from where.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agenix_protocol::{limits::Limits, time::Timestamp};

use super::{guests::Guests, throttle::AuthGuard};
use crate::{
    key::KeyHash,
    keyring::{Identity, Keyring},
};

/// The door that every connection comes through.
#[derive(Debug)]
pub(crate) struct Door {
    pub(super) keyring: Arc<Keyring>,
    pub(super) auth_guard: AuthGuard,
    pub(super) guests: Arc<Guests>,
    /// The number of the last connection, over RESP and HTTP together.
    last_connection: AtomicU64,
}

impl Door {
    /// Whose key this is.
    pub(crate) fn identify(&self, key: &[u8]) -> Option<Identity> {
        self.keyring.identify(key)
    }

    /// Whose key this is the hash of.
    pub(crate) fn identify_hash(&self, hash: &KeyHash) -> Option<Identity> {
        self.keyring.identify_hash(hash)
    }

    /// A wrong key came from here; how long its answer waits.
    pub(crate) fn wrong_key(&self, ip: Option<IpAddr>, now: Timestamp) -> Duration {
        self.auth_guard.wrong_key(ip, now)
    }

    /// Numbers a connection. Numbers are unique over RESP and HTTP, because the hub and the directory know
    /// connections by them.
    pub(super) fn next_connection(&self) -> u64 {
        self.last_connection.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A door with these keys and the bounds that concern whoever comes in.
    pub(crate) fn new(keyring: Arc<Keyring>, limits: &Limits) -> Self {
        let auth_guard = AuthGuard::new(limits.max_auth_failures);
        let guests = Guests::new(limits.max_connections_per_ip);
        Self { keyring, auth_guard, guests, last_connection: AtomicU64::new(0) }
    }
}
