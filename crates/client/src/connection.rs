//! Authenticated connections to agq, with failover between several addresses.

use std::{
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agenix_protocol::request::{Request, Secret};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, Value,
    aio::MultiplexedConnection,
};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::{
    address::{Address, Tls},
    error::ClientError,
    refusal::refusal,
};

/// Advice about unusable TLS files.
const FILES: &str = "look at the files of --tls-ca, --tls-cert and --tls-key";

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a reply to a command that does not wait for work.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Addresses, one per node of a database, and credentials. Clones fail over together.
#[derive(Debug, Clone)]
pub struct Server {
    /// At least one address.
    addresses: Arc<[Address]>,
    /// Index of the current address, modulo the number of addresses.
    current: Arc<AtomicUsize>,
    tls: Tls,
    /// `None` if a certificate authenticates the client.
    key: Option<SecretString>,
}

impl Server {
    /// Creates a server without certificates. `address` is as in [`Address::parse_all`].
    pub fn new(address: &str, key: SecretString) -> Result<Self, String> {
        Self::with_tls(Address::parse_all(address)?, Tls::default(), Some(key))
    }

    /// Creates a server with certificates for TLS. Without `key`, the client certificate has to
    /// name the client. Returns an error if `addresses` is empty, if certificates are given for an
    /// address without TLS, or if a file is unusable.
    pub fn with_tls(addresses: Vec<Address>, tls: Tls, key: Option<SecretString>) -> Result<Self, String> {
        let plain = addresses.iter().find(|address| !address.is_tls());
        if let Some(address) = plain.filter(|_| !tls.is_default()) {
            return Err(format!(
                "certificates are given, but {address} is not TLS: write rediss://host:port"
            ));
        }
        if addresses.is_empty() {
            return Err("no address is given: write host:port".into());
        }
        let is_tls = addresses.iter().any(Address::is_tls);
        let server = Self { addresses: addresses.into(), current: Arc::default(), tls, key };
        if is_tls {
            server.tls.read()?;
            server.client().map_err(|error| match error {
                ClientError::Unreachable { reason, .. } | ClientError::Tls { reason, .. } => reason,
                other => other.to_string(),
            })?;
        }
        Ok(server)
    }

    /// Returns true if `key` is the key of the credentials. The comparison takes the same time for
    /// all keys of the same length. Returns false if a certificate replaces the key.
    pub fn has_key(&self, key: &[u8]) -> bool {
        let own = self.key.as_ref().map(|own| own.expose_secret().as_bytes());
        own.is_some_and(|own| own.ct_eq(key).into())
    }

    /// Returns 128 bits that depend on `purpose`, on `text` and on the key, in hexadecimal. A
    /// client without the key cannot compute the bits. If a certificate replaces the key, the bits
    /// depend on `purpose` and `text` alone.
    pub fn secret_digest(&self, purpose: &str, text: &[u8]) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("agenix 2026-11 ids of clients");
        let key = self.key.as_ref().map_or("", |key| key.expose_secret());
        for part in [key.as_bytes(), purpose.as_bytes(), text] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize().as_bytes().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the current address as text.
    pub fn address(&self) -> String {
        self.current().1.to_string()
    }

    /// Returns the current address and its index.
    fn current(&self) -> (usize, &Address) {
        let current = self.current.load(Ordering::Relaxed) % self.addresses.len();
        (current, &self.addresses[current])
    }

