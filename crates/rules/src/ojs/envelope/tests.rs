//! Tests of OJS job documents.

use agenix_protocol::time::Timestamp;

use super::{JobSubmission, is_uuid_v7, read};
use crate::{rejection::Rejection, retry::Retry};

const NOW: Timestamp = Timestamp(1_000_000);

fn submit(json: &str) -> Result<JobSubmission, Rejection> {
    read(serde_json::from_str(json).unwrap(), NOW)
}

fn refused(json: &str) -> String {
    submit(json).unwrap_err().to_string()
}

#[test]
fn job_document_is_stored_as_submitted() {
    let job =
        submit(r#"{"type":"email.send","args":[1.50,{"b":1,"a":2}],"meta":{"k":1e400},"colour":"red"}"#)
            .unwrap();
    assert_eq!(
        job.input,
        r#"{"args":[1.50,{"b":1,"a":2}],"colour":"red","meta":{"k":1e400},"type":"email.send"}"#
    );
    assert_eq!((job.queue, job.priority, job.ojs.retry), (None, 0, Some(Retry::default())));
}

#[test]
fn errors_name_the_invalid_field() {
    for (json, words) in [
        (r#"{"args":[]}"#, "type is missing"),
        (r#"{"type":7,"args":[]}"#, "type is not a string"),
        (r#"{"type":"a b","args":[]}"#, "type 'a b' is not valid"),
        (r#"{"type":"a..b","args":[]}"#, "type 'a..b'"),
        (r#"{"type":"a"}"#, "args is missing"),
        (r#"{"type":"a","args":null}"#, "args is missing"),
        (r#"{"type":"a","args":{}}"#, "args is not a list"),
        (r#"{"type":"a","args":[],"id":"x"}"#, "id must be a UUID"),
        (r#"{"type":"a","args":[],"meta":[]}"#, "meta is not an object"),
        (r#"{"type":"a","args":[],"options":7}"#, "options is not an object"),
        (r#"{"type":"a","args":[],"options":{"queue":"-x"}}"#, "options.queue '-x'"),
        (r#"{"type":"a","args":[],"options":{"queue":"scheduled"}}"#, "options.queue is scheduled"),
        (r#"{"type":"a","args":[],"options":{"priority":101}}"#, "options.priority is 101"),
        (r#"{"type":"a","args":[],"options":{"priority":1.5}}"#, "options.priority is 1.5"),
        (r#"{"type":"a","args":[],"options":{"timeout_ms":0}}"#, "options.timeout_ms is 0"),
        (r#"{"type":"a","args":[],"options":{"scheduled_at":"soon"}}"#, "options.scheduled_at is \"soon\""),
        (
            r#"{"type":"a","args":[],"options":{"scheduled_at":"1999-02-30T10:00:00Z"}}"#,
            "options.scheduled_at is \"1999-02-30T10:00:00Z\"",
        ),
        (
            r#"{"type":"a","args":[],"options":{"expires_at":"19 hours from now, please"}}"#,
            "options.expires_at is \"19 hours",
        ),
        (r#"{"type":"a","args":[],"options":{"tags":[1]}}"#, "options.tags is [1]"),
        (
            r#"{"type":"a","args":[],"options":{"rate_limit":{"rate":0}}}"#,
            "options.rate_limit lets no job through",
        ),
        (
            r#"{"type":"a","args":[],"options":{"rate_limit":{"rate":1,"key":"concurrency:::x"}}}"#,
            "options.rate_limit.key begins with 'concurrency:', as the keys that agq makes",
        ),
        (
            r#"{"type":"a","args":[],"options":{"rate_limit":{"rate":1,"key":"plan:p"}}}"#,
            "options.rate_limit.key begins with 'plan:'",
        ),
        (r#"{"type":"a","args":[],"queue":"Bad Queue!"}"#, "options.queue 'Bad Queue!'"),
        (r#"{"type":"a","args":[],"priority":101,"options":null}"#, "options.priority is 101"),
        (r#"{"type":"plan.p","args":["x"]}"#, "a list of one object"),
        (r#"{"type":"plan.a/b","args":[{}]}"#, "type: plan_id 'a/b'"),
    ] {
        let error = refused(json);
        assert!(error.contains(words), "{json}: {error}");
    }
}

#[test]
fn errors_name_the_invalid_field_of_unique() {
    for (json, words) in [
        (r#"{"type":"a","args":[],"options":{"unique":{"keys":["x"]}}}"#, "options.unique.keys has 'x'"),
        (r#"{"type":"a","args":[],"options":{"unique":{"keys":[]}}}"#, "options.unique.keys is empty"),
        (
            r#"{"type":"a","args":[],"options":{"unique":{"keys":["type"],"meta_keys":["k"]}}}"#,
            "options.unique.meta_keys has no effect without 'meta'",
        ),
        (
            r#"{"type":"a","args":[],"options":{"unique":{"keys":["type"],"args_keys":["k"]}}}"#,
            "options.unique.args_keys has no effect without 'args'",
        ),
        (
            r#"{"type":"a","args":[],"options":{"unique":{"key":["type"],"keys":["type"]}}}"#,
            "options.unique has both key and keys",
        ),
        (
            r#"{"type":"a","args":[{"k":1}],"options":{"unique":{"key":["k"],"args_keys":["k"]}}}"#,
            "options.unique has both key and args_keys",
        ),
        (r#"{"type":"a","args":[1],"options":{"unique":{"key":["id"]}}}"#, "options.unique.key has 'id'"),
        (r#"{"type":"a","args":[],"options":{"unique":{"key":[]}}}"#, "options.unique.keys is empty"),
        (
            r#"{"type":"a","args":[],"options":{"unique":{"args_key":["id"]}}}"#,
            "options.unique.args_key is not known: use keys, key,",
        ),
        (
            r#"{"type":"a","args":[],"options":{"unique":{"states":["avaliable"]}}}"#,
            "options.unique.states has 'avaliable': use pending, scheduled, available",
        ),
    ] {
        let error = refused(json);
        assert!(error.contains(words), "{json}: {error}");
    }
}

#[test]
fn invalid_retry_policy_has_its_own_rejection() {
    for (policy, words) in [
        (r#"{"max_attempts":-1}"#, "options.retry.max_attempts is -1"),
        (r#"{"backoff_coefficient":0.5}"#, "options.retry.backoff_coefficient is 0.5"),
        (r#"{"initial_interval":"1s"}"#, "options.retry.initial_interval is \"1s\""),
        (r#"{"on_exhaustion":"explode"}"#, "options.retry.on_exhaustion is 'explode'"),
    ] {
        let json = format!(r#"{{"type":"a","args":[],"options":{{"retry":{policy}}}}}"#);
        let rejection = submit(&json).unwrap_err();
        assert!(matches!(&rejection, Rejection::InvalidRetry(text) if text.contains(words)), "{rejection}");
    }
}

#[test]
fn plan_job_separates_input_and_document() {
    let job = submit(r#"{"type":"plan.Word_Count","args":[{"path":"a"}],"meta":{"k":1}}"#).unwrap();
    assert_eq!((job.plan_id.unwrap().as_str(), job.input.as_str()), ("Word_Count", r#"{"path":"a"}"#));
    assert_eq!(job.ojs.document.as_deref(), Some(r#"{"meta":{"k":1},"type":"plan.Word_Count"}"#));
    assert_eq!((job.ojs.visibility_ms, job.ojs.retry), (0, None));
}

#[test]
fn scheduled_at_is_absolute_or_relative() {
    let run_at = |at: &str| {
        submit(&format!(r#"{{"type":"a","args":[],"options":{{"scheduled_at":"{at}"}}}}"#)).unwrap().run_at
    };
    assert_eq!(run_at("+PT2S"), Some(NOW.plus_ms(2000)));
    assert_eq!(run_at("1970-01-01T00:00:07Z"), Some(Timestamp(7000)));
    assert_eq!(run_at("1969-12-31T23:59:59Z"), Some(Timestamp(0)));
    // The zero time of Go and .NET.
    assert_eq!(run_at("0001-01-01T00:00:00Z"), Some(Timestamp(0)));
}

#[test]
fn unique_key_ignores_the_order_of_fields() {
    let key = |args: &str| {
        let json =
            format!(r#"{{"type":"a","args":{args},"options":{{"unique":{{"keys":["type","args"]}}}}}}"#);
        submit(&json).unwrap().unique.unwrap().key
    };
    assert_eq!(key(r#"[{"a":1,"b":2}]"#), key(r#"[ {"b":2, "a":1} ]"#));
    assert_ne!(key("[1]"), key("[2]"));
    assert_ne!(key("[18446744073709551616]"), key("[18446744073709551617]"), "they are one float");
    assert_ne!(key(r#"[{"n":-18446744073709551616}]"#), key(r#"[{"n":-18446744073709551617}]"#));
    assert_eq!(key("[1.10]"), key("[1.1]"));
}

#[test]
fn unique_meta_keys_alone_compare_these_fields_of_meta() {
    let key = |meta: &str| {
        let json = format!(
            r#"{{"type":"a","args":[],"meta":{meta},"options":{{"unique":{{"meta_keys":["tenant"]}}}}}}"#
        );
        submit(&json).unwrap().unique.unwrap().key
    };
    assert_ne!(key(r#"{"tenant":"a"}"#), key(r#"{"tenant":"b"}"#));
    assert_eq!(key(r#"{"tenant":"a","trace":1}"#), key(r#"{"tenant":"a","trace":2}"#));
}

#[test]
fn unique_key_of_the_sdks_names_attributes_or_fields_of_the_first_argument() {
    let key = |args: &str, unique: &str| {
        let json = format!(r#"{{"type":"a","args":{args},"options":{{"unique":{unique}}}}}"#);
        submit(&json).unwrap().unique.unwrap().key
    };
    let (first, other) = (r#"[{"id":42,"at":1}]"#, r#"[{"id":43,"at":1}]"#);
    let by_field = r#"{"key":["id"],"period_ms":3600000,"on_conflict":null}"#;
    assert_eq!(key(first, by_field), key(r#"[{"id":42,"at":2}]"#, by_field));
    assert_ne!(key(first, by_field), key(other, by_field));
    assert_eq!(key(first, by_field), key(first, r#"{"args_keys":["id"],"colour":null}"#));
    assert_eq!(key(first, r#"{"key":["type"]}"#), key(other, r#"{"keys":["type"]}"#));
}

#[test]
fn options_may_be_fields_of_the_job() {
    let json = r#"{"type":"a","args":[],"queue":"critical","priority":50,"tags":["t"],"retry":null,
        "unique":{},"options":{"priority":7,"queue":null,"colour":1.50}}"#;
    let job = submit(json).unwrap();
    assert_eq!((job.queue.as_deref(), job.priority), (Some("critical"), 7));
    assert!(job.unique.is_some());
    assert_eq!(
        job.input,
        r#"{"args":[],"options":{"colour":1.50,"priority":7,"queue":"critical","tags":["t"],"unique":{}},"type":"a"}"#
    );
}

#[test]
fn uuid_v7_is_recognised() {
    assert!(is_uuid_v7("019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"));
    for wrong in [
        "",
        "019461A8-1A2B-7C3D-8E4F-5A6B7C8D9E0F",
        "550e8400-e29b-41d4-a716-446655440000",
        "019461a8-1a2b-7c3d-ce4f-5a6b7c8d9e0f",
    ] {
        assert!(!is_uuid_v7(wrong), "{wrong}");
    }
}
