//! A minimal HTTP client for requests and event streams.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use super::resp::connect;

/// Response of agq, or the beginning of a stream.
pub(super) struct StreamingResponse {
    pub(super) status: u16,
    /// Cookie that agq sets.
    pub(super) cookie: Option<String>,
    /// Body, if it has a length.
    pub(super) body: String,
    /// Connection, from which the rest of a stream is read.
    pub(super) rest: BufReader<TcpStream>,
}

impl StreamingResponse {
    /// Returns the next line of a stream. The end of the stream is an error.
    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.rest.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }
}

/// Sends a request over a new connection. `headers` are whole lines.
pub(super) fn ask(
    address: &str,
    (method, path): (&str, &str),
    headers: &str,
    body: &str,
) -> io::Result<StreamingResponse> {
    let mut stream = connect(address)?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: agq\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer =
        StreamingResponse { status: 0, cookie: None, body: String::new(), rest: BufReader::new(stream) };
    let first = answer.line()?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    answer.status = status.ok_or_else(|| io::Error::other(format!("agq answered '{first}'")))?;
    let mut length = 0;
    loop {
        let line = answer.line()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "set-cookie" => answer.cookie = value.split(';').next().map(str::to_owned),
            "content-length" => length = value.parse().map_err(io::Error::other)?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    answer.rest.read_exact(&mut body)?;
    answer.body = String::from_utf8(body).map_err(io::Error::other)?;
    Ok(answer)
}
