//! A connection that blocks, as cheap as it gets and the same for every peer: a request out, its answer in. What was read stays
//! in the connection's buffer and is lent.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use agenix_harness::resp;

const BUFFER_BYTES: usize = 16_384;

/// A connection that has said nothing yet.
pub(super) struct Wire {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
    // What was read and not taken yet.
    start: usize,
    end: usize,
}

impl Wire {
    pub(super) fn open(address: &str) -> io::Result<Self> {
        let stream = resp::connect(address)?;
        Ok(Self { stream, request: Vec::new(), buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 })
    }

    /// Puts a command in RESP behind what is to be sent.
    pub(super) fn command(&mut self, parts: &[&str]) -> io::Result<()> {
        write!(self.request, "*{}\r\n", parts.len())?;
        for part in parts {
            write!(self.request, "${}\r\n{part}\r\n", part.len())?;
        }
        Ok(())
    }

    /// Puts a line, as it is, behind what is to be sent.
    pub(super) fn put(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.request.write_fmt(line)?;
        self.request.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Puts text, as it is, behind what is to be sent.
    pub(super) fn raw(&mut self, text: &str) {
        self.request.extend_from_slice(text.as_bytes());
    }

    /// The body of an answer over HTTP, which is to have this status.
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

    /// Sends what was put together.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> io::Result<&str> {
        let mut looked = 0;
        loop {
            let unread = &self.buffer[self.start + looked..self.end];
            if let Some(at) = unread.iter().position(|&byte| byte == b'\n') {
                let from = self.start;
                self.start += looked + at + 1;
                return text(self.buffer[from..self.start].trim_ascii_end());
            }
            looked = self.end - self.start;
            self.read_on()?;
        }
    }

    /// So many bytes and the line's end behind them.
    pub(super) fn body(&mut self, bytes: usize) -> io::Result<&str> {
        while self.end - self.start < bytes + 2 {
            self.read_on()?;
        }
        let from = self.start;
        self.start += bytes + 2;
        text(&self.buffer[from..from + bytes])
    }

    /// So many bytes.
    fn bytes(&mut self, bytes: usize) -> io::Result<&str> {
        while self.end - self.start < bytes {
            self.read_on()?;
        }
        let from = self.start;
        self.start += bytes;
        text(&self.buffer[from..from + bytes])
    }

    /// Sends a command in RESP that is answered with `+…` or `:…`, and takes that.
    pub(super) fn done(&mut self, parts: &[&str]) -> io::Result<()> {
        self.command(parts)?;
        self.send()?;
        self.is_done()
    }

    /// Takes a reply in RESP that is `+…` or `:…`.
    pub(super) fn is_done(&mut self) -> io::Result<()> {
        let line = self.line()?;
        if line.starts_with(['+', ':']) { Ok(()) } else { Err(unexpected(line)) }
    }

    /// Takes a bulk string in RESP, or that there is none.
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

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(io::Error::other)
}

/// The error that an answer is to somebody who cannot use it.
pub(super) fn unexpected(answer: &str) -> io::Error {
    let shown: String = answer.chars().take(200).collect();
    io::Error::other(format!("the server answered '{shown}'"))
}

/// The error that an empty queue is to somebody who has just put a job into it.
pub(super) fn nothing_ready() -> io::Error {
    io::Error::other("no job was ready, though one was submitted")
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener};

    use super::Wire;

    #[test]
    fn answers_are_read_whole_however_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = Wire::open(&listener.local_addr().unwrap().to_string()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let long = "x".repeat(50_000);
        let sent =
            format!("+OK\r\n:3\r\n$-1\r\n${}\r\n{long}\r\nRESERVED 7 2\r\nab\r\n-ERR no\r\n", long.len());
        let sender = std::thread::spawn(move || {
            for piece in sent.as_bytes().chunks(777) {
                server.write_all(piece).unwrap();
            }
        });
        wire.is_done().unwrap();
        wire.is_done().unwrap();
        assert_eq!(wire.bulk().unwrap(), None);
        assert_eq!(wire.bulk().unwrap().map(str::len), Some(50_000));
        assert_eq!(wire.line().unwrap(), "RESERVED 7 2");
        assert_eq!(wire.body(2).unwrap(), "ab");
        assert_eq!(wire.is_done().unwrap_err().to_string(), "the server answered '-ERR no'");
        sender.join().unwrap();
        assert!(wire.line().is_err());
    }
}
