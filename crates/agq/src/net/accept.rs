//! Takes connections until it is told to stop, then lets the commands under way finish.

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

/// How long to wait before accepting again when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long someone who has no place here is still read, so that the reason arrives.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What is done with connections, once they have come in: one manner for each door.
pub(crate) struct ProtocolHandler {
    /// Serves one, which has this number, to its end, or until it is told to stop.
    pub(crate) serve:
        Box<dyn Fn(ClientStream, u64, watch::Receiver<bool>) -> BoxFuture<'static, ()> + Send + Sync>,
    /// What someone is told for whom there is no place, and why.
    pub(crate) rejection: fn(&str) -> String,
}

/// Serves connections until `stop` says so.
pub(crate) async fn serve(
    listeners: Listeners,
    handler: ProtocolHandler,
    access_control: Arc<AccessControl>,
    stop: watch::Receiver<bool>,
) {
    let acceptor = Arc::new(Acceptor {
        tls: listeners.tls(),
        socket_shown: listeners.socket_shown(),
        handler,
        access_control,
    });
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

/// What every connection is met with.
struct Acceptor {
    tls: Option<Arc<TlsAcceptance>>,
    socket_shown: String,
    handler: ProtocolHandler,
    access_control: Arc<AccessControl>,
}

impl Acceptor {
    /// Serves one connection to its end.
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

    /// Finds a place for a connection, and shakes hands where that is asked for.
    async fn handshake(&self, incoming: IncomingStream) -> Option<ClientStream> {
        let (socket, mut peer) = match incoming {
            IncomingStream::Unix(socket) => {
                return Some(ClientStream::unix(socket, self.socket_shown.clone()));
            }
            IncomingStream::Tcp(socket, peer) => (socket, peer),
        };
        // One address is one guest, whether it came over IPv4 or over IPv6 that holds IPv4.
        peer.set_ip(peer.ip().to_canonical());
        if let Err(error) = set_options(&socket) {
            debug!(%error, "the socket could not be tuned");
        }
        let Some(permit) = self.access_control.connection_limiter.admit(peer.ip()) else {
            let reason = self.access_control.connection_limiter.refusal(peer.ip());
            debug!(%peer, reason, "turned away");
            // Without a handshake, which would be the guest's to ask for, nothing can be said over TLS.
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
                    debug!(%peer, role = %identity.role, name = %identity.name, "known by a certificate");
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

/// Says why there is no place. The client may have sent something already: it is read for a moment, for a reset would take
/// the reason away from it.
async fn reject(mut socket: TcpStream, rejection: &str) {
    let sending = async {
        socket.write_all(rejection.as_bytes()).await?;
        socket.shutdown().await?;
        let mut sink = [0; 1024];
        while socket.read(&mut sink).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    if timeout(REJECT_TIMEOUT, sending).await.is_err() {
        debug!("someone who was turned away went on sending");
    }
}
