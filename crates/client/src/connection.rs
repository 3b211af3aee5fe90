//! One connection to agq, logged in.

use std::time::Duration;

use agenix_protocol::request::Request;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, Value,
    aio::MultiplexedConnection,
};
use secrecy::{ExposeSecret, SecretString};

use crate::error::ClientError;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for an answer that does not have to wait for work.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Where agq is and how to log in.
#[derive(Debug, Clone)]
pub struct Server {
    host: String,
    port: u16,
    key: SecretString,
}

impl Server {
    /// Reads an address `host:port`.
    pub fn new(address: &str, key: SecretString) -> Result<Self, String> {
        let wrong = || format!("'{address}' is not an address: write host:port, as 127.0.0.1:6380");
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, key })
    }

    /// The address as it is shown.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// A connection. Clones share it; calls on it are pipelined.
#[derive(Clone)]
pub struct Connection {
    address: String,
    inner: MultiplexedConnection,
}

impl Connection {
    /// Connects and logs in, for commands that are answered at once.
    pub async fn open(server: &Server) -> Result<Self, ClientError> {
        Self::open_with(server, Some(REPLY_TIMEOUT)).await
    }

    /// Connects and logs in, and waits for a reply as long as that takes: for claims, where a reply that is given up on takes
    /// its job with it, and for whoever stops reading for a while.
    pub async fn open_patiently(server: &Server) -> Result<Self, ClientError> {
        Self::open_with(server, None).await
    }

    async fn open_with(server: &Server, reply_timeout: Option<Duration>) -> Result<Self, ClientError> {
        let address = server.address();
        let failed = |error: redis::RedisError| ClientError::from_redis(&address, &error);
        let info = ConnectionAddr::Tcp(server.host.clone(), server.port)
            .into_connection_info()
            .map_err(failed)?
            .set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(reply_timeout);
        let client = redis::Client::open(info).map_err(failed)?;
        let inner = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let mut connection = Self { address: address.clone(), inner };
        let key = server.key.expose_secret().as_bytes().to_vec().into();
        connection.call(&Request::Auth { key }).await?;
        Ok(connection)
    }

    /// Sends a command and waits for its reply.
    pub async fn call(&mut self, request: &Request) -> Result<Value, ClientError> {
        let mut command = redis::Cmd::new();
        for arg in request.encode() {
            command.arg(&arg[..]);
        }
        self.inner
            .send_packed_command(&command)
            .await
            .and_then(Value::extract_error)
            .map_err(|error| ClientError::from_redis(&self.address, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::Server;

    #[test]
    fn addresses_are_host_and_port() {
        let address = |text| Server::new(text, "k".into()).map(|server| server.address());
        assert_eq!(address("localhost:6380").unwrap(), "localhost:6380");
        assert_eq!(address("[::1]:6380").unwrap(), "::1:6380");
        for wrong in ["localhost", ":6380", "h:x", "h:99999", ""] {
            assert!(address(wrong).unwrap_err().contains("write host:port"), "{wrong}");
        }
    }
}
