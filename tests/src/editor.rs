//! TCP proxy that edits the jobs that agq gives a worker, and the results that it shows a client,
//! as a malicious agq does.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::Value;

/// Changes a job document, or the status of an ended job.
type Edit = Box<dyn FnMut(&mut Value) + Send>;

/// A proxy on a port of its own. The drop closes the port. Connections end with their peers.
pub struct Editor {
    address: SocketAddr,
    shared: Arc<EditorState>,
    accepting: Option<JoinHandle<()>>,
}

struct EditorState {
    to: String,
    edit: Mutex<Edit>,
    is_closed: AtomicBool,
}

impl Editor {
    /// Starts a proxy to the address `to`, which changes no job.
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let edit: Mutex<Edit> = Mutex::new(Box::new(|_| {}));
        let shared = Arc::new(EditorState { to: to.to_owned(), edit, is_closed: AtomicBool::default() });
        let of_thread = Arc::clone(&shared);
        let accepting = Some(thread::spawn(move || accept(&listener, &of_thread)));
        Self { address, shared, accepting }
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes each job from now on by `edit`.
    pub fn edit(&self, edit: impl FnMut(&mut Value) + Send + 'static) {
        *self.shared.edit.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(edit);
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // The connection wakes the accepting thread. An error means that this thread has ended.
        let _woken = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            // A panic of the thread would have been reported already.
            let _ended = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<EditorState>) {
    for client in listener.incoming().flatten() {
        if shared.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(server) = TcpStream::connect(&shared.to) else { continue };
        let (Ok(commands), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
        thread::spawn(move || forward(commands, to_server));
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // Either side may go away at any time.
            let _gone = rewrite(&shared, &server, &client);
            let _gone = client.shutdown(Shutdown::Both);
            let _gone = server.shutdown(Shutdown::Both);
        });
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    // Either side may go away at any time.
    let _gone = std::io::copy(&mut from, &mut to);
    let _gone = to.shutdown(Shutdown::Both);
}

/// Forwards replies, and changes the bulk strings that are jobs or their results.
fn rewrite(shared: &EditorState, from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let length = std::str::from_utf8(&line).ok().filter(|line| line.starts_with(['$', '=', '!']));
        let length: Option<usize> = length.and_then(|line| line[1..].trim_end().parse().ok());
        let Some(length) = length else {
            to.write_all(&line)?;
            continue;
        };
        let mut bytes = vec![0; length + 2];
        from.read_exact(&mut bytes)?;
        bytes.truncate(length);
        let bytes = edited(shared, bytes);
        let head = format!("{}{}\r\n", char::from(line[0]), bytes.len());
        to.write_all(&[head.as_bytes(), &bytes, b"\r\n"].concat())?;
    }
}

fn edited(shared: &EditorState, bytes: Vec<u8>) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    let has = |fields: [&str; 4]| fields.iter().all(|field| value.get(field).is_some());
    let is_ended = value.get("task_results").is_some_and(Value::is_array)
        && has(["job_id", "status", "inputs", "attempt"]);
    if !is_ended && !has(["job_id", "plan", "inputs", "attempt"]) {
        return bytes;
    }
    let before = value.clone();
    (shared.edit.lock().unwrap_or_else(PoisonError::into_inner))(&mut value);
    if value == before { bytes } else { value.to_string().into_bytes() }
}
