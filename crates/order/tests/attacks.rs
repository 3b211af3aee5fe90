//! Attacks on signed orders: changed bytes, other terms, confused keys (attacks 41 to 43 of the
//! threat model in docs/security.md).

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use agenix_order::{
    Envelope, Grant, InputBounds, ORDER_TYPE, Order, Signature, SignatureKind, SigningKey, TrustFile,
    Unacceptable, open, pae, verify,
};
use agenix_protocol::time::Timestamp;
use serde_json::{Value, json};

const CLUSTER: &str = "prod-eu";
const NOW: &str = "2026-11-30T12:00:00Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// Trust file: alice has full trust and two keys, ci runs in builder, and robot in reader, with an
/// approval of alice or ci.
fn trust(rest: &str) -> TrustFile {
    let [alice, laptop, ci, robot] = [1, 2, 3, 4].map(|number| key(number).public());
    TrustFile::parse(&format!(
        "[signers.alice]\nkeys = [\"{alice}\", \"{laptop}\"]\ntrust = \"full\"\n\
         [signers.ci]\nkey = \"{ci}\"\nprofile = \"builder\"\nnot_after = \"2027-01-01\"\n\
         [signers.robot]\nkey = \"{robot}\"\nprofile = \"reader\"\ninputs = \"any\"\napprovals = 1\napprovers = [\"alice\", \"ci\"]\n{rest}"
    ))
    .unwrap()
}

fn order(terms: &Value) -> Order {
    let mut all = json!({"for": [CLUSTER], "not_after": "2026-12-01T00:00:00Z", "serial": "s1"});
    for (name, value) in terms.as_object().unwrap() {
        all[name] = value.clone();
    }
    let plan = json!({"plan_id": "p", "tasks": [{"task_number": 1, "command": "sort"}]});
    serde_json::from_value(json!({"v": 1, "plan": plan, "terms": all})).unwrap()
}

fn signed(order: &Order, keys: &[u8]) -> Envelope {
    let mut envelope = Envelope::new(order);
    keys.iter().for_each(|number| envelope.sign(&key(*number), SignatureKind::Order));
    envelope
}

fn approved(order: &Order, authors: &[u8], approvers: &[u8]) -> Envelope {
    let mut envelope = signed(order, authors);
    approvers.iter().for_each(|number| envelope.sign(&key(*number), SignatureKind::Approval));
    envelope
}

fn refusal(envelope: &Envelope, trust: &TrustFile) -> String {
    verify(&envelope.to_json(), trust, CLUSTER, now()).unwrap_err().to_string()
}

#[test]
fn order_is_accepted_in_its_cluster_and_time() {
    let envelope = signed(&order(&json!({})), &[1]);
    let verified = verify(&envelope.to_json(), &trust(""), CLUSTER, now()).unwrap();
    assert_eq!((verified.signers, verified.grant), (vec!["alice".to_owned()], Grant::Full));
    assert_eq!((&*verified.order, verified.inputs), (&order(&json!({})), InputBounds::Required));
}

/// A flipped bit gives a refusal, or the very same order: then the bit was in the hint about the
/// key, in a field that DSSE ignores, or in white space.
#[test]
fn each_flipped_bit_of_an_envelope_is_refused_or_changes_nothing() {
    let (trust, original) = (trust(""), order(&json!({"uses": 1})));
    let json = signed(&original, &[1]).to_json();
    let signed_parts = [json.find("\"payload\":").unwrap(), json.find("\"sig\":").unwrap()];
    let mut accepted = 0;
    for at in 0..json.len() {
        for bit in 0..8 {
            let mut bytes = json.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let Ok(verified) = verify(&text, &trust, CLUSTER, now()) else { continue };
            assert_eq!(*verified.order, original, "byte {at}, bit {bit}: {text}");
            assert_eq!(verified.signers, ["alice"], "byte {at}, bit {bit}: {text}");
            let field = json[..at].rfind("\",\"").map_or(0, |comma| comma + 2);
            assert!(!signed_parts.contains(&field), "byte {at}, bit {bit} is signed: {text}");
            accepted += 1;
        }
    }
    assert!(accepted > 0, "the hint about the key has no meaning");
}

#[test]
fn payload_is_exchanged_for_that_of_another_order() {
    let (one, other) = (signed(&order(&json!({})), &[1]), signed(&order(&json!({"serial": "s2"})), &[1]));
    let swapped = Envelope { payload: other.payload, ..one };
    assert!(refusal(&swapped, &trust("")).starts_with("no signature of the order is valid"));
}

