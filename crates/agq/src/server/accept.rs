//! Takes connections until it is told to stop, then lets the commands under way finish.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tracing::{debug, warn};

use super::connection;
use crate::{
    house::{House, connection_name},
    key::SessionKey,
};

/// How long to wait before accepting again when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `stop` says so.
pub(crate) async fn serve(
    listener: TcpListener,
    house: Arc<House>,
    key: Arc<SessionKey>,
    stop: watch::Receiver<bool>,
) {
    let numbers = AtomicU64::new(1);
    let mut open = JoinSet::new();
    let mut stopped = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    debug!(%peer, number, "connected");
                    let name = connection_name(number);
                    open.spawn(connection::serve(socket, name, Arc::clone(&house), Arc::clone(&key), stop.clone()));
                }
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_ended) = open.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}
