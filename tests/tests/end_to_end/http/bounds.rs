//! Limits of HTTP for sizes, waits and answers, which equal those of RESP.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
};

use e2e::{Agq, Lab, eventually};
use serde_json::{Value, json};

use super::{
    client::{Http, HttpResponse},
    dashboard::Visitor,
};
use crate::support::plan;

/// Sends `bytes`, which may be a part of a request, and returns the status of the answer. Checks
/// that agq closes the connection then.
fn status_of(http: &Http, bytes: &str) -> u16 {
    let mut stream = http.connect();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answers = BufReader::new(stream);
    let status = HttpResponse::read(&mut answers).status;
    let mut rest = Vec::new();
    answers.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "one answer, and the end: {rest:?}");
    status
}

/// Returns the head of a request, and the beginning of a longer body.
fn part(path: &str, headers: &str, length: usize, begun: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: agq\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{begun}"
    )
}

#[test]
fn body_of_somebody_unknown_is_short_and_is_not_waited_for() {
    let lab = Lab::new();
    let agq = lab.agq(&["--login-timeout", "0.3", "--frame-timeout", "0"]);
    let http = Http::of(&lab, &agq);
    let login = |length, begun: &str| status_of(&http, &part("/dashboard/login", "", length, begun));
    assert_eq!((login(9, ""), login(9, "{\"key\"")), (408, 408));
    assert_eq!(
        (login(4097, ""), login(usize::MAX / 2, "")),
        (413, 413),
        "it is refused when it is announced"
    );
    let chunked = "POST /dashboard/login HTTP/1.1\r\nHost: agq\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status_of(&http, &format!("{chunked}1388\r\n{}", "x".repeat(5000))), 413);
    // agq refuses unauthenticated clients before it reads a body.
    for path in ["/dashboard/command", "/ojs/v1/jobs"] {
        assert_eq!(status_of(&http, &part(path, "", 1000, "")), 401, "{path}");
    }
    let exact = format!("{{\"key\":\"{}\"}}", "k".repeat(4096 - 10));
    assert_eq!(http.send(part("/dashboard/login", "", exact.len(), &exact).as_bytes()).status, 401);
}

#[test]
fn body_of_somebody_known_has_the_time_of_a_command() {
    let lab = Lab::new();
    let agq = lab.agq(&["--login-timeout", "0", "--frame-timeout", "0.3", "--max-message-bytes", "10000"]);
    let http = Http::of(&lab, &agq);
    let key = format!("Authorization: Bearer {}\r\n", lab.key());
    let jobs = |length, begun: &str| status_of(&http, &part("/ojs/v1/jobs", &key, length, begun));
    assert_eq!((jobs(10, ""), jobs(5000, "{\"type\":"), jobs(10_001, "")), (408, 408, 413));
    let mut visitor = Visitor::new(&lab, &agq);
    visitor.log_in(lab.key());
    let command = |length| status_of(&http, &part("/dashboard/command", &visitor.headers(), length, "["));
    assert_eq!((command(5000), command(10_001)), (408, 413), "a session is as good as a key");
}

#[test]
fn client_that_sends_too_much_before_reading_still_gets_the_answer() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-message-bytes", "1000"]);
    let http = Http::of(&lab, &agq);
    let body = "x".repeat(3_000_000);
    let key = format!("Authorization: Bearer {}\r\n", lab.key());
    for (path, headers, status) in
        [("/ojs/v1/jobs", key.as_str(), 413), ("/ojs/v1/jobs", "", 401), ("/dashboard/login", "", 413)]
    {
        assert_eq!(status_of(&http, &part(path, headers, body.len(), &body)), status, "{path}");
    }
}

