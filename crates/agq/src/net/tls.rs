//! TLS 1.3 for TCP listeners. With a CA for clients, every client has to present a certificate; the
//! keyring maps the certificate to an identity.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use agenix_protocol::time::Timestamp;
use anyhow::{Context, bail};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::warn;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::settings::TlsFiles;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Certificates and settings for TLS handshakes. `reload` replaces the certificates while
/// connections arrive.
pub(crate) struct TlsAcceptance {
    files: TlsFiles,
    acceptor: RwLock<TlsAcceptor>,
}

impl TlsAcceptance {
    pub(crate) fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let acceptor = RwLock::new(acceptor(&files)?);
        Ok(Self { files, acceptor })
    }

    /// Keeps the previous certificates after an error.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let fresh = acceptor(&self.files)?;
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Returns the stream with the DNS names of the verified client certificate, if there is one.
    pub(crate) async fn handshake(
        &self,
        socket: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Vec<String>)> {
        let acceptor = self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await??;
        let names = certificate_names(&stream);
        Ok((stream, names))
    }
}

fn certificate_names(stream: &TlsStream<TcpStream>) -> Vec<String> {
    let (_, tls) = stream.get_ref();
    let shown = tls.peer_certificates().and_then(|chain| chain.first());
    let parsed = shown.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
    parsed.map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}

fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .context("cannot set up TLS 1.3")?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let shown = path.display();
            let mut roots = RootCertStore::empty();
            for ca in certificates(path)? {
                roots.add(ca).with_context(|| format!("a certificate in {shown} is not a CA certificate"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .with_context(|| format!("clients cannot be verified by {shown}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = (certificates(&files.cert)?, private_key(&files.key)?);
    warn_of_refused(&files.cert, &chain);
    let config = builder.with_single_cert(chain, key).with_context(|| {
        let (cert, key) = (files.cert.display(), files.key.display());
        format!("the certificate in {cert} and the private key in {key} do not match")
    })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Warns of certificates that clients, agx and agw among them, refuse.
fn warn_of_refused(path: &Path, chain: &[CertificateDer<'static>]) {
    for fault in faults(chain, UnixTime::now()) {
        warn!("the certificate in {} {fault}", path.display());
    }
}

/// Returns the faults of the certificates of a server at `now`, of which the first is its own.
fn faults(chain: &[CertificateDer<'_>], now: UnixTime) -> Vec<String> {
    let shown = |time: UnixTime| Timestamp(time.as_secs().saturating_mul(1000));
    let fault = |(place, certificate): (usize, &CertificateDer<'_>)| match error_at(certificate, now)? {
        webpki::Error::CaUsedAsEndEntity if place == 0 => Some(
            "is that of a CA (CA:TRUE), which agx and agw refuse: make it with \
             `-addext basicConstraints=critical,CA:FALSE`, as docs/security.md shows"
                .to_owned(),
        ),
        webpki::Error::CertExpired { not_after, .. } => Some(format!(
            "expired at {}, so clients refuse it: replace the file, and send SIGHUP",
            shown(not_after)
        )),
        webpki::Error::CertNotValidYet { not_before, .. } => Some(format!(
            "is not valid before {}, so clients refuse it: check the file, and the clock of this machine",
            shown(not_before)
        )),
        _ => None,
    };
    chain.iter().enumerate().filter_map(fault).collect()
}

/// Returns the error of a certificate as that of a server at `now`: that of its validity before
/// that of its use (RFC 5280 §4.2.1.9), and these before errors of its issuer.
fn error_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<webpki::Error> {
    let (Ok(entity), Ok(anchor)) =
        (EndEntityCert::try_from(certificate), anchor_from_trusted_cert(certificate))
    else {
        return None;
    };
    let (algorithms, usage, anchors) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::server_auth(), [anchor]);
    let verified = entity.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None);
    verified.err()
}

/// Reads a PEM file, without the byte order mark that editors on Windows put before it.
fn read_pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let unreadable = || format!("cannot read the certificates in {shown}: give a PEM file");
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read_pem(path).with_context(unreadable)?)
        .collect::<Result<_, _>>()
        .with_context(unreadable)?;
    if found.is_empty() {
        bail!(
            "there is no certificate in {shown}: give a PEM file that begins with -----BEGIN CERTIFICATE-----"
        );
    }
    Ok(found)
}

fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let shown = path.display();
    let unreadable = || format!("cannot read the private key in {shown}: give a PEM file");
    let pem = read_pem(path).with_context(unreadable)?;
    let text = String::from_utf8_lossy(&pem);
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED") {
        bail!(
            "the private key in {shown} is encrypted, and agq does not ask for a passphrase: give the key that \
             `openssl pkey -in {shown} -out KEY.pem` writes"
        );
    }
    PrivateKeyDer::from_pem_slice(&pem).with_context(unreadable)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::{TlsAcceptance, certificates, faults, private_key};
    use crate::settings::TlsFiles;

    #[test]
    fn tls_errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, empty) = (dir.path().join("missing.pem"), dir.path().join("empty.pem"));
        std::fs::write(&empty, "").unwrap();
        let open = |cert: &std::path::Path, client_ca: Option<&std::path::Path>| {
            let files = TlsFiles {
                cert: cert.to_owned(),
                key: missing.clone(),
                client_ca: client_ca.map(std::path::Path::to_owned),
            };
            format!("{:#}", TlsAcceptance::open(files).err().unwrap())
        };
        assert!(open(&missing, None).contains("cannot read the certificates in"), "{}", open(&missing, None));
        assert!(open(&empty, None).contains("there is no certificate in"), "{}", open(&empty, None));
        assert!(open(&missing, Some(&empty)).contains("empty.pem"), "the CA is looked at, too");
    }

    /// Runs openssl with `args` in `dir`, and fails the test if openssl fails.
    fn openssl(dir: &std::path::Path, args: &[&str]) {
        let run = std::process::Command::new("openssl").args(args).current_dir(dir).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }

    #[test]
    fn tls_names_certificates_that_clients_refuse() {
        let dir = tempfile::tempdir().unwrap();
        let make = |file: &str, more: &[&str]| {
            let usual = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", file];
            openssl(dir.path(), &[&usual[..], &["-days", "1", "-subj", "/CN=x"], more].concat());
            certificates(&dir.path().join(file)).unwrap()
        };
        let of_ca = make("usual.pem", &[]);
        let server = make("server.pem", &["-addext", "basicConstraints=critical,CA:FALSE"]);
        let now = UnixTime::now();
        let found = faults(&of_ca, now);
        assert!(found.len() == 1 && found[0].starts_with("is that of a CA (CA:TRUE)"), "{found:?}");
        assert_eq!(faults(&server, now), Vec::<String>::new());
        let chain = [server, of_ca].concat();
        assert_eq!(faults(&chain, now), Vec::<String>::new(), "a CA may follow");
        let two_days = Duration::from_secs(now.as_secs() + 2 * 86_400);
        for (time, words) in [(two_days, "expired at 20"), (Duration::ZERO, "is not valid before 20")] {
            let found = faults(&chain, UnixTime::since_unix_epoch(time));
            assert!(found.len() == 2 && found.iter().all(|fault| fault.starts_with(words)), "{found:?}");
        }
    }

    #[test]
    fn tls_reads_keys_as_editors_and_openssl_write_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |file: &str| dir.path().join(file);
        openssl(dir.path(), &["ecparam", "-genkey", "-name", "prime256v1", "-out", "ec.pem"]);
        assert!(private_key(&at("ec.pem")).is_ok(), "EC PARAMETERS come first");
        let plain = std::fs::read_to_string(at("ec.pem")).unwrap();
        std::fs::write(at("windows.pem"), format!("\u{feff}{}", plain.replace('\n', "\r\n"))).unwrap();
        assert!(private_key(&at("windows.pem")).is_ok());
        openssl(dir.path(), &["pkcs8", "-topk8", "-in", "ec.pem", "-passout", "pass:x", "-out", "pkcs8.pem"]);
        openssl(dir.path(), &["ec", "-aes128", "-passout", "pass:x", "-in", "ec.pem", "-out", "sec1.pem"]);
        for file in ["pkcs8.pem", "sec1.pem"] {
            let error = private_key(&at(file)).unwrap_err().to_string();
            assert!(error.contains("is encrypted, and agq does not ask for a passphrase"), "{error}");
        }
    }
}
