//! Client at the other end of an HTTP connection: its address, its certificate, and its place among
//! the connections of its address.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use crate::{auth::keyring::Identity, net::ConnectionPermit, sync::lock};

/// Client of a connection. Every request of the connection has the peer as an extension.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) number: u64,
    /// IP address; `None` for a Unix socket.
    pub(super) ip: Option<IpAddr>,
    /// Address as logs and audit entries show it.
    pub(super) shown: String,
    /// Identity that the client's certificate proves.
    pub(super) certified: Option<Identity>,
    /// Becomes true once the client sends no more bytes.
    pub(super) has_closed: watch::Receiver<bool>,
    pub(super) slot: ConnectionSlot,
}

impl Peer {
    /// Waits until the client sends no more bytes.
    pub(super) async fn gone(&self) {
        // An error means that the reading task has ended, and that the client is gone, too.
        let _ended = self.has_closed.clone().wait_for(|closed| *closed).await.is_ok();
    }
}

/// Place under the limit of the address. A connection that becomes an event stream gives the place
/// back.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionSlot(Arc<Mutex<Option<ConnectionPermit>>>);

impl ConnectionSlot {
    pub(super) fn of(permit: Option<ConnectionPermit>) -> Self {
        Self(Arc::new(Mutex::new(permit)))
    }

    pub(super) fn give_back(&self) {
        drop(lock(&self.0).take());
    }
}
