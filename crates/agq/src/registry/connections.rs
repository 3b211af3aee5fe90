//! Open connections, for CLIENT LIST and INFO.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use agenix_protocol::time::Timestamp;

use crate::sync::lock;

#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionInfo {
    pub(crate) from: Arc<str>,
    pub(crate) name: String,
    /// Name of the identity whose key the client has shown.
    pub(crate) user: Arc<str>,
    /// Name of the client library, as the client has sent it.
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) resp: u8,
    pub(crate) since: Timestamp,
}

/// Open connections by number, and counters of connections and commands.
#[derive(Default)]
pub(crate) struct ConnectionRegistry {
    open: Mutex<BTreeMap<u64, ConnectionInfo>>,
    accepted: AtomicU64,
    commands: AtomicU64,
}

impl ConnectionRegistry {
    pub(crate) fn add(&self, number: u64, entry: ConnectionInfo) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(number, entry);
    }

    pub(crate) fn remove(&self, number: u64) {
        lock(&self.open).remove(&number);
    }

    pub(crate) fn update(&self, number: u64, how: impl FnOnce(&mut ConnectionInfo)) {
        if let Some(entry) = lock(&self.open).get_mut(&number) {
            how(entry);
        }
    }

    pub(crate) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of open connections, of all connections, and of all commands.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        (lock(&self.open).len(), self.accepted.load(Ordering::Relaxed), self.commands.load(Ordering::Relaxed))
    }

    /// Returns the lines of CLIENT LIST, all of them or that of connection `only`.
    pub(crate) fn lines(&self, only: Option<u64>, now: Timestamp) -> String {
        let open = lock(&self.open);
        let shown = open.iter().filter(|(number, _)| only.is_none_or(|only| only == **number));
        shown.map(|(number, entry)| line(*number, entry, now)).collect()
    }
}

fn line(number: u64, entry: &ConnectionInfo, now: Timestamp) -> String {
    let age = now.ms_since(entry.since) / 1000;
    let ConnectionInfo { from, name, user, library, library_version, resp, .. } = entry;
    let user = if user.is_empty() { "(none)" } else { user };
    format!(
        "id={number} addr={from} name={name} age={age} db=0 user={user} lib-name={library} lib-ver={library_version} resp={resp}\n"
    )
}
