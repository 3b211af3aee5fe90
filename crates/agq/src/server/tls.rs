//! TLS at the TCP door: 1.3 and nothing older. With a CA for clients, everyone shows a certificate; whom it stands for is
//! the keyring's business.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context, bail};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use webpki::EndEntityCert;

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Where the certificates are; all are PEM files.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    /// Our certificate, and those between it and its CA.
    pub(crate) cert: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// The CAs of clients. With it, who has no certificate of theirs gets no further than the handshake.
    pub(crate) client_ca: Option<PathBuf>,
}

/// What a TLS handshake needs. Its files can be read again while connections come in.
pub(crate) struct TlsDoor {
    files: TlsFiles,
    acceptor: RwLock<TlsAcceptor>,
}

impl TlsDoor {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let acceptor = RwLock::new(acceptor(&files)?);
        Ok(Self { files, acceptor })
    }

    /// Reads the files again. When something is wrong with them, what was read before stays.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let fresh = acceptor(&self.files)?;
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Makes a TLS connection of a TCP one. The names are the DNS names of the client's certificate, which is verified;
    /// none where it was not asked for one.
    pub(super) async fn shake_hands(
        &self,
        socket: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Vec<String>)> {
        let acceptor = self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = timeout(HANDSHAKE_WITHIN, acceptor.accept(socket)).await??;
        let names = names_of(&stream);
        Ok((stream, names))
    }
}

/// The DNS names in the certificate that a client showed.
fn names_of(stream: &TlsStream<TcpStream>) -> Vec<String> {
    let (_, tls) = stream.get_ref();
    let shown = tls.peer_certificates().and_then(|chain| chain.first());
    let parsed = shown.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
    parsed.map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}

fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .context("TLS 1.3 cannot be spoken")?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let shown = path.display();
            let mut roots = RootCertStore::empty();
            for ca in certificates(path)? {
                roots.add(ca).with_context(|| format!("a certificate in {shown} is no CA's"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .with_context(|| format!("clients cannot be verified by {shown}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = (certificates(&files.cert)?, private_key(&files.key)?);
    let config = builder.with_single_cert(chain, key).with_context(|| {
        let (cert, key) = (files.cert.display(), files.key.display());
        format!("the certificate in {cert} and the private key in {key} do not go together")
    })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let unreadable = || format!("cannot read the certificates in {shown}: give a PEM file");
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .with_context(unreadable)?
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
    PrivateKeyDer::from_pem_file(path)
        .with_context(|| format!("cannot read the private key in {}: give a PEM file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{TlsDoor, TlsFiles};

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, empty) = (dir.path().join("missing.pem"), dir.path().join("empty.pem"));
        std::fs::write(&empty, "").unwrap();
        let open = |cert: &std::path::Path, client_ca: Option<&std::path::Path>| {
            let files = TlsFiles {
                cert: cert.to_owned(),
                key: missing.clone(),
                client_ca: client_ca.map(std::path::Path::to_owned),
            };
            format!("{:#}", TlsDoor::open(files).err().unwrap())
        };
        assert!(open(&missing, None).contains("cannot read the certificates in"), "{}", open(&missing, None));
        assert!(open(&empty, None).contains("there is no certificate in"), "{}", open(&empty, None));
        assert!(open(&missing, Some(&empty)).contains("empty.pem"), "the CA is looked at, too");
    }
}
