//! Raw RESP connection: sends commands and reads replies as bytes, over any stream.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

use e2e::Agq;

/// Maximum wait for a reply.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A TCP or Unix socket.
pub(crate) trait ByteStream: Read + Write {}

impl<T: Read + Write> ByteStream for T {}

/// A connection without a client library.
pub(crate) struct Wire {
    stream: BufReader<Box<dyn ByteStream>>,
    broken: Option<&'static str>,
}

impl Wire {
    /// Wraps a new stream, without a login.
    pub(crate) fn over(stream: impl ByteStream + 'static) -> Self {
        let stream: Box<dyn ByteStream> = Box::new(stream);
        Self { stream: BufReader::new(stream), broken: None }
    }

    /// Connects to agq, without a login.
    pub(crate) fn to(agq: &Agq) -> Self {
        let stream = TcpStream::connect(agq.address()).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        Self::over(stream)
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        if self.stream.get_mut().write_all(bytes).is_err() {
            self.broken = Some("<closed>");
        }
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, words: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        self.send_bytes(&bytes);
    }

    /// Returns the next reply. If none arrives, returns a word in angle brackets, and reads no
    /// further reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.broken.is_none() {
            self.broken = match self.read_value(&mut bytes).map_err(|error| error.kind()) {
                Ok(()) => None,
                Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some("<nothing comes>"),
                Err(_) => Some("<closed>"),
            };
        }
        self.broken.map_or(bytes, |why| why.as_bytes().to_vec())
    }

    fn read_value(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let start = bytes.len();
        if self.stream.read_until(b'\n', bytes)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match Shape::of(&bytes[start..]) {
            Shape::Line => {}
            Shape::Bulk(length) => {
                let from = bytes.len();
                bytes.resize(from + length + 2, 0);
                self.stream.read_exact(&mut bytes[from..])?;
            }
            Shape::Many(count) => {
                for _ in 0..count {
                    self.read_value(bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Continuation after the first line of a value.
enum Shape {
    /// No continuation.
    Line,
    /// This number of bytes, and a line end.
    Bulk(usize),
    /// This number of values.
    Many(usize),
}

impl Shape {
    fn of(line: &[u8]) -> Self {
        let text = line.get(1..).and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
        match (line.first(), text.trim_end().parse::<usize>()) {
            (Some(b'$' | b'='), Ok(length)) => Self::Bulk(length),
            (Some(b'*' | b'~' | b'>'), Ok(count)) => Self::Many(count),
            (Some(b'%'), Ok(count)) => Self::Many(2 * count),
            _ => Self::Line,
        }
    }
}

/// Returns the first line of a value with its line end.
pub(crate) fn head(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|&byte| byte == b'\n').map_or(value.len(), |at| at + 1);
    &value[..end]
}

/// Returns the length of the first value in bytes.
fn length(bytes: &[u8]) -> usize {
    let line = head(bytes);
    match Shape::of(line) {
        Shape::Line => line.len(),
        Shape::Bulk(length) => line.len() + length + 2,
        Shape::Many(count) => (0..count).fold(line.len(), |at, _| at + length(&bytes[at..])),
    }
}

/// Returns the elements of an array, a set, a push or a map, and nothing for other values.
pub(crate) fn elements(value: &[u8]) -> Vec<Vec<u8>> {
    let line = head(value);
    let mut found = Vec::new();
    if matches!(Shape::of(line), Shape::Many(_)) {
        let mut rest = &value[line.len()..];
        while !rest.is_empty() {
            let (first, others) = rest.split_at(length(rest));
            found.push(first.to_vec());
            rest = others;
        }
    }
    found
}

/// Returns the content of a one-line value or a bulk string.
pub(crate) fn payload(value: &[u8]) -> &[u8] {
    let line = head(value);
    match Shape::of(line) {
        Shape::Bulk(length) => &value[line.len()..line.len() + length],
        Shape::Line | Shape::Many(_) => line.get(1..).unwrap_or_default().trim_ascii_end(),
    }
}

#[test]
fn values_are_taken_apart() {
    let value = b"*3\r\n$2\r\na\n\r\n%1\r\n+k\r\n*0\r\n_\r\n";
    let parts = elements(value);
    assert_eq!(parts, [b"$2\r\na\n\r\n".to_vec(), b"%1\r\n+k\r\n*0\r\n".to_vec(), b"_\r\n".to_vec()]);
    assert_eq!((payload(&parts[0]), payload(b":12\r\n")), (b"a\n".as_slice(), b"12".as_slice()));
    assert!(elements(b"$-1\r\n").is_empty() && elements(b"*-1\r\n").is_empty());
}
