//! The smallest client there is: commands out, replies in. What it does not get in time it does not wait for.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Longer than any fault lasts.
const WITHIN: Duration = Duration::from_secs(15);

/// What agq answers.
#[derive(Debug, PartialEq)]
pub enum Reply {
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
    Array(Vec<Reply>),
}

/// A connection that is logged in.
pub struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects and logs in.
    pub fn open(address: &str, key: &str) -> io::Result<Self> {
        let mut resp = Self { stream: BufReader::new(connect(address)?) };
        match resp.ask(&["AUTH", key])? {
            Reply::Line(_ok) => Ok(resp),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a command and takes its reply.
    pub fn ask(&mut self, command: &[&str]) -> io::Result<Reply> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command; its reply has to be taken in its turn.
    pub fn send(&mut self, command: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", command.len());
        for argument in command {
            bytes += &format!("${}\r\n{argument}\r\n", argument.len());
        }
        self.stream.get_mut().write_all(bytes.as_bytes())
    }

    /// Takes the next reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line))?;
        let length = || rest.parse().map_err(|_| malformed(line));
        match kind {
            "+" => Ok(Reply::Line(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => rest.parse().map(Reply::Integer).map_err(|_| malformed(line)),
            "$" | "*" if rest == "-1" => Ok(Reply::Nil),
            "$" => self.bulk(length()?),
            "*" => (0..length()?).map(|_| self.receive()).collect::<io::Result<_>>().map(Reply::Array),
            _ => Err(malformed(line)),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        String::from_utf8(bytes).map(Reply::Bulk).map_err(io::Error::other)
    }
}

/// A connection that has said nothing yet.
pub fn connect(address: &str) -> io::Result<TcpStream> {
    let address = address.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The error that a reply is to somebody who cannot use it.
pub fn unexpected(reply: &Reply) -> io::Error {
    io::Error::other(format!("agq answered {reply:?}"))
}

fn malformed(line: &str) -> io::Error {
    io::Error::other(format!("agq sent what is no reply: '{line}'"))
}
