//! Addresses of agq in their textual form, and the certificates for TLS.

use std::{fmt, path::PathBuf};

use agenix_protocol::byte_escape::{decode_os, encode_os};
use redis::{ClientTlsConfig, TlsCertificates};

use crate::tls::{check_pair, pem};

/// Default port, for URLs without a port.
const DEFAULT_PORT: u16 = 6380;
/// Maximum number of addresses in a list.
const MAX_ADDRESSES: usize = 64;

/// Address of an agq.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Address {
    /// `HOST:PORT` or `redis://HOST:PORT`. The host is a name or an address without brackets.
    Tcp { host: String, port: u16 },
    /// `rediss://HOST:PORT`. The server's certificate must be valid for the host.
    Tls { host: String, port: u16 },
    /// `unix:/PATH` or `unix:///PATH`. The text has byte escapes for bytes that are not UTF-8.
    Unix(PathBuf),
}

impl Address {
    /// Parses an address. The error describes the valid forms. An `@` outside the path of a Unix
    /// socket is an error, because an address must not hold a key.
    ///
    /// # Examples
    ///
    /// ```
    /// use agenix_client::Address;
    ///
    /// let address = Address::parse("rediss://agq.example").unwrap();
    /// assert_eq!(address.to_string(), "rediss://agq.example:6380");
    /// assert!(Address::parse("agq.example").is_err(), "a plain address needs a port");
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not an address: write host:port, as 127.0.0.1:6380, or rediss://host:port for TLS, or \
                 unix:/path"
            )
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let is_path = path.starts_with('/') && path.len() > 1;
            return if is_path { Ok(Self::Unix(decode_os(path).into())) } else { Err(wrong()) };
        }
        if text.contains('@') {
            // The text before the `@` may be a key, so the message does not quote the address.
            return Err("an address holds no key: set AGQ_SESSION_KEY or --session-key-file instead".into());
        }
        if let Some(rest) = text.strip_prefix("rediss://") {
            let (host, port) =
                host_and_port(rest.trim_end_matches('/'), Some(DEFAULT_PORT)).ok_or_else(wrong)?;
            return Ok(Self::Tls { host, port });
        }
        let (rest, default) = match text.strip_prefix("redis://") {
            Some(rest) => (rest.trim_end_matches('/'), Some(DEFAULT_PORT)),
            None => (text, None),
        };
        let (host, port) = host_and_port(rest, default).ok_or_else(wrong)?;
        Ok(Self::Tcp { host, port })
    }

    /// Parses one address, or at most 64 with commas between them: nodes that share a database.
    /// A comma in the path of a Unix socket ends the path only if an address follows.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let addresses: Vec<Self> =
            parts(text).into_iter().map(|one| Self::parse(one.trim())).collect::<Result<_, _>>()?;
        if addresses.len() > MAX_ADDRESSES {
            return Err(format!("{} addresses are given, at most {MAX_ADDRESSES}", addresses.len()));
        }
        Ok(addresses)
    }

    /// Returns true if the connection is encrypted and authenticates the server.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Tcp { host, port } => ("", host, port),
            Self::Tls { host, port } => ("rediss://", host, port),
            Self::Unix(path) => return write!(f, "unix:{}", encode_os(path.as_os_str())),
        };
        if host.contains(':') {
            write!(f, "{scheme}[{host}]:{port}")
        } else {
            write!(f, "{scheme}{host}:{port}")
        }
    }
}

/// Splits a list of addresses at its commas, except at those in the paths of Unix sockets.
fn parts(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = list;
    while let Some(comma) = separator(rest) {
        parts.push(&rest[..comma]);
        rest = &rest[comma + 1..];
    }
    parts.push(rest);
    parts
}

/// Returns the position of the comma that ends the first address of a list.
fn separator(list: &str) -> Option<usize> {
    let is_path = list.trim_start().starts_with("unix:");
    let mut commas = list.match_indices(',').map(|(comma, _)| comma);
    commas.find(|comma| !is_path || is_next_address(&list[comma + 1..]))
}

/// Returns true if `text`, which follows a comma, is blank or begins with an address. An address
/// with a key counts as well, because a message would show the key in a path.
fn is_next_address(text: &str) -> bool {
    let first = text.split(',').next().unwrap_or_default().trim();
    let is_url = ["unix:", "redis://", "rediss://"].iter().any(|scheme| first.starts_with(scheme));
    let host = first.rsplit_once('@').map_or(first, |(_, host)| host);
    text.trim().is_empty() || is_url || host_and_port(host, None).is_some()
}

/// Parses `HOST:PORT` or `[V6]:PORT`, and, with a default port, a host alone.
fn host_and_port(text: &str, default: Option<u16>) -> Option<(String, u16)> {
    let is_bracketed = text.starts_with('[') && text.ends_with(']');
    let (host, port) = match text.rsplit_once(':').filter(|_| !is_bracketed) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, default?),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    (!host.is_empty() && host.chars().all(is_legal)).then(|| (host.to_owned(), port))
}

/// Certificates for TLS, in PEM files that are read for each connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// CAs of the server's certificate; without this field, the CAs of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate, if agq requires one. The certificate needs `key` as well.
    pub cert: Option<PathBuf>,
    /// Private key of `cert`.
    pub key: Option<PathBuf>,
}

