//! DSSE envelopes (version 1 of the protocol of secure-systems-lab): exact bytes with their type,
//! and signatures over both.

use agenix_protocol::documents::{DsseEnvelope, DsseSignature, to_json};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

use crate::{
    error::{InvalidEnvelope, InvalidOrder},
    key::{PublicKey, SigningKey},
    order::{APPROVAL_TYPE, ORDER_TYPE, Order},
};

/// Maximum number of signatures of an envelope. A worker tries each signature with its keys.
const MAX_SIGNATURES: usize = 16;
/// Bytes of a signature of Ed25519.
const SIGNATURE_BYTES: usize = 64;

/// Returns the bytes that a signature covers: the pre-authentication encoding of DSSE.
///
/// ```
/// assert_eq!(
///     agenix_order::pae("http://example.com/HelloWorld", b"hello world"),
///     b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
/// );
/// ```
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Envelope: a payload, its type, and signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Type of the payload, which the signatures cover.
    pub payload_type: String,
    /// Bytes that the signatures cover.
    pub payload: Vec<u8>,
    /// Signatures, in the order of the envelope.
    pub signatures: Vec<Signature>,
}

/// Signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Hint about the key, which nothing protects.
    pub keyid: Option<String>,
    /// Signature of Ed25519. Bytes of another length are the signature of another algorithm.
    pub bytes: Vec<u8>,
}

/// Meaning of a signature of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureKind {
    /// The signer wants the plan to run, with the rights of the signer. The signature covers the
    /// payload type of orders.
    Order,
    /// The signer agrees that the plan of another signer runs, and gives the plan no rights. The
    /// signature covers the payload type of approvals, so it is no signature of an order.
    Approval,
}

impl SignatureKind {
    const ALL: [Self; 2] = [Self::Order, Self::Approval];

    /// Returns the payload type that signatures of this kind cover in an envelope of
    /// `payload_type`.
    fn signed_type(self, payload_type: &str) -> &str {
        match self {
            Self::Order => payload_type,
            Self::Approval => APPROVAL_TYPE,
        }
    }
}

impl Envelope {
    /// Returns the envelope of an order without signatures.
    pub fn new(order: &Order) -> Self {
        let payload = to_json(order).into_bytes();
        Self { payload_type: ORDER_TYPE.into(), payload, signatures: Vec::new() }
    }

