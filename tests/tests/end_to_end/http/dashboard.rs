//! Requests of the dashboard as a browser sends them, and forged requests of other sites.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use e2e::{Agq, Lab, eventually};
use serde_json::{Value, json};

use super::client::{Http, HttpResponse};
use crate::support::{RawConnection, plan};

/// A browser user: the session cookie and the CSRF token, both empty before the login.
pub(super) struct Visitor {
    http: Http,
    cookie: String,
    csrf: String,
}

impl Visitor {
    pub(super) fn new(lab: &Lab, agq: &Agq) -> Self {
        Self { http: Http::of(lab, agq), cookie: String::new(), csrf: String::new() }
    }

    fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let (cookie, length) = (&self.cookie, body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nHost: agq\r\nCookie: {cookie}\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    /// Returns the headers that authenticate the visitor.
    pub(super) fn headers(&self) -> String {
        format!("Cookie: {}\r\nX-CSRF-Token: {}\r\n", self.cookie, self.csrf)
    }

    /// Sends a request and returns the connection without reading the answer.
    pub(super) fn begin(&self, method: &str, path: &str) -> TcpStream {
        let mut stream = self.http.connect();
        stream.write_all(self.request(method, path, "", "").as_bytes()).unwrap();
        stream
    }

    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> HttpResponse {
        let csrf = format!("X-CSRF-Token: {}\r\n", self.csrf);
        self.http.send(self.request(method, path, &csrf, body).as_bytes())
    }

    pub(super) fn log_in(&mut self, key: &str) -> HttpResponse {
        let answer = self.ask("POST", "/dashboard/login", &json!({"key": key}).to_string());
        if let Some(cookie) = answer.headers.get("set-cookie") {
            self.cookie = cookie.split(';').next().unwrap().to_owned();
            self.csrf = answer.body["csrf"].as_str().unwrap().to_owned();
        }
        answer
    }

    fn command(&self, words: &[&str]) -> Value {
        self.ask("POST", "/dashboard/command", &json!(words).to_string()).body
    }
}

#[test]
fn dashboard_comes_with_a_strict_policy_and_nothing_else_without_a_session() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let visitor = Visitor::new(&lab, &agq);
    let page = visitor.ask("GET", "/", "");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    for path in ["/dashboard/app.js", "/dashboard/style.css"] {
        assert_eq!(visitor.ask("GET", path, "").status, 200, "{path}");
    }
    let policy = &page.headers["content-security-policy"];
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for elsewhere in ["src=\"http", "href=\"http", "src=\"//", "href=\"//"] {
        assert!(!page.text.contains(elsewhere), "it asks another host for something: {elsewhere}");
    }
    for (method, path) in [
        ("GET", "session"),
        ("GET", "recent"),
        ("GET", "history"),
        ("GET", "events"),
        ("POST", "command"),
        ("POST", "logout"),
    ] {
        assert_eq!(visitor.ask(method, &format!("/dashboard/{path}"), "[]").status, 401, "{path}");
    }
}

