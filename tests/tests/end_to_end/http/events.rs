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
    let mut stream = http.connect();
    let request = http.request("GET", &format!("/events/stream?channel={channel}"), "");
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