#[test]
fn terms_are_enforced() {
    for (terms, reason) in [
        (
            json!({"for": ["prod-us", "test"]}),
            "the order is for prod-us, test, and this worker is in prod-eu",
        ),
        (json!({"not_after": NOW}), "the order expired at 2026-11-30T12:00:00.000Z"),
        (
            json!({"not_before": "2026-11-30T12:00:00.001Z"}),
            "the order is valid from 2026-11-30T12:00:00.001Z on",
        ),
        (json!({"serial": "revoked-1"}), "the serial revoked-1 of the order is revoked"),
        (json!({"uses": 0}), "the order is not valid: terms.uses is 0"),
    ] {
        let trust = trust("[revoked]\nserials = [\"revoked-1\"]");
        let refusal = refusal(&signed(&order(&terms), &[1]), &trust);
        assert!(refusal.starts_with(reason), "{terms}: {refusal}");
    }
    let edges = json!({"not_before": NOW, "not_after": "2026-11-30T12:00:00.001Z", "for": ["x", CLUSTER]});
    assert!(verify(&signed(&order(&edges), &[1]).to_json(), &trust(""), CLUSTER, now()).is_ok());
}

#[test]
fn time_is_checked_again_for_an_opened_order() {
    let opened = open(&signed(&order(&json!({})), &[1]).to_json(), &trust("")).unwrap();
    assert!(opened.verified(&trust(""), CLUSTER, now()).is_ok());
    let later = Timestamp::parse("2026-12-01T00:00:00Z").unwrap();
    let expired = opened.verified(&trust(""), CLUSTER, later).unwrap_err();
    assert!(matches!(expired, Unacceptable::Expired { .. }), "{expired}");
}

#[test]
fn keys_are_not_confused() {
    let trust = trust("");
    let stranger = signed(&order(&json!({})), &[9]);
    assert!(refusal(&stranger, &trust).starts_with("no signature of the order is valid"));
    // The hint names a trusted key.
    let hinted = |envelope: &Envelope, number: u8| {
        let mut envelope = envelope.clone();
        envelope.signatures[0].keyid = Some(key(number).public().keyid().to_string());
        envelope
    };
    assert!(refusal(&hinted(&stranger, 1), &trust).starts_with("no signature"));
    // A signature of ci with the hint of alice is one of ci.
    let of_ci = hinted(&signed(&order(&json!({})), &[3]), 1);
    let verified = verify(&of_ci.to_json(), &trust, CLUSTER, now()).unwrap();
    assert_eq!((verified.signers, verified.grant), (vec!["ci".into()], Grant::Profile("builder".into())));
    // The signature is over the type, too: the same bytes as another document are no order.
    let mut other = Envelope { payload_type: "application/json".into(), ..Envelope::new(&order(&json!({}))) };
    other.sign(&key(1), SignatureKind::Order);
    assert!(refusal(&other, &trust).contains("the payload type is 'application/json'"));
    other.payload_type = ORDER_TYPE.into();
    assert!(refusal(&other, &trust).starts_with("no signature"));
    // A signature over the payload alone, and the encoding itself as a payload.
    let envelope = Envelope::new(&order(&json!({})));
    let mut encoded = Envelope { payload: pae(ORDER_TYPE, &envelope.payload), ..envelope.clone() };
    encoded.sign(&key(1), SignatureKind::Order);
    let moved = Envelope { signatures: encoded.signatures, ..envelope.clone() };
    assert!(refusal(&moved, &trust).starts_with("no signature"));
    // Signatures of other algorithms have other lengths.
    for length in [0, 32, 63, 65, 71, 256] {
        let signatures = vec![Signature { keyid: None, bytes: vec![1; length] }];
        let other = Envelope { signatures, ..envelope.clone() };
        assert!(refusal(&other, &trust).starts_with("no signature"), "{length}");
    }
}

#[test]
fn revoked_and_expired_keys_are_refused() {
    let (alice, ci) = (key(1).public(), key(3).public());
    let revoked = trust(&format!("[revoked]\nkeys = [\"{alice}\"]"));
    let by_alice = signed(&order(&json!({})), &[1]);
    assert_eq!(refusal(&by_alice, &revoked), "the key of 'alice' that signed the order is revoked");
    // The other key of the name still signs.
    assert!(verify(&signed(&order(&json!({})), &[1, 2]).to_json(), &revoked, CLUSTER, now()).is_ok());

    let by_ci = signed(&order(&json!({"not_after": "2028-01-01T00:00:00Z"})), &[3]);
    let later = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
    let expired = verify(&by_ci.to_json(), &trust(""), CLUSTER, later).unwrap_err().to_string();
    assert_eq!(expired, "the trust in 'ci', who signed the order, ended at 2027-01-01T00:00:00.000Z");
    assert!(verify(&by_ci.to_json(), &trust(""), CLUSTER, Timestamp(later.0 - 1)).is_ok());
    assert_ne!(alice, ci);
}

