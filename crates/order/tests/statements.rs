//! Statements of workers: what a signature covers, and which statements are refused.

use agenix_order::{
    DigestSet, Envelope, ExitAnnotations, InvalidStatement, Order, STATEMENT_PAYLOAD_TYPE, SignatureKind,
    SigningKey, Statement, StreamBytes, Subject, TaskFacts, TaskIdentity, TaskRun, TrustFile,
};
use agenix_protocol::time::Timestamp;
use serde_json::{Value, json};

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// Returns a trust file with the worker `w1`, whose key is the first one.
fn trust(more: &str) -> TrustFile {
    let text = format!("[workers.w1]\nkey = \"{}\"\n{more}", key(1).public());
    TrustFile::parse(&text).expect("the trust file is valid")
}

fn statement() -> Statement {
    Statement::of(TaskFacts {
        identity: TaskIdentity {
            plan_id: "p".parse().expect("an id"),
            job_id: "j".parse().expect("an id"),
            attempt: 2,
            task_number: 1,
            task_count: 3,
            input_sha256: "ab".into(),
        },
        run: TaskRun { argv: Some(vec!["sort".into(), "-r".into()]), ..TaskRun::default() },
        dependencies: Vec::new(),
        worker: "w1".into(),
        version: "0.1.0".into(),
        started: Some(Timestamp(1000)),
        duration_ms: 500,
        end: ExitAnnotations {
            command: "sort".into(),
            exit_code: 0,
            signal: None,
            timed_out: false,
            ignored: false,
        },
        subject: vec![Subject {
            name: "stdout".into(),
            digest: DigestSet { sha256: "cd".into() },
            annotations: StreamBytes { bytes: 5, total: 5 },
        }],
    })
}

#[test]
fn statement_is_in_toto_with_a_predicate_of_slsa() {
    let envelope = statement().sign(&key(1));
    assert_eq!(envelope.payload_type, "application/vnd.in-toto+json");
    let payload: Value = serde_json::from_slice(&envelope.payload).unwrap();
    let uri = "agenix:job/j/attempt/2/task/1";
    let expected = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "stdout", "digest": {"sha256": "cd"}, "annotations": {"bytes": 5, "total": 5}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://github.com/agenix-sh/agenix/provenance/task/v1",
                "externalParameters": {
                    "plan_id": "p", "job_id": "j", "attempt": 2, "task_number": 1, "task_count": 3,
                    "input_sha256": "ab",
                },
                "internalParameters": {"argv": ["sort", "-r"]},
            },
            "runDetails": {
                "builder": {"id": "agenix:worker/w1", "version": {"agw": "0.1.0"}},
                "metadata": {
                    "invocationId": uri,
                    "startedOn": "1970-01-01T00:00:01.000Z",
                    "finishedOn": "1970-01-01T00:00:01.500Z",
                },
                "byproducts": [{
                    "name": "end",
                    "uri": uri,
                    "annotations": {"command": "sort", "exit_code": 0, "timed_out": false, "ignored": false},
                }],
            },
        },
    });
    assert_eq!(payload, expected);
    let (opened, worker) = Statement::open(&envelope, &trust("")).unwrap();
    assert_eq!((opened, worker.as_str()), (statement(), "w1"));
}

#[test]
fn changed_statement_is_refused() {
    let signed = statement().sign(&key(1));
    let refused = |edit: &dyn Fn(&mut Envelope)| {
        let mut envelope = signed.clone();
        edit(&mut envelope);
        Statement::open(&envelope, &trust("")).unwrap_err().to_string()
    };
    let untrusted = "no signature of the statement is valid for the key of a worker of the trust file (";
    let changed = |envelope: &mut Envelope, from: &str, to: &str| {
        let text = String::from_utf8(envelope.payload.clone()).unwrap();
        assert!(text.contains(from), "{text}");
        envelope.payload = text.replacen(from, to, 1).into_bytes();
    };
    for (from, to) in [("\"cd\"", "\"ce\""), ("\"attempt\":2", "\"attempt\":3"), ("-r", "-n"), ("}", "} ")] {
        let refused = refused(&|envelope| changed(envelope, from, to));
        assert!(refused.starts_with(untrusted), "{refused}");
    }
    let signature = refused(&|envelope| envelope.signatures[0].bytes[3] ^= 1);
    assert!(signature.starts_with(untrusted), "{signature}");
    let unsigned = refused(&|envelope| envelope.signatures.clear());
    assert!(unsigned.starts_with(untrusted), "{unsigned}");
    let other_type = refused(&|envelope| envelope.payload_type = "text/plain".into());
    assert_eq!(other_type, "the type of the payload is 'text/plain', and not application/vnd.in-toto+json");
}

#[test]
fn only_keys_of_workers_that_are_not_revoked_count() {
    let other = statement().sign(&key(2));
    let signer = format!("[signers.ci]\nkey = \"{}\"\ntrust = \"full\"", key(2).public());
    let error = Statement::open(&other, &trust(&signer)).unwrap_err();
    let id = key(2).public().keyid().to_string();
    assert_eq!(error, InvalidStatement::Untrusted(id), "a signer of orders is no worker");
    let revoked = format!("[revoked]\nkeys = [\"{}\"]", key(1).public());
    let error = Statement::open(&statement().sign(&key(1)), &trust(&revoked)).unwrap_err();
    assert_eq!(error, InvalidStatement::RevokedKey("w1".into()));
}

#[test]
fn other_signatures_of_a_worker_are_no_statements() {
    // The worker has signed these bytes as an approval, and never as a statement.
    let mut approval = statement().sign(&key(1));
    approval.signatures.clear();
    approval.sign(&key(1), SignatureKind::Approval);
    assert!(matches!(Statement::open(&approval, &trust("")), Err(InvalidStatement::Untrusted(_))));

    let order: Order = serde_json::from_value(json!({
        "v": 1, "plan": {"tasks": [{"task_number": 1, "command": "date"}]},
        "terms": {"for": ["a"], "not_after": "2026-12-01T00:00:00Z", "serial": "a1"},
    }))
    .unwrap();
    let mut order = Envelope::new(&order);
    order.sign(&key(1), SignatureKind::Order);
    assert!(matches!(Statement::open(&order, &trust("")), Err(InvalidStatement::PayloadType(_))));
    order.payload_type = STATEMENT_PAYLOAD_TYPE.into();
    assert!(matches!(Statement::open(&order, &trust("")), Err(InvalidStatement::Untrusted(_))));
}

#[test]
fn statements_of_other_types_are_refused() {
    let refused = |from: &str, to: &str| {
        let payload = serde_json::to_string(&statement()).unwrap().replacen(from, to, 1).into_bytes();
        let payload_type = STATEMENT_PAYLOAD_TYPE.into();
        let mut envelope = Envelope { payload_type, payload, signatures: Vec::new() };
        envelope.sign(&key(1), SignatureKind::Order);
        Statement::open(&envelope, &trust("")).unwrap_err().to_string()
    };
    let other = refused("Statement/v1", "Statement/v2");
    assert!(other.starts_with("it is of the type 'https://in-toto.io/Statement/v2', and not"), "{other}");
    assert!(refused("slsa.dev/provenance/v1", "x").contains("slsa.dev/provenance/v1"));
    assert!(refused("task/v1", "task/v2").contains("task/v1"));
    assert!(refused("\"attempt\":2", "\"attempt\":-2").starts_with("the statement cannot be read: "));
}
