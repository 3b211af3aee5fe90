//! Event streams over HTTP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Command,
};

use e2e::{Lab, Ran, eventually};

use super::client::{Http, HttpResponse};

#[test]
fn client_in_javascript_follows_a_job_and_a_queue() {
    let is_there = Command::new("node").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if !is_there {
        println!("SKIPPED: node is not installed here");
        return;
    }
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let output = Command::new("node")
        .arg(Lab::repository("tests/sessions/ojs_stream.mjs"))
        .env("AGQ_URL", format!("http://{}", agq.http_address()))
        .env("AGQ_SESSION_KEY", lab.key())
        .output()
        .unwrap();
    let ran = Ran::from(output).expect(0);
    assert!(ran.out.ends_with("all went well\n"), "{}", ran.out);
}

fn listen(http: &Http, channel: &str) -> (u16, BufReader<TcpStream>) {
    listen_after(http, channel, "")
}

/// Listens as a client that returns with the id of the last event that it has seen.
fn listen_after(http: &Http, channel: &str, id: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = http.connect();
    let request = http.request("GET", &format!("/events/stream?channel={channel}"), "");
    let request = request.replacen("\r\n\r\n", &format!("\r\nLast-Event-ID: {id}\r\n\r\n"), 1);
    stream.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    (HttpResponse::read(&mut stream).status, stream)
}

#[test]
fn channel_that_is_none_is_refused_by_its_name() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    for (query, status, words) in [
        ("", 400, "channel is given 0 times"),
        ("?channel=", 400, "channel is '': use job:ID, queue:NAME or all"),
        ("?channel=worker:w", 400, "channel is 'worker:w': use job:ID, queue:NAME or all"),
        ("?channel=queue:UPPER", 400, "channel: "),
        ("?channel=all&channel=job:01a203e0-e84a-71a8-99bb-19d356fd439e", 404, "Job not found"),
    ] {
        let answer = http.ask("GET", &format!("/events/stream{query}"), "");
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
        assert!(answer.text.contains(words), "{query}: {}", answer.text);
    }
    let (lab, worker) = (Lab::new(), "w".repeat(64));
    let file = lab.file("agq.toml", &format!("[workers]\n\"w\" = \"{worker}\"\n"));
    let agq = lab.agq(&["--http", "127.0.0.1:0", "--config", &file.display().to_string()]);
    assert_eq!(Http::with_key(&agq, &worker).ask("GET", "/events/stream?channel=all", "").status, 403);
}

#[test]
fn streams_are_bounded_and_end_with_their_key() {
    let lab = Lab::new();
    let key = "a".repeat(64);
    let file = lab.file("agq.toml", &format!("[clients]\n\"alice\" = \"{key}\"\n"));
    let agq = lab.agq(&[
        "--http",
        "127.0.0.1:0",
        "--config",
        &file.display().to_string(),
        "--max-connections-per-ip",
        "8",
    ]);
    let (alice, http) = (Http::with_key(&agq, &key), Http::of(&lab, &agq));
    let (status, mut first) = listen(&alice, "queue:default,queue:other");
    let (_, second) = listen(&http, "all");
    assert_eq!((status, listen(&http, "all").0), (200, 429), "there is one stream for four connections");
    drop(second);
    eventually("a place is free", || (listen(&http, "all").0 == 200).then_some(()));
    http.enqueue(r#"{"type":"a","args":[],"options":{"queue":"other"}}"#);
    let mut line = String::new();
    while !line.starts_with("event: job.enqueued") {
        line.clear();
        assert!(first.read_line(&mut line).unwrap() > 0, "the stream goes on");
    }
    lab.file("agq.toml", "");
    agq.reload();
    eventually("the key is withdrawn", || (alice.ask("GET", "/queues", "").status == 401).then_some(()));
    // The check of the key comes before each event.
    http.enqueue(r#"{"type":"secret.job","args":[],"options":{"queue":"other"}}"#);
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n") && !rest.contains("secret.job"), "{rest}");
}

#[test]
fn client_that_returns_after_the_stored_events_of_others_gets_the_events_of_its_queue() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let (rare, other) = (r#"{"type":"a","args":[],"options":{"queue":"rare"}}"#, r#"{"type":"a","args":[]}"#);
    http.enqueue(rare);
    let seen = eventually("the event is logged", || {
        http.get("/events?queues=rare")["events"][0]["id"].as_str().map(str::to_owned)
    });
    http.post("/jobs/batch", &format!(r#"{{"jobs":[{}]}}"#, vec![other; 10_002].join(",")));
    eventually("the log has dropped the next event", || {
        http.get(&format!("/events?limit=1&cursor={seen}"))["has_gap"].as_bool().filter(|has_gap| *has_gap)
    });
    let (status, mut stream) = listen_after(&http, "queue:rare", &seen);
    assert_eq!(status, 200);
    let mut next_line = || {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream goes on");
        line
    };
    while next_line() != ":gap\n" {}
    http.enqueue(rare);
    while next_line() != "event: job.enqueued\n" {}
}