#[test]
fn approvals_count_names_and_not_signatures() {
    let grant = |authors: &[u8], approvers: &[u8]| {
        let envelope = approved(&order(&json!({})), authors, approvers);
        verify(&envelope.to_json(), &trust(""), CLUSTER, now()).map(|verified| verified.grant)
    };
    let missing = |result: Result<Grant, Unacceptable>| {
        let present = 0;
        assert_eq!(result, Err(Unacceptable::Approvals { signer: "robot".into(), needed: 1, present }));
    };
    missing(grant(&[4], &[]));
    missing(grant(&[4], &[9]));
    missing(grant(&[4], &[4]));
    assert_eq!(grant(&[4], &[3]), Ok(Grant::Profile("reader".into())));
    // An author's signature is no approval, and has rights of its own.
    assert_eq!(grant(&[4, 3], &[]), Ok(Grant::Profile("builder".into())));

    // Two keys of one name are one approval.
    let [one, two, robot] = [1, 2, 4].map(|number| key(number).public());
    let trust = TrustFile::parse(&format!(
        "[signers.alice]\nkeys = [\"{one}\", \"{two}\"]\nprofile = \"reader\"\nnot_after = \"2020-01-01\"\n\
         [signers.bob]\nkey = \"{}\"\nprofile = \"reader\"\n\
         [signers.robot]\nkey = \"{robot}\"\ntrust = \"full\"\napprovals = 2\napprovers = [\"alice\", \"bob\"]",
        key(5).public()
    ))
    .unwrap();
    let at = |approvers: &[u8], time: &str| {
        let envelope = approved(&order(&json!({})), &[4], approvers);
        let verified = verify(&envelope.to_json(), &trust, CLUSTER, Timestamp::parse(time).unwrap());
        verified.map(|verified| verified.grant)
    };
    let one_of_two = Err(Unacceptable::Approvals { signer: "robot".into(), needed: 2, present: 1 });
    let before = "2019-01-01T00:00:00Z";
    assert_eq!(at(&[1, 2], before), one_of_two);
    assert_eq!(at(&[1, 5], before), Ok(Grant::Full));
    assert_eq!(at(&[1, 5], NOW), one_of_two, "the trust in alice has ended, so she approves nothing");
}

#[test]
fn approval_lends_no_rights_to_the_plan() {
    let envelope = approved(&order(&json!({})), &[4], &[1]);
    let verified = verify(&envelope.to_json(), &trust(""), CLUSTER, now()).unwrap();
    assert_eq!(verified.grant, Grant::Profile("reader".into()), "alice has full trust");
    assert_eq!((verified.signers, verified.approvers), (vec!["robot".to_owned()], vec!["alice".to_owned()]));

    // agq removes the signature of the author.
    let mut stripped = envelope;
    stripped.signatures.remove(0);
    let reason = "the order is only approved, by alice: its author has to sign it, too";
    assert_eq!(refusal(&stripped, &trust("")), reason);
}

#[test]
fn rights_are_the_most_that_one_signer_has() {
    let grant = |keys: &[u8]| {
        let envelope = signed(&order(&json!({})), keys);
        verify(&envelope.to_json(), &trust(""), CLUSTER, now()).unwrap().grant
    };
    assert_eq!(grant(&[3]), Grant::Profile("builder".into()));
    assert_eq!(grant(&[3, 2]), Grant::Full);
    assert_eq!(grant(&[9, 3]), Grant::Profile("builder".into()), "a stranger adds and removes nothing");
}

#[test]
fn unsigned_bytes_are_not_read() {
    let envelope = Envelope {
        payload: b"{".to_vec(),
        signatures: vec![Signature { keyid: None, bytes: vec![0; 64] }],
        ..Envelope::new(&order(&json!({})))
    };
    assert!(refusal(&envelope, &trust("")).starts_with("no signature of the order is valid"));
    let mut signed = Envelope { signatures: Vec::new(), ..envelope };
    signed.sign(&key(1), SignatureKind::Order);
    assert!(refusal(&signed, &trust("")).starts_with("the order is not valid: EOF"));
}

/// The example of docs/protocol/plans.md.
#[test]
fn vector_of_the_protocol_is_verified() {
    let page = include_str!("../../../docs/protocol/plans.md");
    let envelope = page.lines().find(|line| line.starts_with("{\"payloadType\":")).unwrap();
    let public = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    assert!(page.contains(public));
    let trust = TrustFile::parse(&format!("[signers.a]\nkey = \"{public}\"\ntrust = \"full\"")).unwrap();
    let verified = verify(envelope, &trust, CLUSTER, now()).unwrap();
    assert_eq!(verified.order.terms.serial, "order-1");
    let again = Envelope::parse(envelope.as_bytes()).unwrap();
    assert_eq!(again.to_json(), envelope);
    let payload = String::from_utf8(again.payload).unwrap();
    assert!(page.contains(&payload), "{payload}");
}