    /// Parses an envelope. Base64 may be standard or URL-safe, with padding.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidEnvelope`] for other JSON, invalid base64, no signature, or more than 16.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidEnvelope> {
        let document: DsseEnvelope =
            serde_json::from_slice(json).map_err(|error| InvalidEnvelope::Json(error.to_string()))?;
        Self::from_document(&document)
    }

    /// Returns the envelope of a document.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidEnvelope`] for invalid base64, no signature, or more than 16.
    pub fn from_document(document: &DsseEnvelope) -> Result<Self, InvalidEnvelope> {
        let count = document.signatures.len();
        if count == 0 || count > MAX_SIGNATURES {
            return Err(InvalidEnvelope::SignatureCount { count, max: MAX_SIGNATURES });
        }
        let payload = bytes_of(&document.payload).ok_or(InvalidEnvelope::Base64("payload"))?;
        let signatures = document.signatures.iter().map(|DsseSignature { keyid, sig }| {
            let bytes = bytes_of(sig).ok_or(InvalidEnvelope::Base64("sig"))?;
            Ok(Signature { keyid: keyid.clone().filter(|keyid| !keyid.is_empty()), bytes })
        });
        let signatures = signatures.collect::<Result<_, InvalidEnvelope>>()?;
        Ok(Self { payload_type: document.payload_type.clone(), payload, signatures })
    }

    /// Returns the envelope as JSON on one line.
    pub fn to_json(&self) -> String {
        to_json(&self.to_document())
    }

    /// Returns the envelope as a document.
    pub fn to_document(&self) -> DsseEnvelope {
        let signatures = self.signatures.iter();
        DsseEnvelope {
            payload_type: self.payload_type.clone(),
            payload: STANDARD.encode(&self.payload),
            signatures: signatures
                .map(|Signature { keyid, bytes }| DsseSignature {
                    keyid: keyid.clone(),
                    sig: STANDARD.encode(bytes),
                })
                .collect(),
        }
    }

    /// Adds a signature of a key. The same signature is not added twice.
    pub fn sign(&mut self, key: &SigningKey, kind: SignatureKind) {
        let bytes = key.sign(&self.signed_bytes(kind));
        self.signatures.retain(|signature| signature.bytes != bytes);
        self.signatures.push(Signature { keyid: Some(key.public().keyid().to_string()), bytes });
    }

    /// Returns the first of `keys` that made the signature, and the kind of the signature. Keys
    /// with the id that the signature names come first; that id has no other meaning.
    pub(crate) fn signer<'k, K: AsRef<PublicKey>>(
        &self,
        signature: &Signature,
        keys: &'k [K],
    ) -> Option<(&'k K, SignatureKind)> {
        if signature.bytes.len() != SIGNATURE_BYTES {
            return None;
        }
        let is_hinted = |key: &&'k K| signature.keyid.as_deref() == Some(key.as_ref().keyid().as_str());
        let (hinted, others): (Vec<&K>, Vec<&K>) = keys.iter().partition(is_hinted);
        let signed = SignatureKind::ALL.map(|kind| (kind, self.signed_bytes(kind)));
        let kind_of = |key: &K| {
            let has_signed = |bytes: &[u8]| key.as_ref().has_signed(bytes, &signature.bytes);
            signed.iter().find(|(_, bytes)| has_signed(bytes)).map(|(kind, _)| *kind)
        };
        hinted.into_iter().chain(others).find_map(|key| Some((key, kind_of(key)?)))
    }

    /// Returns the ids of keys that the signatures name, for a person.
    pub(crate) fn hints(&self) -> String {
        let ids = self.signatures.iter().map(|signature| {
            let id = signature.keyid.as_deref().unwrap_or("no id");
            id.chars().take(16).collect::<String>().escape_debug().to_string()
        });
        ids.collect::<Vec<_>>().join(", ")
    }

    fn signed_bytes(&self, kind: SignatureKind) -> Vec<u8> {
        pae(kind.signed_type(&self.payload_type), &self.payload)
    }

    /// Returns the order, without verification of the signatures.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidOrder`] for a payload of another type, other JSON, or illegal terms.
    pub fn order(&self) -> Result<Order, InvalidOrder> {
        if self.payload_type != ORDER_TYPE {
            return Err(InvalidOrder::PayloadType(self.payload_type.chars().take(80).collect()));
        }
        let order: Order = agenix_protocol::documents::parse_object(&self.payload)
            .map_err(|error| InvalidOrder::Json(error.to_string()))?;
        order.check()?;
        Ok(order)
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let is_url_safe = text.contains(['-', '_']);
    let decoded = if is_url_safe { URL_SAFE.decode(text) } else { STANDARD.decode(text) };
    decoded.ok()
}

#[cfg(test)]
mod tests {
    use super::{Envelope, Signature, SignatureKind, pae};
    use crate::{error::InvalidEnvelope, key::SigningKey};

