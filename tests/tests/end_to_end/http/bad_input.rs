//! Bad HTTP input gets a clear error, and nothing of it is stored.

use std::{
    io::{BufReader, Read, Write},
    net::Shutdown,
};

use e2e::Lab;

use super::client::{Http, HttpResponse};

/// Bad requests: method, path, body, expected status and expected error code.
const WRONG: [(&str, &str, &str, u16, &str); 36] = [
    ("POST", "/jobs", "{", 400, "invalid_payload"),
    ("POST", "/jobs", "nonsense", 400, "invalid_payload"),
    ("POST", "/jobs", "[]", 400, "invalid_request"),
    ("POST", "/jobs", "{}", 400, "invalid_request"),
    ("POST", "/jobs", r#"{"type":"a"}"#, 400, "invalid_request"),
    ("POST", "/jobs", r#"{"type":"A","args":[]}"#, 400, "invalid_request"),
    ("POST", "/jobs", r#"{"type":"a","args":[],"id":"x"}"#, 400, "invalid_request"),
    ("POST", "/jobs", r#"{"type":"a","args":[],"options":{"priority":101}}"#, 400, "invalid_request"),
    (
        "POST",
        "/jobs",
        r#"{"type":"a","args":[],"options":{"retry":{"max_attempts":-1}}}"#,
        422,
        "validation_error",
    ),
    ("POST", "/jobs", r#"{"type":"plan.none","args":[{}]}"#, 404, "not_found"),
    ("POST", "/jobs", r#"{"type":"a","type":"b","args":[]}"#, 400, "invalid_request"),
    (
        "POST",
        "/jobs",
        r#"{"type":"a","args":[],"options":{"queue":"a","queue":"b"}}"#,
        400,
        "invalid_request",
    ),
    ("POST", "/jobs/batch", r#"{"jobs":[{"type":"a","args":[],"args":[]}]}"#, 400, "invalid_request"),
    ("POST", "/jobs/batch", r#"{"jobs":[]}"#, 400, "invalid_request"),
    ("POST", "/jobs/batch", r#"{"jobs":[{"type":"a","args":[]},{"type":"a"}]}"#, 400, "invalid_request"),
    ("POST", "/workers/fetch", r#"{"queues":[]}"#, 400, "invalid_request"),
    ("POST", "/workers/fetch", r#"{"queues":["a b"]}"#, 400, "invalid_request"),
    ("POST", "/workers/fetch", r#"{"queues":["a"],"visibility_timeout_ms":0}"#, 400, "invalid_request"),
    ("POST", "/workers/heartbeat", "{}", 400, "invalid_request"),
    ("POST", "/workers/heartbeat", r#"{"worker_id":"a b"}"#, 400, "invalid_request"),
    ("POST", "/workers/ack", "{}", 400, "invalid_request"),
    ("POST", "/workers/ack", r#"{"job_id":"none"}"#, 404, "not_found"),
    ("GET", "/jobs/none", "", 404, "not_found"),
    ("GET", "/jobs/%00", "", 404, "not_found"),
    ("GET", "/jobs/%FF", "", 400, "invalid_request"),
    ("GET", "/jobs?state=odd", "", 400, "invalid_request"),
    ("GET", "/admin/queues?page=x", "", 400, "invalid_request"),
    ("GET", "/jobs?limit=0", "", 400, "invalid_request"),
    ("GET", "/admin/jobs?per_page=0", "", 400, "invalid_request"),
    ("GET", "/admin/queues?per_page=0", "", 400, "invalid_request"),
    ("GET", "/dead-letter?limit=0", "", 400, "invalid_request"),
    ("GET", "/events?limit=0", "", 400, "invalid_request"),
    (
        "PUT",
        "/cron/..",
        r#"{"expression":"@daily","job_template":{"type":"a","args":[]}}"#,
        400,
        "invalid_request",
    ),
    (
        "POST",
        "/cron",
        r#"{"name":".","expression":"@daily","job_template":{"type":"a","args":[]}}"#,
        400,
        "invalid_request",
    ),
    ("GET", "/nowhere", "", 404, "not_found"),
    ("PATCH", "/jobs", "", 405, "invalid_request"),
];

#[test]
fn errors_have_the_form_of_the_specification() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    for (method, path, body, status, code) in WRONG {
        let answer = http.ask(method, path, body);
        assert_eq!((answer.status, answer.code()), (status, code), "{method} {path} {body}: {}", answer.text);
        assert_eq!(answer.headers["content-type"], "application/openjobspec+json", "{path}");
        assert_eq!(answer.headers["ojs-version"], "1.0", "{path}");
        let error = &answer.body["error"];
        assert_eq!(error["request_id"], answer.headers["x-request-id"].as_str(), "{path}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
        assert!(error["hint"].is_string() && error["docs_url"].is_string(), "{path}");
        assert_eq!(error["retryable"], false, "{path}");
    }
    assert_eq!(http.get("/queues")["queues"], serde_json::json!([]), "nothing was stored");
}

#[test]
fn body_at_the_limit_is_read_and_one_byte_more_is_not() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-message-bytes", "1000"]);
    let http = Http::of(&lab, &agq);
    let job = |length: usize| {
        let frame = r#"{"type":"a","args":[""]}"#.len();
        format!(r#"{{"type":"a","args":["{}"]}}"#, "x".repeat(length - frame))
    };
    assert_eq!(http.ask("POST", "/jobs", &job(1000)).status, 201);
    let more = http.ask("POST", "/jobs", &job(1001));
    assert_eq!((more.status, more.code()), (413, "payload_too_large"));
    let deep = format!(r#"{{"type":"a","args":[{}]}}"#, "[".repeat(400) + &"]".repeat(400));
    assert_eq!(http.ask("POST", "/jobs", &deep).code(), "invalid_payload");
    let form = "POST /ojs/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n";
    let form = http.send(format!("{form}Authorization: Bearer {}\r\n\r\n{{}}", lab.key()).as_bytes());
    assert_eq!((form.status, form.code()), (400, "invalid_request"));
    assert_eq!(http.get("/queues/default/stats")["queue"]["available"], 1);
}

#[test]
fn requests_that_come_together_are_answered_in_their_order_and_a_closed_half_is_owed_its_answer() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let mut stream = http.connect();
    let one = http.request("POST", "/jobs", r#"{"type":"a","args":[1]}"#);
    let two = http.request("GET", "/queues/default/stats", "");
    let three = http.request("POST", "/jobs", "{");
    stream.write_all(format!("{one}{two}{three}").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = BufReader::new(stream);
    let [one, two, three] = [(); 3].map(|()| HttpResponse::read(&mut answers));
    assert_eq!((one.status, two.status, three.status), (201, 200, 400));
    assert_eq!(two.body["queue"]["available"], 1, "the first was done before the second");
    let mut rest = String::new();
    answers.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "agq closes what is closed");
    // An incomplete request is not carried out.
    let mut stream = http.connect();
    let part = http.request("POST", "/jobs", r#"{"type":"a","args":[2]}"#);
    stream.write_all(&part.as_bytes()[..part.len() - 5]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(http.get("/queues/default/stats")["queue"]["available"], 1);
}
