//! Errors in certificates and private keys, with advice.

use std::{error::Error, io, path::Path, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, InconsistentKeys,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

/// Byte order mark that some editors and shells put before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reason for which TLS with agq fails, with advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsProblem {
    pub(crate) reason: String,
    pub(crate) help: &'static str,
}

/// Reason for which a client does not accept TLS with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsDefect {
    /// Kind of the defect.
    pub kind: TlsDefectKind,
    /// Reason, as a sentence that names the server.
    pub reason: String,
}

/// Kind of a [`TlsDefect`], on which the advice depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsDefectKind {
    /// The server does not use TLS.
    NoTls,
    /// The certificate has expired, or is not valid yet.
    Time,
    /// The certificate is of a CA that is not trusted.
    UnknownIssuer,
    /// The certificate is for another name.
    OtherName,
    /// The certificate is that of a CA.
    Authority,
    /// The certificate has another defect.
    Certificate,
    /// The handshake fails for another reason.
    Handshake,
}

/// Returns the TLS error in `error`, if there is one.
pub(crate) fn problem(error: &redis::RedisError) -> Option<TlsProblem> {
    // The Redis client wraps the error of the system, which wraps the error of TLS.
    let kept = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let error = tls_error(kept.downcast_ref::<io::Error>()?)?;
    let (reason, help) = match error {
        rustls::Error::AlertReceived(alert) => of_our_certificate(*alert),
        error => {
            let defect = defect("agq", error);
            (defect.reason, help(defect.kind))
        }
    };
    Some(TlsProblem { reason, help })
}

/// Returns the defect if `error` is one of TLS. `server` names the server, as "agq".
pub fn tls_defect(server: &str, error: &io::Error) -> Option<TlsDefect> {
    tls_error(error).map(|error| defect(server, error))
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn defect(server: &str, error: &rustls::Error) -> TlsDefect {
    let (kind, reason) = match error {
        rustls::Error::InvalidCertificate(error) => of_their_certificate(server, error),
        rustls::Error::InvalidMessage(_) => {
            (TlsDefectKind::NoTls, "the server at this address does not use TLS".to_owned())
        }
        other => (TlsDefectKind::Handshake, other.to_string()),
    };
    TlsDefect { kind, reason }
}

fn of_their_certificate(server: &str, error: &CertificateError) -> (TlsDefectKind, String) {
    let (kind, reason) = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (TlsDefectKind::Time, "has expired".to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (TlsDefectKind::Time, "is not valid yet".to_owned())
        }
        CertificateError::UnknownIssuer => {
            (TlsDefectKind::UnknownIssuer, "is of a CA that is not trusted here".to_owned())
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (TlsDefectKind::OtherName, format!("is for another name: {error}"))
        }
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            (TlsDefectKind::Authority, "is that of a CA (CA:TRUE), which no server may show".to_owned())
        }
        other => (TlsDefectKind::Certificate, format!("is not accepted: {other}")),
    };
    (kind, format!("{server}'s certificate {reason}"))
}

/// Returns the advice about a defect of TLS with agq.
fn help(kind: TlsDefectKind) -> &'static str {
    match kind {
        TlsDefectKind::NoTls => "without TLS an address is HOST:PORT, not rediss://HOST:PORT",
        TlsDefectKind::Time => {
            "renew it where agq runs (--tls-cert), and compare the clocks of both machines"
        }
        TlsDefectKind::UnknownIssuer => {
            "name the file with the certificate of that CA with --tls-ca or AGQ_CA"
        }
        TlsDefectKind::OtherName => {
            "use a name of the certificate in the address, or make a certificate with this name among its subjectAltNames"
        }
        TlsDefectKind::Authority => {
            "make another one where agq runs: `openssl req -x509` needs -addext basicConstraints=critical,CA:FALSE"
        }
        TlsDefectKind::Certificate => "look at it with `openssl x509 -noout -text -in FILE` where agq runs",
        TlsDefectKind::Handshake => "look at the certificates on both sides, and at agq's log",
    }
}

fn of_our_certificate(alert: AlertDescription) -> (String, &'static str) {
    match alert {
        AlertDescription::CertificateRequired => (
            "agq asks for a client's certificate".into(),
            "name one, and its private key, with --tls-cert and --tls-key",
        ),
        AlertDescription::CertificateExpired => (
            "agq says that the client's certificate has expired".into(),
            "renew the one of --tls-cert, and compare the clocks of both machines",
        ),
        AlertDescription::UnknownCA => (
            "agq does not know the CA of the client's certificate".into(),
            "use a certificate (--tls-cert) of the CA that agq has as --tls-client-ca",
        ),
        alert => (
            format!("agq ended the TLS handshake: {alert:?}"),
            "look at the client's certificate (--tls-cert), and at agq's log",
        ),
    }
}

