//! Accept loop of a listener: admits each connection, performs the TLS handshake, and spawns the
//! handler of its protocol. At the stop of agq, the loop waits until all handlers have returned.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tracing::{debug, info, warn};

use super::{
    access_control::AccessControl,
    listener::{ClientStream, IncomingStream, Listeners, set_options},
    tls::TlsAcceptance,
};

/// Pause after a failed accept, because the system may have no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum time for which agq sends the reason to a rejected client and reads from that client.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct ProtocolHandler {
    /// Serves the connection with the given number until it or agq ends.
    pub(crate) serve:
        Box<dyn Fn(ClientStream, u64, watch::Receiver<bool>) -> BoxFuture<'static, ()> + Send + Sync>,
    /// Formats a reason as the only reply to a client whose connection is over a limit.
    pub(crate) rejection: fn(&str) -> String,
}

/// Accepts and serves connections until `stop` becomes true.
pub(crate) async fn serve(
    listeners: Listeners,
    handler: ProtocolHandler,
    access_control: Arc<AccessControl>,
    stop: watch::Receiver<bool>,
) {
    let (tls, socket_shown) = (listeners.tls(), listeners.socket_shown());
    let acceptor = Arc::new(Acceptor { tls, socket_shown, handler, access_control });
    let mut connections = JoinSet::new();
    let mut stopped = stop.clone();
    loop {
        tokio::select! {
            incoming = listeners.accept() => match incoming {
                Ok(incoming) => {
                    let number = acceptor.access_control.next_connection();
                    connections.spawn(Arc::clone(&acceptor).handle(incoming, number, stop.clone()));
                }
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_ended) = connections.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listeners);
    while connections.join_next().await.is_some() {}
}

struct Acceptor {
    tls: Option<Arc<TlsAcceptance>>,
    socket_shown: String,
    handler: ProtocolHandler,
    access_control: Arc<AccessControl>,
}

impl Acceptor {
    async fn handle(self: Arc<Self>, incoming: IncomingStream, number: u64, stop: watch::Receiver<bool>) {
        let mut stopped = stop.clone();
        let accepted = tokio::select! {
            accepted = self.handshake(incoming) => accepted,
            _ = stopped.changed() => return,
        };
        if let Some(accepted) = accepted {
            debug!(peer = accepted.shown, number, "connected");
            (self.handler.serve)(accepted, number, stop).await;
        }
    }

    /// Returns `None` if the client is rejected or its handshake fails.
    async fn handshake(&self, incoming: IncomingStream) -> Option<ClientStream> {
        let (socket, mut peer) = match incoming {
            IncomingStream::Unix(socket) => {
                return Some(ClientStream::unix(socket, self.socket_shown.clone()));
            }
            IncomingStream::Tcp(socket, peer) => (socket, peer),
        };
        // An IPv4 address and the IPv6 address that maps it share one limit.
        peer.set_ip(peer.ip().to_canonical());
        if let Err(error) = set_options(&socket) {
            debug!(%error, "the socket could not be tuned");
        }
        let Some(permit) = self.access_control.connection_limiter.admit(peer.ip()) else {
            let reason = self.access_control.connection_limiter.refusal(peer.ip());
            debug!(%peer, reason, "rejected a connection");
            // Over TLS there is no reason, because the client would have to begin a handshake
            // first.
            if self.tls.is_none() {
                reject(socket, &(self.handler.rejection)(&reason)).await;
            }
            return None;
        };
        let Some(tls) = &self.tls else { return Some(ClientStream::tcp(socket, peer, permit)) };
        match tls.handshake(socket).await {
            Ok((stream, names)) => {
                let certified = self.access_control.keyring.of_certificate(&names);
                if let Some(identity) = &certified {
                    debug!(%peer, role = %identity.role, name = %identity.name, "authenticated by a certificate");
                }
                Some(ClientStream::tls(stream, peer, permit, certified))
            }
            Err(error) => {
                info!(%peer, %error, "a TLS handshake failed");
                None
            }
        }
    }
}

/// Sends `rejection`, and reads until the client closes. Unread bytes would make the system reset
/// the connection, and a reset would discard the reason.
async fn reject(mut socket: TcpStream, rejection: &str) {
    let sending = async {
        socket.write_all(rejection.as_bytes()).await?;
        socket.shutdown().await?;
        let mut sink = [0; 1024];
        while socket.read(&mut sink).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    if timeout(REJECT_TIMEOUT, sending).await.is_err() {
        debug!("a rejected client did not close its connection");
    }
}
