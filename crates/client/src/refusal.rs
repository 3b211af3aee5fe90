//! Reason for which agq closes a new connection at once. agq writes the reason before it reads
//! anything.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::address::Address;

/// Maximum wait for the reason.
const SAYS_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of bytes of the reason.
const MAX_BYTES: u64 = 512;

/// Opens another connection without writing to it, and returns the reason that agq sends. After a
/// write to a closed connection, a client could not read the reason. With TLS the result is `None`,
/// because agq sends no reason over TLS.
pub(crate) async fn refusal(address: &Address) -> Option<String> {
    let reason = async {
        match address {
            Address::Tcp { host, port } => {
                first_line(TcpStream::connect((host.as_str(), *port)).await.ok()?).await
            }
            Address::Unix(path) => first_line(UnixStream::connect(path).await.ok()?).await,
            Address::Tls { .. } => None,
        }
    };
    timeout(SAYS_WITHIN, reason).await.ok()?
}

/// Returns the text of an error reply.
async fn first_line(stream: impl AsyncRead + Unpin) -> Option<String> {
    let mut bytes = Vec::new();
    // A connection reset does not discard the bytes that were read before.
    let _ended = stream.take(MAX_BYTES).read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next()?.strip_prefix('-')?;
    Some(line.strip_prefix("ERR ").unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{Address, refusal};

    #[tokio::test]
    async fn refusal_reads_the_reason_before_the_connection_closes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agq");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            for words in ["-ERR Too many connections from ::1: max 2\r\n", ""] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(words.as_bytes()).unwrap();
            }
        });
        let address = Address::Unix(path);
        assert_eq!(refusal(&address).await.as_deref(), Some("Too many connections from ::1: max 2"));
        assert_eq!(refusal(&address).await, None);
        thread.join().unwrap();
        assert_eq!(refusal(&Address::Unix(dir.path().join("nobody"))).await, None);
    }
}
