//! Workers over HTTP: registration, directives, and keys of their own.

use e2e::Lab;

use super::client::Http;

/// Returns a key of 64 equal characters.
fn key(letter: char) -> String {
    std::iter::repeat_n(letter, 64).collect()
}

#[test]
fn worker_receives_directives_and_no_jobs_meanwhile() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let reply = http.post(
        "/workers/register",
        r#"{"worker_id":"w","queues":["default"],"concurrency":2,"labels":["zone:eu"]}"#,
    );
    assert_eq!(
        (&reply["heartbeat_interval"], &reply["visibility_timeout_default"]),
        (&5.into(), &1800.into())
    );
    let id = http.enqueue(r#"{"type":"a","args":[]}"#);
    let beat = r#"{"worker_id":"w","state":"running","active_job_ids":[]}"#;
    for (order, state) in [("quiet", "quiet"), ("terminate", "terminate")] {
        http.post(&format!("/admin/workers/w/{order}"), "");
        assert_eq!(http.post("/workers/heartbeat", beat)["state"], state);
        let none = http.post("/workers/fetch", r#"{"queues":["default"],"worker_id":"w"}"#);
        assert_eq!(none["jobs"], serde_json::json!([]), "{order}");
    }
    http.post("/admin/workers/w/resume", "");
    assert_eq!(http.fetch("w", "default").unwrap()["id"], *id);
    let other = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f";
    let beat = format!(r#"{{"worker_id":"w","active_job_ids":["{id}","{other}"]}}"#);
    let reply = http.post("/workers/heartbeat", &beat);
    assert_eq!((&reply["jobs_extended"][0], &reply["jobs_lost"][0]), (&id.as_str().into(), &other.into()));
    assert_eq!(http.ask("DELETE", "/workers/w", "").status, 200);
    assert_eq!(http.state(&id), "available", "it went back when its worker went");
    assert_eq!(http.ask("DELETE", "/workers/w", "").status, 404);
}

#[test]
fn key_does_what_its_role_may_and_a_worker_speaks_for_itself() {
    let lab = Lab::new();
    let keys = format!(
        "[clients]\nalice = \"{}\"\n[workers]\nw1 = \"{}\"\n[admins]\nroot = \"{}\"\n",
        key('b'),
        key('c'),
        key('d')
    );
    let config = lab.file("agq.toml", &keys);
    let agq = lab.agq(&["--config", &config.display().to_string()]);
    let [client, worker, admin] = ['b', 'c', 'd'].map(|letter| Http::with_key(&agq, &key(letter)));
    let id = client.enqueue(r#"{"type":"a","args":[]}"#);
    let fetch = r#"{"queues":["default"]}"#;
    assert_eq!(client.ask("POST", "/workers/fetch", fetch).status, 403);
    assert_eq!(worker.ask("POST", "/jobs", r#"{"type":"a","args":[]}"#).status, 403);
    assert_eq!(client.ask("POST", "/queues/default/pause", "").status, 403);
    assert_eq!(client.ask("GET", "/admin/stats", "").status, 403);
    let other = worker.ask("POST", "/workers/fetch", r#"{"queues":["default"],"worker_id":"w2"}"#);
    assert_eq!((other.status, other.code()), (403, "forbidden"));
    assert_eq!(worker.post("/workers/fetch", fetch)["job"]["worker_id"], "w1");
    assert_eq!(worker.post(&format!("/jobs/{id}/ack"), "")["state"], "completed");
    assert_eq!(admin.get("/admin/stats")["jobs"]["completed"], 1);
    let wrong = Http::with_key(&agq, &key('e')).ask("GET", "/queues", "");
    assert_eq!((wrong.status, wrong.code()), (401, "unauthorized"));
    let none = client.send(b"GET /ojs/v1/queues HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((none.status, none.headers["www-authenticate"].as_str()), (401, "Bearer"));
    for open in ["/health", "/ready", "/ojs/v1/health"] {
        assert_eq!(client.send(format!("GET {open} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).status, 200);
    }
}
