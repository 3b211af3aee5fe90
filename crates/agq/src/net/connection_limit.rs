//! Limit on simultaneous connections of an IP address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use agenix_protocol::limits::exceeds;

use crate::sync::lock;

/// Connections over the Unix socket are not counted, because only its owner can open them.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    /// Maximum number of connections of an address; 0 means no limit.
    max: usize,
    by_ip: Mutex<HashMap<IpAddr, usize>>,
}

/// Place of one connection under the limit of its address. Dropping the permit frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    ip: IpAddr,
}

impl ConnectionLimiter {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, by_ip: Mutex::default() })
    }

    /// Returns a permit for one more connection of `ip`, or `None` at the limit.
    pub(crate) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<ConnectionPermit> {
        let mut by_ip = lock(&self.by_ip);
        let present = by_ip.get(&ip).copied().unwrap_or_default();
        if exceeds(present + 1, self.max) {
            return None;
        }
        by_ip.insert(ip, present + 1);
        Some(ConnectionPermit { limiter: Arc::clone(self), ip })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn refusal(&self, ip: IpAddr) -> String {
        format!("ERR Too many connections from {ip}: max {}", self.max)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut by_ip = lock(&self.limiter.by_ip);
        if let Some(present) = by_ip.get_mut(&self.ip) {
            *present -= 1;
            if *present == 0 {
                by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::ConnectionLimiter;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn connection_limit_admits_the_maximum_and_frees_dropped_permits() {
        let limiter = ConnectionLimiter::new(2);
        let first = limiter.admit(LOCAL).unwrap();
        let _second = limiter.admit(LOCAL).unwrap();
        assert!(limiter.admit(LOCAL).is_none());
        assert_eq!(limiter.refusal(LOCAL), "ERR Too many connections from 127.0.0.1: max 2");
        assert!(limiter.admit(OTHER).is_some(), "another address has places of its own");
        drop(first);
        assert!(limiter.admit(LOCAL).is_some());
    }

    #[test]
    fn connection_limit_of_zero_admits_all_and_keeps_no_entry() {
        let limiter = ConnectionLimiter::new(0);
        let many: Vec<_> = (0..1000).map(|_| limiter.admit(LOCAL).unwrap()).collect();
        drop(many);
        assert!(limiter.by_ip.lock().unwrap().is_empty());
    }
}
