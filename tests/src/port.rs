//! Choice of TCP ports for servers that cannot choose one themselves.

use std::{
    fs::{self, File},
    net::TcpListener,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rustix::process::geteuid;

/// Ports below those that Linux, macOS and IANA give to the local ends of connections. A connection
/// cannot take such a port while its server starts, or while the server is away.
const LISTENING: Range<u16> = 20_000..32_768;

/// Locks of the chosen ports, until the end of this process.
static CHOSEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Returns a port of the loopback on which nothing listens, and which no other test chooses before
/// the end of this process.
pub(crate) fn unused_port() -> u16 {
    loop {
        let port = fastrand::u16(LISTENING);
        let Some(lock) = lock(port) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return port;
        }
    }
}

/// Locks the file of a port. Returns `None` if a test has the port.
fn lock(port: u16) -> Option<File> {
    let directory = std::env::temp_dir().join(format!("agenix-test-ports-{}", geteuid().as_raw()));
    fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let file = File::create(directory.join(port.to_string())).expect("the directory of ports is writable");
    file.try_lock().is_ok().then_some(file)
}
