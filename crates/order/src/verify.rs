//! Verification: who has signed an order, and whether a worker may run it now.

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::time::Timestamp;

use crate::{
    digest::sha256,
    dsse::{Envelope, SignatureKind},
    error::Unacceptable,
    inputs::InputBounds,
    order::Order,
    trust::{Grant, TrustFile},
};

/// Order whose signatures were checked, and whose terms are checked for each attempt.
#[derive(Debug, Clone)]
pub struct Opened {
    order: Arc<Order>,
    digest: Arc<str>,
    /// Names of the signers whose rights the plan has, without those of revoked keys.
    authors: BTreeSet<String>,
    /// Names of the signers who approve, without those of revoked keys.
    approvers: BTreeSet<String>,
}

/// Order that a worker may run now.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Plan and terms, from the signed bytes.
    pub order: Arc<Order>,
    /// SHA-256 of the signed bytes, as `sha256:…`.
    pub digest: Arc<str>,
    /// Names of the signers whose rights the plan has.
    pub signers: Vec<String>,
    /// Names of the signers who only approve.
    pub approvers: Vec<String>,
    /// Rights of the plan: those of the first signer with full trust, else of the first signer.
    pub grant: Grant,
    /// Bounds that the inputs need.
    pub inputs: InputBounds,
}

/// Checks the signatures of an envelope, and returns its order.
///
/// # Errors
///
/// Returns [`Unacceptable`] for bytes that are not an order, and without a signature of a key that
/// the trust file has and does not revoke.
pub fn open(envelope: &str, trust: &TrustFile) -> Result<Opened, Unacceptable> {
    let envelope = Envelope::parse(envelope.as_bytes())?;
    let (mut authors, mut approvers, mut revoked) = (BTreeSet::new(), BTreeSet::new(), None);
    for signature in &envelope.signatures {
        match envelope.signer(signature, &trust.keys) {
            Some((signer, _)) if trust.is_revoked_key(&signer.key) => revoked = Some(signer.name.clone()),
            Some((signer, SignatureKind::Order)) => drop(authors.insert(signer.name.clone())),
            Some((signer, SignatureKind::Approval)) => drop(approvers.insert(signer.name.clone())),
            None => {}
        }
    }
    if authors.is_empty() {
        return Err(match (revoked, approvers.is_empty()) {
            (Some(name), _) => Unacceptable::RevokedKey(name),
            (None, false) => Unacceptable::OnlyApproved(joined(&approvers)),
            (None, true) => Unacceptable::Untrusted(envelope.hints()),
        });
    }
    // Unsigned bytes are not read.
    let (order, digest) = (Arc::new(envelope.order()?), sha256(&envelope.payload).into());
    Ok(Opened { order, digest, authors, approvers })
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl Opened {
    /// Returns the order, whose terms may not hold.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Checks the terms for a worker in `cluster` at the time `now`.
    ///
    /// # Errors
    ///
    /// Returns [`Unacceptable`] with the first term that does not hold.
    pub fn verified(
        &self,
        trust: &TrustFile,
        cluster: &str,
        now: Timestamp,
    ) -> Result<Verified, Unacceptable> {
        let terms = &self.order.terms;
        if !terms.clusters.iter().any(|name| name == cluster) {
            let (clusters, cluster) = (terms.clusters.clone(), cluster.to_owned());
            return Err(Unacceptable::OtherCluster { clusters, cluster });
        }
        if let Some(not_before) = terms.not_before.filter(|not_before| now < *not_before) {
            return Err(Unacceptable::Early { not_before, now });
        }
        if now >= terms.not_after {
            return Err(Unacceptable::Expired { not_after: terms.not_after, now });
        }
        if trust.is_revoked_serial(&terms.serial) {
            return Err(Unacceptable::RevokedSerial(terms.serial.clone()));
        }
        let (grant, inputs) = self.rights(trust, now)?;
        let (signers, approvers) = (self.authors.iter().cloned(), self.approvers.iter().cloned());
        let (signers, approvers) = (signers.collect(), approvers.collect());
        let (order, digest) = (Arc::clone(&self.order), Arc::clone(&self.digest));
        Ok(Verified { order, digest, signers, approvers, grant, inputs })
    }

    /// Returns the rights of the first signer with full trust, else of the first signer by name.
    /// Rights of several signers are not added up.
    fn rights(&self, trust: &TrustFile, now: Timestamp) -> Result<(Grant, InputBounds), Unacceptable> {
        let is_valid = |name: &str| {
            let signer = trust.signer(name);
            signer.is_some_and(|signer| signer.not_after.is_none_or(|not_after| now < not_after))
        };
        let mut best: Option<(Grant, InputBounds)> = None;
        let mut missing = None;
        for name in &self.authors {
            let Some(signer) = trust.signer(name) else { continue };
            if let Some(not_after) = signer.not_after.filter(|_| !is_valid(name)) {
                missing = Some(Unacceptable::ExpiredSigner { signer: name.clone(), not_after });
                continue;
            }
            let approved =
                signer.approvers.intersection(&self.approvers).filter(|name| is_valid(name)).count();
            if approved < signer.approvals {
                let (signer, needed) = (name.clone(), signer.approvals);
                missing = Some(Unacceptable::Approvals { signer, needed, present: approved });
                continue;
            }
            if best.is_none() || (signer.grant == Grant::Full && !matches!(best, Some((Grant::Full, _)))) {
                best = Some((signer.grant.clone(), signer.inputs));
            }
        }
        best.ok_or_else(|| missing.unwrap_or_else(|| Unacceptable::Untrusted("no name".into())))
    }
}

/// Checks the signatures and the terms of an order for a worker in `cluster` at the time `now`.
///
/// # Errors
///
/// Returns the reason why the worker must not run the plan.
pub fn verify(
    envelope: &str,
    trust: &TrustFile,
    cluster: &str,
    now: Timestamp,
) -> Result<Verified, Unacceptable> {
    open(envelope, trust)?.verified(trust, cluster, now)
}