    /// Makes the address after `from` the current one, unless a clone has done so already.
    fn fail_over_from(&self, from: usize) {
        let next = (from + 1) % self.addresses.len();
        let _went_before = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes the next address the current one if `error` means that the database of the node at the
    /// current address is away. After a lost connection, the next attempt to connect does the same.
    pub fn fail_over_after(&self, error: &ClientError) {
        let (from, here) = self.current();
        if matches!(error, ClientError::StoreFailed { address, .. } if *address == here.to_string()) {
            self.fail_over_from(from);
        }
    }

    /// Returns a client of the `redis` crate whose connections authenticate themselves.
    pub(crate) fn client(&self) -> Result<redis::Client, ClientError> {
        let settings = RedisConnectionInfo::default();
        self.client_with(match &self.key {
            Some(key) => settings.set_password(key.expose_secret()),
            None => settings,
        })
    }

    fn client_with(&self, settings: RedisConnectionInfo) -> Result<redis::Client, ClientError> {
        let here = self.current().1;
        let address = match here {
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Tls { host, port } => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let failed = |error: redis::RedisError| ClientError::from_redis(&self.address(), &error);
        let info = address
            .into_connection_info()
            .map_err(failed)?
            .set_redis_settings(settings.set_skip_set_lib_name());
        if !here.is_tls() {
            return redis::Client::open(info).map_err(failed);
        }
        choose_cryptography();
        let unreadable = |reason| ClientError::Tls { address: self.address(), reason, help: FILES };
        redis::Client::build_with_tls(info, self.tls.read().map_err(unreadable)?).map_err(failed)
    }
}

/// Sets the process-wide cryptography provider of rustls, for connections that other crates make.
pub fn choose_cryptography() {
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        // An error means that the process has a provider already, which works as well.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Connection to agq. Clones share the connection, and concurrent calls are pipelined.
#[derive(Clone)]
pub struct Connection {
    address: String,
    inner: MultiplexedConnection,
    /// True for a Unix socket.
    is_local: bool,
}

impl Connection {
    /// Connects and authenticates; replies take at most a minute. Reports the last address's error.
    pub async fn open(server: &Server) -> Result<Self, ClientError> {
        Self::open_with(server, Some(REPLY_TIMEOUT)).await
    }

    /// Connects and authenticates. Replies have no timeout: for claims, because an abandoned reply
    /// would lose its job, and for clients that may stop reading. The error is that of the last
    /// address.
    pub async fn open_without_timeout(server: &Server) -> Result<Self, ClientError> {
        Self::open_with(server, None).await
    }

    /// Tries each address once, from the current one, until one is reachable.
    async fn open_with(server: &Server, reply_timeout: Option<Duration>) -> Result<Self, ClientError> {
        let mut tried = 1;
        loop {
            let (from, _) = server.current();
            match Self::open_here(server, reply_timeout).await {
                Err(error @ (ClientError::Unreachable { .. } | ClientError::Tls { .. })) => {
                    server.fail_over_from(from);
                    if tried == server.addresses.len() {
                        return Err(error);
                    }
                    tried += 1;
                }
                done => return done,
            }
        }
    }

    async fn open_here(server: &Server, reply_timeout: Option<Duration>) -> Result<Self, ClientError> {
        let (_, here) = server.current();
        let address = here.to_string();
        let failed = |error: redis::RedisError| ClientError::of_opening(&address, &error);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(reply_timeout);
        let client = server.client_with(RedisConnectionInfo::default())?;
        let inner = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let is_local = matches!(here, Address::Unix(_));
        let mut connection = Self { address: address.clone(), inner, is_local };
        if let Some(key) = &server.key {
            let key = key.expose_secret().as_bytes().to_vec().into();
            let welcomed = connection.send(&Request::Auth { key: Secret(key) }).await;
            if let Err(error) = welcomed.map_err(failed) {
                return Err(match error {
                    ClientError::Unreachable { reason, .. } => {
                        let reason = refusal(here).await.unwrap_or(reason);
                        ClientError::Unreachable { address, reason }
                    }
                    other => other,
                });
            }
        }
        Ok(connection)
    }

    /// Returns true if agq runs on this machine: the connection is a Unix socket.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Sends a command and waits for its reply. The error is [`ClientError::Unreachable`] for a
    /// lost connection, and [`ClientError::Rejected`] for an error of agq.
    pub async fn call(&mut self, request: &Request) -> Result<Value, ClientError> {
        self.send(request).await.map_err(|error| ClientError::from_redis(&self.address, &error))
    }

    async fn send(&mut self, request: &Request) -> redis::RedisResult<Value> {
        let mut command = redis::Cmd::new();
        for arg in request.encode() {
            command.arg(&arg[..]);
        }
        self.inner.send_packed_command(&command).await.and_then(Value::extract_error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, ClientError, Server, Tls};

    #[test]
    fn servers_show_the_address_as_written() {
        let address = |text| Server::new(text, "k".into()).map(|server| server.address());
        assert_eq!(address("localhost:6380").unwrap(), "localhost:6380");
        assert_eq!(address("rediss://localhost").unwrap(), "rediss://localhost:6380");
        assert!(address("localhost").unwrap_err().contains("write host:port"));
    }

    #[test]
    fn certificates_require_a_tls_address() {
        let tls = Tls { ca: Some("ca.pem".into()), ..Tls::default() };
        let plain = Address::parse_all("rediss://localhost,localhost:6380").unwrap();
        let error = Server::with_tls(plain, tls.clone(), None).unwrap_err();
        assert!(error.contains("localhost:6380 is not TLS: write rediss://"), "{error}");
        let encrypted = Address::parse_all("rediss://localhost:6380").unwrap();
        let error = Server::with_tls(encrypted, tls, None).unwrap_err();
        assert!(error.contains("cannot read the CA certificate in ca.pem"), "{error}");
    }

    #[test]
    fn clones_fail_over_together_and_wrap_around() {
        let server = Server::new("a:1,b:2", "k".into()).unwrap();
        let other = server.clone();
        server.fail_over_from(0);
        assert_eq!(other.address(), "b:2");
        // The second failure of the same address does not skip the next one.
        other.fail_over_from(0);
        assert_eq!(server.address(), "b:2");
        server.fail_over_from(1);
        assert_eq!(other.address(), "a:1");
    }

    #[test]
    fn servers_fail_over_from_a_node_without_its_database() {
        let away =
            |address: &str| ClientError::StoreFailed { address: address.into(), reason: "away".into() };
        let server = Server::new("a:1,b:2", "k".into()).unwrap();
        server.fail_over_after(&ClientError::Rejected("Job not found: j".into()));
        assert_eq!(server.address(), "a:1");
        server.fail_over_after(&away("a:1"));
        assert_eq!(server.address(), "b:2");
        // A late reply of the first node has no meaning for the second node.
        server.fail_over_after(&away("a:1"));
        assert_eq!(server.address(), "b:2");
    }
}
