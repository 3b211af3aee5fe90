//! A minimal blocking RESP client with timeouts.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Timeout of connecting, reading and writing: longer than any fault of the chaos test.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A reply in RESP.
#[derive(Debug, PartialEq)]
pub enum RespReply {
    /// `+text`
    Line(String),
    /// `-text`
    Error(String),
    /// `:number`
    Integer(u64),
    /// `$length`, and as many bytes
    Bulk(String),
    /// `$-1` or `*-1`
    Nil,
    /// `*length`, and as many replies
    Array(Vec<RespReply>),
}

/// A connection that is logged in.
pub struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects and logs in. `address` is `IP:PORT`.
    pub fn open(address: &str, key: &str) -> io::Result<Self> {
        let mut resp = Self { stream: BufReader::new(connect(address)?) };
        match resp.ask(&["AUTH", key])? {
            RespReply::Line(_ok) => Ok(resp),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a command and returns its reply.
    pub fn ask(&mut self, command: &[&str]) -> io::Result<RespReply> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command, whose reply follows those of earlier commands, and is read by
    /// [`Resp::receive`].
    pub fn send(&mut self, command: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", command.len());
        for argument in command {
            bytes += &format!("${}\r\n{argument}\r\n", argument.len());
        }
        self.stream.get_mut().write_all(bytes.as_bytes())
    }

    /// Reads the next reply.
    pub fn receive(&mut self) -> io::Result<RespReply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line))?;
        let length = || rest.parse().map_err(|_| malformed(line));
        match kind {
            "+" => Ok(RespReply::Line(rest.to_owned())),
            "-" => Ok(RespReply::Error(rest.to_owned())),
            ":" => rest.parse().map(RespReply::Integer).map_err(|_| malformed(line)),
            "$" | "*" if rest == "-1" => Ok(RespReply::Nil),
            "$" => self.bulk(length()?),
            "*" => (0..length()?).map(|_| self.receive()).collect::<io::Result<_>>().map(RespReply::Array),
            _ => Err(malformed(line)),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<RespReply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        String::from_utf8(bytes).map(RespReply::Bulk).map_err(io::Error::other)
    }
}

/// Opens a TCP connection to `IP:PORT` without logging in.
pub fn connect(address: &str) -> io::Result<TcpStream> {
    let address = address.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the error for a reply that the caller did not expect.
pub fn unexpected(reply: &RespReply) -> io::Error {
    io::Error::other(format!("agq answered {reply:?}"))
}

fn malformed(line: &str) -> io::Error {
    io::Error::other(format!("agq sent an invalid reply: '{line}'"))
}
