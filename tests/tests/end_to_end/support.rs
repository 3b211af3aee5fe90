//! Helpers that several tests share: a raw connection, plans in one line, and `agx down`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use e2e::{Agq, Lab, eventually};
use serde_json::Value;

/// `agx down`, which runs when this value is dropped, so that what agx has started ends with the
/// test.
pub(crate) struct DownOnDrop(pub(crate) Command);

impl Drop for DownOnDrop {
    fn drop(&mut self) {
        // The programs may have ended already.
        let _ended = self.0.output();
    }
}

/// A connection without a client library.
pub(crate) struct RawConnection {
    stream: BufReader<TcpStream>,
}

impl RawConnection {
    /// Opens a connection, without a login.
    pub(crate) fn bare(agq: &Agq) -> Self {
        let stream = TcpStream::connect(agq.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Opens a connection and logs in.
    pub(crate) fn open(lab: &Lab, agq: &Agq) -> Self {
        let mut raw = Self::bare(agq);
        raw.send(&format!("AUTH {}\n", lab.key()));
        assert_eq!(raw.line(), "+OK");
        raw
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Reads one line of a reply, and returns the line without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }

    /// Reads a bulk string.
    pub(crate) fn bulk(&mut self) -> String {
        self.bulk_or_nil().expect("a bulk string, and not nil")
    }

    /// Reads a bulk string, or nil.
    pub(crate) fn bulk_or_nil(&mut self) -> Option<String> {
        let head = self.line();
        if head == "$-1" {
            return None;
        }
        let length: usize = head
            .strip_prefix('$')
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("not a bulk: {head}"));
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        Some(String::from_utf8(bytes).unwrap())
    }

    /// Sends one inline command and reads a one-line reply.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(&format!("{command}\n"));
        self.line()
    }

    /// Sends `text`, closes the sending direction as `nc -N` does, and returns the remaining
    /// replies.
    pub(crate) fn send_last(mut self, text: &str) -> String {
        self.send(text);
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Returns true if the other side has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// Returns an `agx map` command without a running agq, with `tmp` of the lab as the directory for
/// temporary files.
pub(crate) fn map(lab: &Lab, args: &[&str]) -> Command {
    let tmp = lab.path().join("tmp");
    std::fs::create_dir_all(&tmp).expect("a directory of the lab can be created");
    let mut command = lab.command("agx");
    command.env("TMPDIR", tmp).arg("map").args(args);
    command
}

/// Returns a plan with one task.
pub(crate) fn plan(id: &str, command: &str, args: &[&str]) -> String {
    let args = serde_json::to_string(args).unwrap();
    format!(r#"{{"plan_id":"{id}","tasks":[{{"task_number":1,"command":"{command}","args":{args}}}]}}"#)
}

/// Returns the inputs `[{"n":0},{"n":1},…]`.
pub(crate) fn numbered(count: usize) -> String {
    let inputs: Vec<String> = (0..count).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    format!("[{}]", inputs.join(","))
}

pub(crate) fn action(lab: &Lab, agq: &Agq, id: &str) -> Value {
    lab.agx(agq, &["action", "status", id, "--json"]).expect(0).data()
}

/// Returns the status of the only job of an action.
pub(crate) fn only_job(lab: &Lab, agq: &Agq, action: &str) -> Value {
    let jobs = lab.agx(agq, &["job", "list", action, "--json"]).expect(0).data();
    lab.agx(agq, &["job", "status", jobs[0].as_str().unwrap(), "--json"]).expect(0).data()
}

/// Waits until the only job of an action has ended, and returns its status.
pub(crate) fn ended(lab: &Lab, agq: &Agq, action: &str) -> Value {
    eventually("the job ends", || {
        let job = only_job(lab, agq, action);
        (!matches!(job["status"].as_str(), Some("pending" | "running"))).then_some(job)
    })
}

/// Returns the process named `name` that has the directory `place` in its arguments.
pub(crate) fn process_of(name: &str, place: &Path) -> Option<i32> {
    let place = place.canonicalize().unwrap().display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let program = words.split('\0').next()?.rsplit('/').next()?.to_owned();
        (program == name && words.contains(&place)).then_some(pid)
    });
    found.last()
}

/// Returns true if `line` matches `pattern`, in which `…` stands for any text.
pub(crate) fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
