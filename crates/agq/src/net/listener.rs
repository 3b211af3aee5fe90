//! Listeners for TCP, TLS over TCP, and a Unix socket. All listeners produce the same
//! [`ClientStream`].

use std::{
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use rustix::{
    net::sockopt,
    process::{Pid, geteuid},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};
use tokio_rustls::server::TlsStream;

use super::{connection_limit::ConnectionPermit, tls::TlsAcceptance};
use crate::{auth::keyring::Identity, settings::ListenAddresses};

/// Allows connections of the owner only, because a connection needs write permission.
const OWNER_ONLY: u32 = 0o600;
/// Idle time after which the system sends TCP keepalive probes.
#[cfg(target_os = "linux")]
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(60);
/// Maximum time in milliseconds for which sent bytes may be unacknowledged (TCP user timeout),
/// because a client that lost its power sends nothing. A client may pause its reading for less, as
/// agx does under `less`.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS: u32 = 300_000;

/// The system reports progress after the client has read a third of the buffer. With a larger
/// buffer, agq could not distinguish a slow reader from a client that does not read.
const SEND_BUFFER: usize = 128 * 1024;

/// Open listeners of one protocol.
pub(crate) struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
    tls: Option<Arc<TlsAcceptance>>,
}

pub(crate) enum IncomingStream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Connection of a client, independent of its transport.
pub(crate) struct ClientStream {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// IP address of the client; `None` for a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    /// Address for logs and lists: `127.0.0.1:5000` or `unix:/run/agq.sock`.
    pub(crate) shown: String,
    /// Process of a client on a Unix socket that runs as the user of agq.
    pub(crate) process: Option<Pid>,
    /// Identity that the certificate proves. Such a client needs no `AUTH`.
    pub(crate) certified: Option<Identity>,
    /// The handler keeps the permit until the connection ends; `None` for a Unix socket.
    pub(crate) permit: Option<ConnectionPermit>,
}

impl Listeners {
    pub(crate) async fn open(addresses: &ListenAddresses) -> anyhow::Result<Self> {
        let tls = addresses.tls.clone().map(TlsAcceptance::open).transpose()?.map(Arc::new);
        let advice =
            |address| format!("cannot listen on {address}: choose another --port (0 takes a free one)");
        let tcp = match addresses.tcp {
            None => None,
            Some(address) => Some(TcpListener::bind(address).await.with_context(|| advice(address))?),
        };
        let unix = addresses.socket.as_deref().map(bind).transpose()?;
        Ok(Self { tcp, unix, tls })
    }

    /// Opens the HTTP listener at `address`, with the TLS certificates of `self` if it has TLS.
    pub(crate) async fn for_http(&self, address: SocketAddr) -> anyhow::Result<Self> {
        let tcp = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} for HTTP: choose another --http ADDRESS, or use --http off")
        })?;
        Ok(Self { tcp: Some(tcp), unix: None, tls: self.tls.clone() })
    }

    pub(crate) fn http_address(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let address = self.tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        Ok(address.map(|address| format!("{scheme}://{address}")).unwrap_or_default())
    }

    /// Returns the TLS state, by which a reload replaces the certificates.
    pub(crate) fn tls(&self) -> Option<Arc<TlsAcceptance>> {
        self.tls.clone()
    }

    /// Returns the addresses of all listeners in the form that clients accept.
    pub(crate) fn addresses(&self) -> io::Result<Vec<String>> {
        let scheme = if self.tls.is_some() { "rediss://" } else { "" };
        let tcp = self.tcp.as_ref().map(|tcp| tcp.local_addr().map(|address| format!("{scheme}{address}")));
        let unix = self.unix.as_ref().map(|(_, file)| Ok(file.shown()));
        tcp.into_iter().chain(unix).collect()
    }

    pub(crate) fn socket_shown(&self) -> String {
        self.unix.as_ref().map(|(_, file)| file.shown()).unwrap_or_default()
    }

    /// Waits for the next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<IncomingStream> {
        let tcp = async {
            match &self.tcp {
                Some(listener) => {
                    listener.accept().await.map(|(socket, peer)| IncomingStream::Tcp(socket, peer))
                }
                None => std::future::pending().await,
            }
        };
        let unix = async {
            match &self.unix {
                Some((listener, _)) => {
                    listener.accept().await.map(|(socket, _)| IncomingStream::Unix(socket))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            incoming = tcp => incoming,
            incoming = unix => incoming,
        }
    }
}

