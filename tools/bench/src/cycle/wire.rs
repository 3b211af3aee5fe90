//! A blocking connection with little cost of its own, which all contenders share. The connection
//! lends answers from its buffer instead of copying them.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use agenix_harness::resp;

const BUFFER_BYTES: usize = 16_384;

pub(super) struct BufferedConnection {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
    // Range of the buffer that was read and not taken yet.
    start: usize,
    end: usize,
}

impl BufferedConnection {
    pub(super) fn open(address: &str) -> io::Result<Self> {
        let stream = resp::connect(address)?;
        Ok(Self { stream, request: Vec::new(), buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 })
    }

    /// Appends a command in RESP to the request.
    pub(super) fn write_command(&mut self, parts: &[&str]) -> io::Result<()> {
        write!(self.request, "*{}\r\n", parts.len())?;
        for part in parts {
            write!(self.request, "${}\r\n{part}\r\n", part.len())?;
        }
        Ok(())
    }

    /// Appends a line to the request.
    pub(super) fn write_line(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.request.write_fmt(line)?;
        self.request.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends text to the request.
    pub(super) fn write_raw(&mut self, text: &str) {
        self.request.extend_from_slice(text.as_bytes());
    }

    /// Reads an answer over HTTP, which must have the status `status`, and returns its body.
    pub(super) fn http_answer(&mut self, status: &str) -> io::Result<&str> {
        let line = self.line()?;
        if line.split(' ').nth(1) != Some(status) {
            return Err(unexpected(line));
        }
        let mut length = 0;
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| unexpected(value))?;
            }
        }
        self.bytes(length)
    }

    /// Sends the request.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Reads the next line, and returns it without its end.
    pub(super) fn line(&mut self) -> io::Result<&str> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start + searched..self.end];
            if let Some(at) = unread.iter().position(|&byte| byte == b'\n') {
                let from = self.start;
                self.start += searched + at + 1;
                return text(self.buffer[from..self.start].trim_ascii_end());
            }
            searched = self.end - self.start;
            self.read_on()?;
        }
    }

    /// Reads `bytes` bytes and the end of the line, and returns the bytes.
    pub(super) fn body(&mut self, bytes: usize) -> io::Result<&str> {
        while self.end - self.start < bytes + 2 {
            self.read_on()?;
        }
        let from = self.start;
        self.start += bytes + 2;
        text(&self.buffer[from..from + bytes])
    }

    /// Reads `bytes` bytes.
    fn bytes(&mut self, bytes: usize) -> io::Result<&str> {
        while self.end - self.start < bytes {
            self.read_on()?;
        }
        let from = self.start;
        self.start += bytes;
        text(&self.buffer[from..from + bytes])
    }

    /// Sends a command in RESP, and reads its reply, which has to be `+…` or `:…`.
    pub(super) fn call(&mut self, parts: &[&str]) -> io::Result<()> {
        self.write_command(parts)?;
        self.send()?;
        self.read_ok()
    }

    /// Reads a reply in RESP, which has to be `+…` or `:…`.
    pub(super) fn read_ok(&mut self) -> io::Result<()> {
        let line = self.line()?;
        if line.starts_with(['+', ':']) { Ok(()) } else { Err(unexpected(line)) }
    }

    /// Reads a bulk string in RESP. Returns `None` for nil.
    pub(super) fn bulk(&mut self) -> io::Result<Option<&str>> {
        let line = self.line()?;
        if line == "$-1" {
            return Ok(None);
        }
        let bytes = line.strip_prefix('$').and_then(|bytes| bytes.parse().ok());
        let bytes = bytes.ok_or_else(|| unexpected(line))?;
        self.body(bytes).map(Some)
    }

    fn read_on(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.end += bytes;
                Ok(())
            }
        }
    }
}

impl AsFd for BufferedConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(io::Error::other)
}

/// Returns the error for an answer that the caller did not expect.
pub(super) fn unexpected(answer: &str) -> io::Error {
    let shown: String = answer.chars().take(200).collect();
    io::Error::other(format!("the server answered '{shown}'"))
}

/// Returns the error for an empty queue after a submission.
pub(super) fn nothing_ready() -> io::Error {
    io::Error::other("no job was ready, though one was submitted")
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener};

    use super::BufferedConnection;

    #[test]
    fn answers_are_read_whole_from_any_chunks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = BufferedConnection::open(&listener.local_addr().unwrap().to_string()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let long = "x".repeat(50_000);
        let sent =
            format!("+OK\r\n:3\r\n$-1\r\n${}\r\n{long}\r\nRESERVED 7 2\r\nab\r\n-ERR no\r\n", long.len());
        let sender = std::thread::spawn(move || {
            for batch in sent.as_bytes().chunks(777) {
                server.write_all(batch).unwrap();
            }
        });
        wire.read_ok().unwrap();
        wire.read_ok().unwrap();
        assert_eq!(wire.bulk().unwrap(), None);
        assert_eq!(wire.bulk().unwrap().map(str::len), Some(50_000));
        assert_eq!(wire.line().unwrap(), "RESERVED 7 2");
        assert_eq!(wire.body(2).unwrap(), "ab");
        assert_eq!(wire.read_ok().unwrap_err().to_string(), "the server answered '-ERR no'");
        sender.join().unwrap();
        assert!(wire.line().is_err());
    }
}
