//! CA for one test, and the certificates that it signs.

use e2e::Lab;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

/// A CA with a certificate file in the lab.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Path of the certificate of the CA.
    pub(crate) file: String,
}

/// Paths of a certificate and of its private key.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(lab: &Lab, name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = lab.file(&format!("{name}.pem"), &issuer.pem()).display().to_string();
        Self { issuer, file }
    }

    /// Signs a certificate for these DNS names and IP addresses.
    pub(crate) fn certify(&self, lab: &Lab, name: &str, names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let cert = params(name, names).signed_by(&key, issuer).unwrap();
        let file = |end: &str, text: &str| lab.file(&format!("{name}.{end}"), text).display().to_string();
        Pair { cert: file("crt", &cert.pem()), key: file("key", &key.serialize_pem()) }
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
