//! Choice of TCP ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::ops::Range;

/// Ports below those that Linux, macOS and IANA give to the local ends of connections. A connection
/// cannot take such a port while its server starts, or while the server is away.
const LISTENING: Range<u16> = 20_000..32_768;

/// Returns a port of the loopback on which nothing listens.
pub(crate) fn unused_port() -> u16 {
    loop {
        let port = fastrand::u16(LISTENING);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
