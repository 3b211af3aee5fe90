//! Envelopes of signed orders: only the signed bytes of the test key are an order.

use std::sync::LazyLock;

use agenix_order::{Envelope, SigningKey, TrustFile, open};

/// Order that the test key has signed in the corpus.
const SIGNED: &[u8] = include_bytes!("../corpus/order_envelope/signed");

static TRUST: LazyLock<TrustFile> = LazyLock::new(|| {
    let key = SigningKey::from_seed(&[7; 32]).public();
    match TrustFile::parse(&format!("[signers.a]\nkey = \"{key}\"\ntrust = \"full\"")) {
        Ok(trust) => trust,
        Err(error) => panic!("{error}"),
    }
});

/// Envelope as `PLAN.SUBMIT` takes it. Accepted is an envelope that a worker accepts.
pub fn order_envelope(data: &[u8]) -> bool {
    let Ok(envelope) = Envelope::parse(data) else { return false };
    assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).as_ref(), Ok(&envelope));
    let _not_trusted = envelope.order();
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match open(text, &TRUST) {
        Ok(_) => {
            let signed = Envelope::parse(SIGNED);
            let signed = signed.as_ref().map(|signed| &signed.payload);
            assert_eq!(Ok(&envelope.payload), signed, "the test key has signed something else");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