    #[test]
    fn pae_has_the_lengths_of_type_and_payload_in_bytes() {
        // The vector of the specification, and the edges of its definition.
        assert_eq!(
            pae("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
        assert_eq!(pae("", b""), b"DSSEv1 0  0 ");
        assert_eq!(pae("ä", "ä".as_bytes()), "DSSEv1 2 ä 2 ä".as_bytes());
        // Neither a length nor a type can be moved into its neighbour.
        assert_ne!(pae("a", b"1 b"), pae("a 1", b"b"));
    }

    #[test]
    fn envelope_of_the_specification_is_parsed() {
        let json = br#"{"payload": "aGVsbG8gd29ybGQ=",
            "payloadType": "http://example.com/HelloWorld",
            "signatures": [{"sig": "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="}]}"#;
        let envelope = Envelope::parse(json).unwrap();
        assert_eq!(envelope.payload, b"hello world");
        assert_eq!(envelope.payload_type, "http://example.com/HelloWorld");
        let [Signature { keyid: None, bytes }] = &*envelope.signatures else { panic!("{envelope:?}") };
        assert_eq!(bytes.len(), 64);
        assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
    }

    #[test]
    fn envelope_takes_both_alphabets_and_unknown_fields() {
        let parse = |payload: &str, rest: &str| {
            Envelope::parse(
                format!(r#"{{"payload":"{payload}","payloadType":"t","signatures":[{{"sig":"" }}]{rest}}}"#)
                    .as_bytes(),
            )
        };
        let standard = parse("+/8=", "").unwrap();
        assert_eq!(parse("-_8=", r#","x":1"#).unwrap(), standard);
        assert_eq!(standard.payload, [0xfb, 0xff]);
        for wrong in ["+_8=", "+/8", "+/9=", "+/8=\\n", "?"] {
            assert_eq!(parse(wrong, ""), Err(InvalidEnvelope::Base64("payload")), "{wrong}");
        }
    }

    #[test]
    fn envelope_has_at_least_one_signature_and_at_most_sixteen() {
        let parse = |signatures: usize| {
            let all = vec![r#"{"sig":"AA==","keyid":""}"#; signatures].join(",");
            Envelope::parse(format!(r#"{{"payload":"","payloadType":"","signatures":[{all}]}}"#).as_bytes())
        };
        assert!(parse(1).is_ok_and(|envelope| envelope.signatures[0].keyid.is_none()), "an empty id is none");
        assert!(parse(16).is_ok() && parse(0).is_err() && parse(17).is_err());
    }

    #[test]
    fn signature_needs_the_key_and_ignores_the_hint() {
        let (alice, bob) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let mut envelope =
            Envelope { payload_type: "t".into(), payload: b"x".to_vec(), signatures: Vec::new() };
        envelope.sign(&alice, SignatureKind::Order);
        envelope.sign(&alice, SignatureKind::Order);
        assert_eq!(envelope.signatures.len(), 1, "a key signs once");
        let keys = [bob.public(), alice.public()];
        let signer = |envelope: &Envelope| {
            envelope.signer(&envelope.signatures[0], &keys).map(|(key, kind)| (*key, kind))
        };
        let order_of_alice = Some((alice.public(), SignatureKind::Order));
        assert_eq!(signer(&envelope), order_of_alice);
        for hint in [None, Some("0".into()), Some(bob.public().keyid().to_string())] {
            envelope.signatures[0].keyid = hint;
            assert_eq!(signer(&envelope), order_of_alice);
        }
        envelope.payload_type = "u".into();
        assert_eq!(signer(&envelope), None, "the type is signed");
        envelope.payload_type = "t".into();
        envelope.signatures[0].bytes.push(0);
        assert_eq!(signer(&envelope), None, "an algorithm with other lengths");
    }

    #[test]
    fn signature_keeps_its_kind_and_the_signatures_of_others() {
        let (alice, bob) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let mut envelope =
            Envelope { payload_type: "t".into(), payload: b"x".to_vec(), signatures: Vec::new() };
        envelope.sign(&alice, SignatureKind::Order);
        // The id is a hint, because nothing authenticates the id.
        envelope.signatures[0].keyid = Some(bob.public().keyid().to_string());
        envelope.sign(&bob, SignatureKind::Approval);
        envelope.sign(&bob, SignatureKind::Order);
        let keys = [bob.public(), alice.public()];
        let all = envelope.signatures.iter().map(|signature| envelope.signer(signature, &keys).unwrap());
        let expected = [
            (&keys[1], SignatureKind::Order),
            (&keys[0], SignatureKind::Approval),
            (&keys[0], SignatureKind::Order),
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
    }
}
