//! HTTP client of the tests, which writes requests itself, so that tests can send malformed ones.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use e2e::{Agq, Lab};
use serde_json::Value;

/// HTTP address of agq, and the key for its requests.
pub(crate) struct Http {
    address: String,
    key: String,
}

/// Response of agq.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Headers by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// Body as JSON, or null if the body is not JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Http {
    pub(crate) fn of(lab: &Lab, agq: &Agq) -> Self {
        Self::with_key(agq, lab.key())
    }

    pub(crate) fn with_key(agq: &Agq, key: &str) -> Self {
        Self { address: agq.http_address(), key: key.to_owned() }
    }

    /// Opens a connection, for tests that send raw bytes.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Returns the text of a request. `path` is relative to `/ojs/v1` unless it begins with `//`.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> String {
        let path = path
            .strip_prefix('/')
            .filter(|rest| rest.starts_with('/'))
            .map_or_else(|| format!("/ojs/v1{path}"), str::to_owned);
        let content = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: agq\r\nAuthorization: Bearer {}\r\n{content}\r\n{body}",
            self.key
        )
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> HttpResponse {
        self.send(self.request(method, path, body).as_bytes())
    }

    /// Sends raw bytes, and returns the response.
    pub(crate) fn send(&self, bytes: &[u8]) -> HttpResponse {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        HttpResponse::read(&mut BufReader::new(stream))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        let answer = self.ask("POST", path, body);
        assert!((200..300).contains(&answer.status), "{path} {body}: {} {}", answer.status, answer.text);
        answer.body
    }

    /// Submits a job, and returns its id.
    pub(crate) fn enqueue(&self, json: &str) -> String {
        self.post("/jobs", json)["job"]["id"].as_str().unwrap().to_owned()
    }

    /// Fetches a job of a queue, and waits up to two seconds for it.
    pub(crate) fn fetch(&self, worker: &str, queue: &str) -> Option<Value> {
        let body = format!(r#"{{"queues":["{queue}"],"worker_id":"{worker}","wait_ms":2000}}"#);
        let jobs = self.post("/workers/fetch", &body);
        jobs["jobs"].get(0).cloned()
    }

    /// Returns the state of a job.
    pub(crate) fn state(&self, id: &str) -> String {
        self.get(&format!("/jobs/{id}"))["job"]["state"].as_str().unwrap().to_owned()
    }
}

impl HttpResponse {
    pub(crate) fn read(from: &mut impl BufRead) -> Self {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer, but {line:?}"));
        let mut headers = BTreeMap::new();
        loop {
            line.clear();
            from.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        from.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or_default(), text }
    }

    /// Returns the error code of the response.
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}
