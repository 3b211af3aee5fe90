//! Delays after wrong keys, counted by address. The first wrong keys of a minute have no delay;
//! each further delay is twice the previous one.

use std::{collections::HashMap, net::IpAddr, sync::Mutex, time::Duration};

use agenix_protocol::{limits::exceeds, time::Timestamp};

use crate::sync::lock;

/// Length of the counting window in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Delay of the first wrong key beyond the maximum. Each further delay is twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Maximum number of addresses in memory. A new address replaces the one with the oldest window.
const MAX_ADDRESSES: usize = 10_000;

/// Valid keys have no delay, and do not reset the count.
#[derive(Debug)]
pub(crate) struct AuthGuard {
    /// Number of wrong keys in a minute without a delay; 0 means no limit.
    max: usize,
    /// Failures by address. All Unix sockets share the key `None`.
    failures_by_ip: Mutex<HashMap<Option<IpAddr>, Failures>>,
}

#[derive(Debug)]
struct Failures {
    since: Timestamp,
    count: usize,
    /// Consecutive delayed answers over any number of windows.
    delayed: u32,
}

impl AuthGuard {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, failures_by_ip: Mutex::default() }
    }

    /// Counts a wrong key of `ip`, and returns the delay of its answer.
    pub(crate) fn wrong_key(&self, ip: Option<IpAddr>, now: Timestamp) -> Duration {
        if self.max == 0 {
            return Duration::ZERO;
        }
        let mut failures_by_ip = lock(&self.failures_by_ip);
        if failures_by_ip.len() >= MAX_ADDRESSES && !failures_by_ip.contains_key(&ip) {
            make_room(&mut failures_by_ip, now);
        }
        let failures = failures_by_ip.entry(ip).or_insert(Failures { since: now, count: 0, delayed: 0 });
        failures.advance_window(now, self.max);
        failures.count += 1;
        if !exceeds(failures.count, self.max) {
            return Duration::ZERO;
        }
        let doubled = FIRST_DELAY.saturating_mul(1 << failures.delayed.min(16));
        failures.delayed = failures.delayed.saturating_add(1);
        doubled.min(MAX_DELAY)
    }
}

impl Failures {
    /// Delays continue to grow unless a whole window passed without a delay.
    fn advance_window(&mut self, now: Timestamp, max: usize) {
        let passed_ms = now.ms_since(self.since);
        if passed_ms < WINDOW_MS {
            return;
        }
        if self.count <= max || passed_ms >= 2 * WINDOW_MS {
            self.delayed = 0;
        }
        (self.since, self.count) = (now, 0);
    }
}

/// Removes the addresses that began a window two minutes ago or earlier, or else the oldest.
fn make_room(failures_by_ip: &mut HashMap<Option<IpAddr>, Failures>, now: Timestamp) {
    failures_by_ip.retain(|_, failures| now.ms_since(failures.since) < 2 * WINDOW_MS);
    if failures_by_ip.len() >= MAX_ADDRESSES {
        let oldest = failures_by_ip.iter().min_by_key(|(_, failures)| failures.since).map(|(ip, _)| *ip);
        if let Some(ip) = oldest {
            failures_by_ip.remove(&ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use agenix_protocol::time::Timestamp;

    use super::{AuthGuard, MAX_ADDRESSES};

    fn ip(last: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + last)))
    }

    /// Returns the delays of `count` wrong keys at one moment, in seconds.
    fn delays(guard: &AuthGuard, from: Option<IpAddr>, at_ms: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| guard.wrong_key(from, Timestamp(at_ms)).as_secs()).collect()
    }

    #[test]
    fn auth_guard_doubles_the_delay_after_the_maximum() {
        let guard = AuthGuard::new(5);
        assert_eq!(delays(&guard, ip(1), 0, 12), [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(delays(&guard, ip(2), 0, 1), [0], "another address has its own count");
        assert_eq!(delays(&guard, None, 0, 6), [0, 0, 0, 0, 0, 1], "so have Unix sockets");
        assert_eq!(delays(&AuthGuard::new(0), ip(1), 0, 100), [0; 100], "0 is no limit");
    }

    #[test]
    fn auth_guard_starts_a_new_window_after_a_minute() {
        let guard = AuthGuard::new(2);
        assert_eq!(delays(&guard, ip(1), 0, 2), [0, 0]);
        assert_eq!(delays(&guard, ip(1), 59_999, 1), [1]);
        assert_eq!(delays(&guard, ip(1), 60_000, 3), [0, 0, 2], "who goes on is delayed where it was");
        assert_eq!(delays(&guard, ip(1), 120_000, 2), [0, 0]);
        assert_eq!(delays(&guard, ip(1), 180_000, 3), [0, 0, 1], "a minute without delays forgives");
    }

    #[test]
    fn auth_guard_survives_a_clock_that_is_set_back() {
        let guard = AuthGuard::new(1);
        assert_eq!(delays(&guard, ip(1), 1_000_000, 2), [0, 1]);
        assert_eq!(delays(&guard, ip(1), 0, 1), [2]);
    }

    #[test]
    fn auth_guard_bounds_the_number_of_addresses() {
        let guard = AuthGuard::new(1);
        let many = u32::try_from(MAX_ADDRESSES).unwrap();
        assert_eq!(delays(&guard, ip(0), 0, 1), [0]);
        for n in 1..=many {
            assert_eq!(delays(&guard, ip(n), u64::from(n), 1), [0]);
        }
        assert_eq!(guard.failures_by_ip.lock().unwrap().len(), MAX_ADDRESSES);
        assert_eq!(delays(&guard, ip(0), 20_000, 1), [0], "the oldest made room");
        assert_eq!(delays(&guard, ip(many), 20_000, 1), [1], "the newest did not");
        guard.wrong_key(ip(many + 1), Timestamp(500_000));
        assert_eq!(guard.failures_by_ip.lock().unwrap().len(), 1, "all the others have been quiet for long");
    }
}
