//! Access control that all connections of RESP and HTTP share: keys, delays after wrong keys, and
//! limits for each address.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use agenix_protocol::limits::Limits;

use super::{
    connection_limit::{ConnectionLimiter, ConnectionPermit},
    throttle::AuthGuard,
};
use crate::auth::keyring::Keyring;

/// Number of connections of an address for each event stream that it may have.
const CONNECTIONS_PER_STREAM: usize = 4;

#[derive(Debug)]
pub(crate) struct AccessControl {
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) auth_guard: AuthGuard,
    pub(crate) connection_limiter: Arc<ConnectionLimiter>,
    /// Number of the last connection, over RESP and HTTP together.
    last_connection: AtomicU64,
    /// Event streams last until the client leaves, and are counted apart from connections.
    stream_limiter: Arc<ConnectionLimiter>,
}

impl AccessControl {
    /// Numbers are unique over RESP and HTTP, because pub/sub and the registry of connections use
    /// them.
    pub(crate) fn next_connection(&self) -> u64 {
        self.last_connection.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns a permit, or a message that names the limit. A stream counts as no connection, so
    /// that open dashboards do not block other clients of the address. Unix sockets have no limit.
    pub(crate) fn admit_stream(&self, ip: Option<IpAddr>) -> Result<Option<ConnectionPermit>, String> {
        let Some(ip) = ip else { return Ok(None) };
        let place = self.stream_limiter.admit(ip).map(Some);
        place.ok_or_else(|| format!("too many event streams from {ip}: max {}", self.stream_limiter.max()))
    }

    pub(crate) fn new(keyring: Arc<Keyring>, limits: &Limits) -> Self {
        let max = limits.max_connections_per_ip;
        Self {
            keyring,
            auth_guard: AuthGuard::new(limits.max_auth_failures),
            connection_limiter: ConnectionLimiter::new(max),
            stream_limiter: ConnectionLimiter::new(max.div_ceil(CONNECTIONS_PER_STREAM)),
            last_connection: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        sync::Arc,
    };

    use agenix_protocol::limits::Limits;

    use super::AccessControl;
    use crate::auth::keyring::{Keyring, SessionKeys};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn access_control(max_connections_per_ip: usize) -> AccessControl {
        let limits = Limits { max_connections_per_ip, ..Limits::default() };
        AccessControl::new(Arc::new(Keyring::new(SessionKeys::default())), &limits)
    }

    #[test]
    fn event_streams_have_a_smaller_limit_apart_from_connections() {
        let access_control = access_control(5);
        let _streams = [
            access_control.admit_stream(Some(HERE)).unwrap(),
            access_control.admit_stream(Some(HERE)).unwrap(),
        ];
        let refused = access_control.admit_stream(Some(HERE)).unwrap_err();
        assert_eq!(refused, "too many event streams from 127.0.0.1: max 2");
        let connections: Vec<_> = (0..5).map(|_| access_control.connection_limiter.admit(HERE)).collect();
        assert!(connections.iter().all(Option::is_some), "streams take no place of a connection");
        assert!(access_control.admit_stream(Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)))).is_ok());
    }

    #[test]
    fn event_streams_are_unlimited_without_a_limit_on_connections() {
        let access_control = access_control(0);
        let streams: Vec<_> = (0..100).map(|_| access_control.admit_stream(Some(HERE)).unwrap()).collect();
        assert!(streams.iter().all(Option::is_some));
    }
}