impl Tls {
    /// Returns true if no file is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<TlsCertificates, String> {
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let (client_cert, client_key) = (pem("certificate", cert)?, pem("private key", key)?);
                check_pair((cert, &client_cert), (key, &client_key))?;
                Some(ClientTlsConfig { client_cert, client_key })
            }
            (None, None) => None,
            (Some(_), None) => return Err("a certificate needs its private key: give --tls-key, too".into()),
            (None, Some(_)) => return Err("a private key needs its certificate: give --tls-cert, too".into()),
        };
        let root_cert = self.ca.as_deref().map(|ca| pem("CA certificate", ca)).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Tls};

    #[test]
    fn addresses_parse_in_every_form() {
        for (text, shown) in [
            ("localhost:6380", "localhost:6380"),
            ("redis://agq.example:1", "agq.example:1"),
            ("redis://agq.example", "agq.example:6380"),
            ("rediss://agq.example:6380/", "rediss://agq.example:6380"),
            ("rediss://agq.example", "rediss://agq.example:6380"),
            ("[::1]:6380", "[::1]:6380"),
            ("rediss://[::1]", "rediss://[::1]:6380"),
            ("unix:/run/agq.sock", "unix:/run/agq.sock"),
            ("unix:///run/agq.sock", "unix:/run/agq.sock"),
            ("unix:/users/jane@corp.example/agq.sock", "unix:/users/jane@corp.example/agq.sock"),
            ("unix:/tmp/a,b/agq.sock", "unix:/tmp/a,b/agq.sock"),
            ("unix:/tmp/caf\u{10fee9}/agq.sock", "unix:/tmp/caf\u{10fee9}/agq.sock"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(Address::parse(shown).unwrap(), address, "what is shown can be said again");
            assert_eq!(address.is_tls(), shown.starts_with("rediss"), "{text}");
        }
    }

    #[test]
    fn socket_paths_have_any_bytes() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

        let path = std::path::PathBuf::from(OsStr::from_bytes(b"/tmp/caf\xe9/agq.sock"));
        let address = Address::Unix(path);
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }

    #[test]
    fn invalid_addresses_are_refused_without_showing_a_key() {
        for wrong in [
            "localhost",
            ":6380",
            "h:x",
            "h:65536",
            "",
            "http://h:1",
            "unix:",
            "unix:rel",
            "unix://",
            "a b:1",
        ] {
            assert!(Address::parse(wrong).unwrap_err().contains("write host:port"), "{wrong}");
        }
        assert!(Address::parse("h:65535").is_ok());
        let keyed = Address::parse("redis://:secret@h:1").unwrap_err();
        assert!(keyed.contains("holds no key") && !keyed.contains("secret"), "{keyed}");
    }

    #[test]
    fn tls_errors_name_the_missing_half_and_invalid_pem_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.pem");
        std::fs::write(&file, "nothing").unwrap();
        let error = |tls: Tls| tls.read().unwrap_err();
        assert!(error(Tls { cert: Some(file.clone()), ..Tls::default() }).contains("--tls-key"));
        assert!(error(Tls { key: Some(file.clone()), ..Tls::default() }).contains("--tls-cert"));
        assert!(error(Tls { ca: Some(file), ..Tls::default() }).contains("there is no CA certificate in"));
        let missing = Tls { ca: Some(dir.path().join("missing")), ..Tls::default() };
        assert!(error(missing).contains("cannot read the CA certificate in"));
        assert!(Tls::default().is_default() && Tls::default().read().is_ok());
    }

    fn shown(list: &str) -> Result<Vec<String>, String> {
        Ok(Address::parse_all(list)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn address_lists_are_separated_by_commas_and_bounded() {
        assert_eq!(shown("a:1, rediss://b,unix:/s").unwrap(), ["a:1", "rediss://b:6380", "unix:/s"]);
        assert!(shown("a:1,").unwrap_err().contains("'' is not an address"));
        let many = |count| vec!["a:1"; count].join(",");
        assert_eq!(shown(&many(64)).unwrap().len(), 64);
        assert!(shown(&many(65)).unwrap_err().contains("at most 64"));
    }

    #[test]
    fn address_lists_keep_commas_and_at_signs_in_paths_of_sockets() {
        for path in ["/users/jane@corp.example/agq.sock", "/a,b@c:1/s", "/a,,b/s", "/a, b/s", "/a,s"] {
            let text = format!("unix:{path}");
            let socket = text.as_str();
            assert_eq!(shown(socket).unwrap(), [socket]);
            let list = format!("{socket}, b:1,{socket},rediss://c , {socket}");
            assert_eq!(shown(&list).unwrap(), [socket, "b:1", socket, "rediss://c:6380", socket]);
        }
        assert!(shown("unix:/s, ").unwrap_err().contains("'' is not an address"));
        for keyed in ["unix:/s,redis://:secret@h:1", "unix:/s,b,secret@h:1", "unix:/s,se@cret@h:1,c:1"] {
            let error = shown(keyed).unwrap_err();
            assert!(error.contains("holds no key") && !error.contains("cret"), "{error}");
        }
    }
}