/// Reads a PEM file. The error names the defect of the file.
pub(crate) fn pem(content: &str, path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let text =
        std::fs::read(path).map_err(|error| format!("cannot read the {content} in {shown}: {error}"))?;
    let text = text.strip_prefix(BOM).map_or(text.clone(), <[u8]>::to_vec);
    if !contains(&text, b"-----BEGIN ") {
        return Err(format!("there is no {content} in {shown}: give a PEM file"));
    }
    Ok(text)
}

/// Checks that `key` is the private key of the certificate in `cert`.
pub(crate) fn check_pair(cert: (&Path, &[u8]), key: (&Path, &[u8])) -> Result<(), String> {
    let (cert_file, key_file) = (cert.0.display(), key.0.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert.1)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("cannot read the certificate in {cert_file}: {error}"))?;
    if chain.is_empty() {
        return Err(format!(
            "there is no certificate in {cert_file}: it begins with -----BEGIN CERTIFICATE-----"
        ));
    }
    if contains(key.1, b"ENCRYPTED") {
        return Err(format!(
            "the private key in {key_file} is encrypted: `openssl pkey -in {key_file} -out FILE` writes it without a password"
        ));
    }
    let parsed = PrivateKeyDer::from_pem_slice(key.1)
        .map_err(|error| format!("cannot read the private key in {key_file}: {error}"))?;
    let signing = any_supported_type(&parsed).map_err(|_| {
        format!("the private key in {key_file} is of a kind that cannot be used: P-256, P-384, Ed25519 and RSA can, P-521 cannot")
    })?;
    match CertifiedKey::new(chain, signing).keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(format!("the private key in {key_file} is not that of the certificate in {cert_file}"))
        }
        // The handshake reports any other error.
        _ => Ok(()),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::OtherError;

    use super::*;

    fn problem_of(error: rustls::Error) -> TlsProblem {
        problem(&redis::RedisError::from(io::Error::new(io::ErrorKind::InvalidData, error))).unwrap()
    }

    #[test]
    fn tls_problems_name_the_defect_of_the_certificate() {
        let of = |error: CertificateError| problem_of(rustls::Error::InvalidCertificate(error));
        let ca = of(CertificateError::Other(OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity))));
        assert!(ca.reason.contains("CA:TRUE") && ca.help.contains("basicConstraints=critical,CA:FALSE"));
        assert!(of(CertificateError::Expired).reason.contains("has expired"));
        assert!(of(CertificateError::UnknownIssuer).help.contains("--tls-ca"));
        assert!(of(CertificateError::NotValidForName).reason.contains("another name"));
        let alert = |alert| problem_of(rustls::Error::AlertReceived(alert));
        assert!(alert(AlertDescription::CertificateRequired).help.contains("--tls-cert and --tls-key"));
        assert!(
            alert(AlertDescription::CertificateExpired).reason.contains("client's certificate has expired")
        );
        assert!(alert(AlertDescription::UnknownCA).help.contains("--tls-client-ca"));
        assert_eq!(problem(&redis::RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))), None);
    }

    #[test]
    fn tls_defects_name_the_server() {
        let of = |error: rustls::Error| {
            let defect = tls_defect("host:1", &io::Error::new(io::ErrorKind::InvalidData, error)).unwrap();
            (defect.kind, defect.reason)
        };
        let unknown = of(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let reason = "host:1's certificate is of a CA that is not trusted here".to_owned();
        assert_eq!(unknown, (TlsDefectKind::UnknownIssuer, reason));
        let plain = of(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert_eq!(plain.0, TlsDefectKind::NoTls);
        assert_eq!(tls_defect("host:1", &io::ErrorKind::BrokenPipe.into()), None);
    }

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    #[test]
    fn tls_problems_name_the_defect_of_the_key() {
        let ((cert, key), (_, other)) = (pair(), pair());
        let check = |cert: &str, key: &str| {
            check_pair((Path::new("c.pem"), cert.as_bytes()), (Path::new("k.pem"), key.as_bytes()))
        };
        assert_eq!(check(&cert, &key), Ok(()));
        let error = |cert: &str, key: &str| check(cert, key).unwrap_err();
        assert_eq!(error(&cert, &other), "the private key in k.pem is not that of the certificate in c.pem");
        assert!(error(&key, &key).contains("there is no certificate in c.pem"));
        let sealed = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(error(&cert, sealed).contains("is encrypted"));
        let sealed =
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIB\n-----END EC PRIVATE KEY-----\n";
        assert!(error(&cert, sealed).contains("is encrypted"));
        // This key has the algorithm of P-521 and no other content.
        let p521 =
            "-----BEGIN PRIVATE KEY-----\nMBkCAQAwEAYHKoZIzj0CAQYFK4EEACMEAgAA\n-----END PRIVATE KEY-----\n";
        assert!(error(&cert, p521).contains("P-521 cannot"));
    }

    #[test]
    fn pem_files_may_begin_with_a_byte_order_mark() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cert.pem");
        std::fs::write(&file, format!("\u{feff}{}", pair().0)).unwrap();
        assert!(pem("certificate", &file).unwrap().starts_with(b"-----BEGIN CERTIFICATE-----"));
    }
}