#[test]
fn clients_with_a_key_log_in_and_only_their_own_page_gives_commands() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let mut visitor = Visitor::new(&lab, &agq);
    let wrong = visitor.log_in("not the key");
    assert_eq!((wrong.status, wrong.body["error"].as_str()), (401, Some("agq does not know this key.")));
    let right = visitor.log_in(lab.key());
    assert_eq!((right.status, right.body["role"].as_str()), (200, Some("admin")));
    let cookie = &right.headers["set-cookie"];
    assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains(lab.key()), "{cookie}");
    assert_eq!(visitor.ask("GET", "/dashboard/session", "").body["csrf"], right.body["csrf"]);
    assert_eq!(visitor.command(&["PLAN.LIST"]), json!({"reply": []}));
    // Another site can make the browser send the cookie, but never the CSRF token.
    let forged = visitor.request("POST", "/dashboard/command", "", r#"["QUEUE.PAUSE","ready"]"#);
    assert_eq!(visitor.http.send(forged.as_bytes()).status, 403);
    for words in
        [&["BRPOP", "queue:ready", "0"][..], &["FLUSHALL"], &["SET", "a", "b"], &["PLAN.SUBMIT", "{}"]]
    {
        let answer = visitor.command(words);
        assert!(answer["error"].is_string(), "{words:?}: {answer}");
    }
    let several =
        visitor.ask("POST", "/dashboard/command", r#"[["JOB.STATUS","nowhere"],["JOB.RETRY","nowhere"]]"#);
    assert_eq!(several.body, json!({"replies": [{"reply": null}, {"error": "ERR Job not found: nowhere"}]}));
    assert_eq!(
        visitor.ask("POST", "/dashboard/command", &json!(vec![["PLAN.LIST"]; 101]).to_string()).status,
        400
    );
    assert_eq!(visitor.ask("POST", "/dashboard/logout", "").status, 204);
    assert_eq!(visitor.ask("GET", "/dashboard/session", "").status, 401);
}

#[test]
fn session_may_do_what_its_key_may_and_ends_with_it() {
    let lab = Lab::new();
    let key = "a".repeat(64);
    let file = lab.file("agq.toml", &format!("[clients]\n\"alice\" = \"{key}\"\n"));
    let agq = lab.agq(&["--http", "127.0.0.1:0", "--config", &file.display().to_string()]);
    let mut alice = Visitor::new(&lab, &agq);
    let known = alice.log_in(&key).body;
    assert_eq!((known["name"].as_str(), known["role"].as_str()), (Some("alice"), Some("client")));
    assert_eq!(alice.command(&["PLAN.LIST"]), json!({"reply": []}));
    let refused = alice.command(&["QUEUE.PAUSE", "ready"]);
    assert!(refused["error"].as_str().unwrap().starts_with("NOPERM"), "{refused}");
    lab.file("agq.toml", "");
    agq.reload();
    eventually("her session is over", || {
        (alice.ask("GET", "/dashboard/session", "").status == 401).then_some(())
    });
}

#[test]
fn changes_are_sent_and_shown() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let mut visitor = Visitor::new(&lab, &agq);
    visitor.log_in(lab.key());
    let mut stream = visitor.http.connect();
    stream.write_all(visitor.request("GET", "/dashboard/events", "", "").as_bytes()).unwrap();
    let mut events = BufReader::new(stream).lines().map(|line| line.unwrap());
    assert!(events.next().unwrap().contains(" 200 "));
    assert!(events.any(|line| line == "event: totals"), "the numbers come first");
    lab.submit_plan(&agq, &plan("p", "false", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    assert!(events.any(|line| line == "event: changed"), "the connection ended");
    assert!(events.any(|line| line == "event: totals"), "the connection ended");
    let numbers = events.next().unwrap();
    assert!(numbers.starts_with("data: {") && numbers.contains("\"running\":"), "{numbers}");
    let recent = eventually("the job has failed", || {
        let recent = visitor.ask("GET", "/dashboard/recent", "").body;
        recent["dead"][0].is_object().then_some(recent)
    });
    assert_eq!(
        (&recent["actions"][0]["action_id"], &recent["dead"][0]["status"]),
        (&json!("a"), &json!("failed"))
    );
    assert_eq!(recent["plans"]["p"], "");
    eventually("a point of the history", || {
        let points = visitor.ask("GET", "/dashboard/history", "").body;
        points["points"][0][0].is_u64().then_some(())
    });
}

#[test]
fn dashboards_and_subscribers_of_the_same_number_are_distinguished() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let mut subscribers: Vec<RawConnection> = (0..5).map(|_| RawConnection::open(&lab, &agq)).collect();
    for subscriber in &mut subscribers {
        subscriber.send("SUBSCRIBE news\n");
        let confirmation: Vec<String> = (0..6).map(|_| subscriber.line()).collect();
        assert_eq!(confirmation.last().map(String::as_str), Some(":1"));
    }
    let mut visitor = Visitor::new(&lab, &agq);
    visitor.log_in(lab.key());
    // There are more streams than subscribers, so that every number of a subscriber is also taken
    // by a stream.
    let mut streams: Vec<_> = (0..8).map(|_| visitor.http.connect()).collect();
    for stream in &mut streams {
        stream.write_all(visitor.request("GET", "/dashboard/events", "", "").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{line}");
    }
    let mut publisher = RawConnection::open(&lab, &agq);
    assert_eq!(publisher.ask("PUBLISH news hello"), ":5");
    drop(streams);
    assert_eq!(publisher.ask("PUBLISH news again"), ":5");
    for subscriber in &mut subscribers {
        let lines: Vec<String> = (0..14).map(|_| subscriber.line()).collect();
        assert_eq!((lines[6].as_str(), lines[13].as_str()), ("hello", "again"));
    }
}
