//! HTTP server that answers as the server of a language model does, with prepared answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};

/// A server on a port of its own. Each request gets the next answer; after the last answer, the
/// server closes its port.
pub struct ChatServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

/// A request that the server got.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// Request line and headers, each with its line end.
    pub head: String,
    /// Document of the request.
    pub body: Value,
}

/// Answer of the server.
pub enum ChatAnswer {
    /// A chat completion with this text.
    Text(String),
    /// A chat completion that ends with this text, because it reached a limit.
    Cut(String),
    /// A whole HTTP response.
    Raw(String),
    /// No answer: the connection stays open until the client closes it.
    Silence,
}

impl ChatServer {
    /// Starts a server with these answers.
    pub fn start(answers: impl IntoIterator<Item = ChatAnswer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let requests = Arc::default();
        let of_thread = Arc::clone(&requests);
        let answers: Vec<ChatAnswer> = answers.into_iter().collect();
        thread::spawn(move || serve(&listener, answers, &of_thread));
        Self { address, requests }
    }

    /// Returns the address of the API.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the host with its port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the requests until now.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(listener: &TcpListener, answers: Vec<ChatAnswer>, requests: &Mutex<Vec<ChatRequest>>) {
    for answer in answers {
        let (stream, _) = listener.accept().expect("a client can be accepted");
        let mut stream = BufReader::new(stream);
        let request = request(&mut stream);
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let response = match answer {
            ChatAnswer::Text(text) => completion(&text, "stop"),
            ChatAnswer::Cut(text) => completion(&text, "length"),
            ChatAnswer::Raw(response) => response,
            ChatAnswer::Silence => {
                // The end of the client is the end of the request. An error is an end, too.
                let _ended = stream.read_to_end(&mut Vec::new());
                continue;
            }
        };
        // A client that has read enough may close the connection before the end of the answer.
        let _closed = stream.get_mut().write_all(response.as_bytes());
    }
}

/// Returns the response with a chat completion.
fn completion(text: &str, finish_reason: &str) -> String {
    let message = json!({"role": "assistant", "content": text});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
    let body = json!({"object": "chat.completion", "choices": [choice]}).to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn request(stream: &mut BufReader<TcpStream>) -> ChatRequest {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).expect("the head is text"), 0, "the head has an end: {head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().expect("a length is a number"))
    });
    let mut body = vec![0; length.expect("the request has a length")];
    stream.read_exact(&mut body).expect("the body is as long as the head says");
    ChatRequest { head, body: serde_json::from_slice(&body).expect("the body is JSON") }
}