impl ClientStream {
    pub(crate) fn tcp(socket: TcpStream, peer: SocketAddr, permit: ConnectionPermit) -> Self {
        Self { ip: Some(peer.ip()), permit: Some(permit), ..Self::of(socket.into_split(), peer.to_string()) }
    }

    pub(crate) fn tls(
        stream: TlsStream<TcpStream>,
        peer: SocketAddr,
        permit: ConnectionPermit,
        certified: Option<Identity>,
    ) -> Self {
        let stream = Self::of(tokio::io::split(stream), peer.to_string());
        Self { ip: Some(peer.ip()), certified, permit: Some(permit), ..stream }
    }

    pub(crate) fn unix(socket: UnixStream, shown: String) -> Self {
        let process = process_of(&socket);
        Self { process, ..Self::of(socket.into_split(), shown) }
    }

    fn of<R, W>((reader, writer): (R, W), shown: String) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Self { reader, writer, ip: None, shown, process: None, certified: None, permit: None }
    }
}

/// Returns the process at the other end if it runs as the user of this process. A process of
/// another user could make agq read files that this user may not read.
fn process_of(socket: &UnixStream) -> Option<Pid> {
    let peer = socket.peer_cred().ok()?;
    let pid = peer.pid().filter(|_| peer.uid() == geteuid().as_raw());
    Pid::from_raw(pid?)
}

/// Sets no delay of replies, a bounded send buffer, and detection of clients without power.
pub(crate) fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    #[cfg(target_os = "linux")]
    {
        sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
        sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS)?;
    }
    Ok(())
}

/// Socket file, which the drop removes if no other process has replaced the file.
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file at the time of the bind.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn shown(&self) -> String {
        format!("unix:{}", self.path.display())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity_of(&self.path) == self.identity {
            // After a failure, the next agq replaces the file.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn bind(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    remove_stale_socket(path)?;
    let shown = path.display();
    // The umask denies access to others even between the bind and this call.
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot listen on {shown}: choose another --socket"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ONLY))
        .with_context(|| format!("cannot restrict access to {shown}"))?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let identity = identity_of(&path);
    Ok((listener, SocketFile { path, identity }))
}

/// Removes the socket file of an agq that has ended. Refuses a socket in use, or another file.
fn remove_stale_socket(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| format!("cannot inspect {shown}: choose another --socket"))?,
    };
    if !metadata.file_type().is_socket() {
        bail!("{shown} exists and is not a socket: choose another --socket, or remove it");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("something already listens on {shown}: stop it, or choose another --socket"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("cannot replace the dead socket {shown}"))
        }
        Err(error) => Err(error).with_context(|| {
            format!("cannot determine whether anything listens on {shown}: choose another --socket")
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::Path};

    use super::Listeners;
    use crate::settings::ListenAddresses;

    async fn open(path: &Path) -> anyhow::Result<Listeners> {
        Listeners::open(&ListenAddresses { tcp: None, socket: Some(path.to_owned()), tls: None, http: None })
            .await
    }

    #[tokio::test]
    async fn socket_file_is_private_and_removed_with_its_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agq.sock");
        let listeners = open(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(listeners.addresses().unwrap(), [format!("unix:{}", path.display())]);
        drop(listeners);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn socket_file_is_replaced_only_if_no_process_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agq.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener that was only dropped leaves its file");
        let listeners = open(&path).await.unwrap();
        let second = open(&path).await.err().unwrap().to_string();
        assert!(second.contains("something already listens on"), "{second}");
        drop(listeners);
        std::fs::write(&path, "precious").unwrap();
        let file = open(&path).await.err().unwrap().to_string();
        assert!(file.contains("is not a socket"), "{file}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn socket_file_of_another_listener_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agq.sock");
        let first = open(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let _second = open(&path).await.unwrap();
        drop(first);
        assert!(path.exists());
    }
}