#[test]
fn client_that_reads_nothing_is_cut_off() {
    let lab = Lab::new();
    let agq = lab.agq(&["--send-timeout", "0.3"]);
    let http = Http::of(&lab, &agq);
    let id = http.enqueue(&format!(r#"{{"type":"a","args":["{}"]}}"#, "x".repeat(9_000_000)));
    let mut deaf = http.connect();
    deaf.write_all(http.request("GET", &format!("/jobs/{id}"), "").as_bytes()).unwrap();
    let log = lab.path().join("agq.log");
    let words = "it has read none of its replies for 0.3 seconds";
    eventually(words, || std::fs::read_to_string(&log).unwrap().contains(words).then_some(()));
    let mut came = Vec::new();
    // The read may fail, because agq may reset the connection.
    let _ended = deaf.read_to_end(&mut came);
    assert!(came.len() < 9_000_000, "all of it came: {}", came.len());
    assert_eq!(http.state(&id), "available");
}

#[test]
fn request_that_is_broken_or_too_large_gets_an_answer() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let get = |line: &str, headers: &str| status_of(&http, &format!("{line}\r\nHost: a\r\n{headers}\r\n"));
    let health = "GET /health HTTP/1.1";
    assert_eq!(get(&format!("GET /{} HTTP/1.1", "x".repeat(100_000)), ""), 431);
    assert_eq!(get(health, &"X: y\r\n".repeat(500)), 431);
    assert_eq!(get(health, &format!("X: {}\r\n", "y".repeat(1_000_000))), 431);
    for (line, headers) in [
        (health, "X: a\r\n b\r\n"),
        (health, "X: a\0b\r\n"),
        (health, "Content-Length: 1\r\nContent-Length: 2\r\n"),
        (health, "Content-Length: -1\r\n"),
        ("GET /health HTTP/3.0", ""),
        ("nonsense", ""),
    ] {
        assert_eq!(get(line, headers), 400, "{line} {headers:?}");
    }
    let jobs = |headers: &str, body: &str| {
        let key = format!("Authorization: Bearer {}\r\n", lab.key());
        status_of(&http, &format!("POST /ojs/v1/jobs HTTP/1.1\r\n{key}{headers}\r\n{body}"))
    };
    assert_eq!(jobs("Host: a\r\nTransfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n"), 400);
    assert_eq!(jobs("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", "1\r\n{\r\n"), 501);
    assert_eq!(jobs("Host: a\r\nExpect: 200-ok\r\nContent-Length: 2\r\n", "{"), 417);
    assert_eq!(jobs("Host: a\r\nHost: b\r\nContent-Length: 2\r\n", "{"), 400);
    assert_eq!(jobs("Content-Length: 2\r\n", "{"), 400);
}

/// Follows the cursors of a list, and returns all its jobs and the number of jobs of each page.
fn follow(http: &Http, path: &str) -> (Vec<String>, Vec<usize>) {
    let (mut ids, mut pages, mut cursor) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..20 {
        let page = http.get(&format!("{path}{cursor}"));
        let jobs = page["jobs"].as_array().unwrap();
        ids.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        pages.push(jobs.len());
        match page["pagination"]["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (ids, pages),
        }
    }
    panic!("the list has no end: {pages:?}");
}

#[test]
fn page_of_large_jobs_is_shorter_and_the_next_one_goes_on() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let large = "x".repeat(1_500_000);
    let mut all: Vec<String> = (0..5)
        .map(|_| http.enqueue(r#"{"type":"a","args":[],"options":{"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}}"#))
        .collect();
    for id in &all {
        let job = http.fetch("w", "default").unwrap();
        assert_eq!(job["id"], id.as_str());
        let ack = format!(r#"{{"job_id":"{id}","worker_id":"w","result":"{large}"}}"#);
        http.post("/workers/ack", &ack);
    }
    all.reverse();
    assert_eq!(follow(&http, "/jobs?limit=200"), (all.clone(), vec![2, 2, 1]));
    assert_eq!(follow(&http, "/jobs?limit=1&state=completed"), (all.clone(), vec![1; 5]));
    let page = http.get("//ojs/v1/admin/jobs?per_page=5");
    let shown: Vec<_> = page["items"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(shown, all.iter().collect::<Vec<_>>());
    assert!(page["items"][0]["result"].is_null(), "numbered pages are all of one length, without results");
    assert_eq!(http.get(&format!("/jobs/{}", all[0]))["job"]["result"], large);
    let wide = format!(r#"{{"type":"b","args":["{large}"],"options":{{"queue":"wide"}}}}"#);
    for _ in 0..3 {
        http.enqueue(&wide);
    }
    let refused = http.ask("GET", "/admin/jobs?per_page=3", "");
    assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{}", refused.text);
    assert_eq!(http.get("/admin/jobs?per_page=2")["items"].as_array().unwrap().len(), 2);
    assert_eq!(follow(&http, "/jobs?limit=200&queue=wide").1, [2, 1]);
}

#[test]
fn job_is_found_by_its_state_behind_many_newer_ones_and_every_list_ends() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let retried = http.enqueue(
        r#"{"type":"a","args":[],"options":{"retry":{"max_attempts":3,"initial_interval":"PT1H","jitter":false}}}"#,
    );
    http.fetch("w", "default").unwrap();
    http.post("/workers/nack", &format!(r#"{{"job_id":"{retried}","worker_id":"w","error":{{}}}}"#));
    let later = http.enqueue(r#"{"type":"a","args":[],"options":{"delay_until":"+PT1H"}}"#);
    let staged = http.enqueue(r#"{"type":"a","args":[],"options":{"pending":true}}"#);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "many", &json!(vec![json!({}); 10_300]).to_string());
    assert_eq!(follow(&http, "/jobs?state=retryable"), (vec![retried], vec![1]));
    assert_eq!(follow(&http, "/jobs?state=scheduled"), (vec![later], vec![1]));
    // The pending job is beyond the part of the list that agq searches, and the list ends without
    // it.
    let page = http.get("/jobs?state=pending");
    assert_eq!(
        (&page["pagination"]["has_more"], &page["pagination"]["next_cursor"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(http.state(&staged), "pending");
    let last = http.get("/jobs?limit=200&offset=10000");
    assert_eq!(
        (last["jobs"].as_array().unwrap().len(), &last["pagination"]["has_more"]),
        (200, &json!(true))
    );
}

/// Opens a stream of events for `visitor`.
fn listen(visitor: &Visitor) -> (u16, BufReader<TcpStream>) {
    let mut stream = BufReader::new(visitor.begin("GET", "/dashboard/events"));
    (HttpResponse::read(&mut stream).status, stream)
}

#[test]
fn open_dashboards_keep_nobody_away() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-connections-per-ip", "8"]);
    let http = Http::of(&lab, &agq);
    let mut visitor = Visitor::new(&lab, &agq);
    visitor.log_in(lab.key());
    let streams = [listen(&visitor), listen(&visitor)];
    assert_eq!(streams.each_ref().map(|(status, _)| *status), [200, 200]);
    let (refused, _) = listen(&visitor);
    assert_eq!(refused, 429, "there is one stream for four connections");
    // Connections of earlier requests may still be closing.
    let _idle: Vec<TcpStream> = (0..7).map(|_| eventually("a place", || place(&http))).collect();
    eventually("the eighth is answered", || (http.ask("GET", "//health", "").status == 200).then_some(()));
    drop(streams);
    eventually("a stream has gone", || (listen(&visitor).0 == 200).then_some(()));
}

/// Opens a connection, gets one answer on it, and keeps the connection open.
fn place(http: &Http) -> Option<TcpStream> {
    let mut stream = http.connect();
    stream.write_all(http.request("GET", "//health", "").as_bytes()).unwrap();
    let mut answers = BufReader::new(stream);
    (HttpResponse::read(&mut answers).status == 200).then(|| answers.into_inner())
}

fn alice(lab: &Lab) -> (Agq, Visitor) {
    let key = "a".repeat(64);
    let file = lab.file("agq.toml", &format!("[clients]\n\"alice\" = \"{key}\"\n"));
    let agq = lab.agq(&["--http", "127.0.0.1:0", "--config", &file.display().to_string()]);
    let mut alice = Visitor::new(lab, &agq);
    alice.log_in(&key);
    (agq, alice)
}

#[test]
fn stream_of_events_ends_with_its_session() {
    let lab = Lab::new();
    let (agq, alice) = alice(&lab);
    let (status, mut events) = listen(&alice);
    assert_eq!(status, 200);
    lab.file("agq.toml", "");
    agq.reload();
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the key has gone, and so the answer is complete: {rest}");
}

#[test]
fn stream_of_events_ends_when_somebody_logs_out() {
    let lab = Lab::new();
    let (_agq, alice) = alice(&lab);
    let (_, mut events) = listen(&alice);
    assert_eq!(alice.ask("POST", "/dashboard/logout", "").status, 204);
    events.read_to_string(&mut String::new()).unwrap();
}
