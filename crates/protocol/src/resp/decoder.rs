//! Decoder of commands, which never allocates memory for an announced length: a bulk string takes
//! memory as its bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::Decoder;

use super::inline;
use crate::limits::{Limits, MAX_INLINE_BYTES, exceeds};

/// Maximum number of bytes of the header of an array or a bulk string.
const MAX_HEADER_BYTES: usize = 32;

/// Error of a frame. The connection is closed after the error, because the stream is out of step.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The command exceeds `max_message_bytes`.
    #[error("ERR Message too large: max {0} bytes")]
    TooLarge(usize),
    /// The command exceeds `max_elements`.
    #[error("ERR Message too large: max {0} elements")]
    TooManyElements(usize),
    /// The bytes are not RESP.
    #[error("ERR Protocol error: {0}")]
    Broken(&'static str),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Decoder of arrays of bulk strings and inline lines. Skips empty commands, as Redis.
#[derive(Debug)]
pub struct CommandDecoder {
    max_message_bytes: usize,
    max_elements: usize,
    partial: Option<Partial>,
}

/// Array of which some elements have arrived.
#[derive(Debug)]
struct Partial {
    missing: usize,
    taken_bytes: usize,
    bulk: Option<usize>,
    args: Vec<Bytes>,
}

impl CommandDecoder {
    /// Returns a decoder that refuses commands beyond `limits`.
    pub fn new(limits: &Limits) -> Self {
        Self { max_message_bytes: limits.max_message_bytes, max_elements: limits.max_elements, partial: None }
    }

    /// Sets the limits from the next command on.
    pub fn set_limits(&mut self, limits: &Limits) {
        (self.max_message_bytes, self.max_elements) = (limits.max_message_bytes, limits.max_elements);
    }

    /// Returns true if a command is incomplete, possibly without a buffered byte.
    pub fn has_begun(&self) -> bool {
        self.partial.is_some()
    }

    /// Returns the bytes that the incomplete command takes: its elements, and their capacity.
    pub fn held_bytes(&self) -> usize {
        let Some(partial) = &self.partial else { return 0 };
        partial.args.iter().map(Bytes::len).sum::<usize>() + partial.args.capacity() * size_of::<Bytes>()
    }

    /// Parses the header of an array (`*<count>`), or a whole inline command.
    fn begin(&mut self, src: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
        if src[0] != b'*' {
            return self.inline(src);
        }
        let Some(count) = take_number(src, "invalid multibulk length")? else { return Ok(None) };
        let Ok(count) = usize::try_from(count) else { return Ok(Some(Vec::new())) };
        if exceeds(count, self.max_elements) {
            return Err(FrameError::TooManyElements(self.max_elements));
        }
        let args = Vec::with_capacity(count.min(16));
        self.partial = Some(Partial { missing: count, taken_bytes: 0, bulk: None, args });
        Ok(None)
    }

    /// Parses an inline command, for which the limits of arrays hold.
    fn inline(&self, src: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
        let most = self.max_message_bytes;
        let line = if exceeds(MAX_INLINE_BYTES, most) {
            take_line(src, most).map_err(|_| FrameError::TooLarge(most))?
        } else {
            take_line(src, MAX_INLINE_BYTES)?
        };
        let Some(line) = line else { return Ok(None) };
        let args = inline::split(&line).ok_or(FrameError::Broken("unbalanced quotes in request"))?;
        if exceeds(args.len(), self.max_elements) {
            return Err(FrameError::TooManyElements(self.max_elements));
        }
        Ok(Some(args))
    }

    /// Takes elements until the array is complete or the buffer is empty.
    fn proceed(
        &mut self,
        mut partial: Partial,
        src: &mut BytesMut,
    ) -> Result<Option<Vec<Bytes>>, FrameError> {
        while partial.missing > 0 {
            let Some(length) = (match partial.bulk {
                Some(length) => Some(length),
                None => self.bulk_header(&mut partial, src)?,
            }) else {
                break;
            };
            partial.bulk = Some(length);
            if src.len() < length + 2 {
                break;
            }
            let bulk = src.split_to(length).freeze();
            if &src[..2] != b"\r\n" {
                return Err(FrameError::Broken("a bulk string is longer than its length says"));
            }
            src.advance(2);
            partial.args.push(bulk);
            partial.bulk = None;
            partial.missing -= 1;
        }
        if partial.missing == 0 {
            return Ok(Some(partial.args));
        }
        self.partial = Some(partial);
        Ok(None)
    }

    fn bulk_header(&self, partial: &mut Partial, src: &mut BytesMut) -> Result<Option<usize>, FrameError> {
        match src.first() {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(FrameError::Broken("expected '$': a command is an array of bulk strings")),
        }
        const INVALID: &str = "invalid bulk length";
        let Some(length) = take_number(src, INVALID)? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| FrameError::Broken(INVALID))?;
        partial.taken_bytes = partial.taken_bytes.saturating_add(length);
        if exceeds(partial.taken_bytes, self.max_message_bytes) {
            return Err(FrameError::TooLarge(self.max_message_bytes));
        }
        Ok(Some(length))
    }
}

/// Returns the lengths of the first line without and with its end, within `max`, or `None`.
fn first_line(src: &[u8], max: usize) -> Result<Option<(usize, usize)>, FrameError> {
    let too_long = Err(FrameError::Broken("too big inline request"));
    let Some(end) = src.iter().take(max + 2).position(|&b| b == b'\n') else {
        return if src.len() >= max + 2 { too_long } else { Ok(None) };
    };
    let length = if src[..end].ends_with(b"\r") { end - 1 } else { end };
    if length > max { too_long } else { Ok(Some((length, end + 1))) }
}

/// Removes a line, and returns it without its end. Returns `None` for an incomplete line.
fn take_line(src: &mut BytesMut, max: usize) -> Result<Option<BytesMut>, FrameError> {
    let Some((length, whole)) = first_line(src, max)? else { return Ok(None) };
    let mut line = src.split_to(whole);
    line.truncate(length);
    Ok(Some(line))
}

/// Removes a header from `src`: a sign and a number. Returns `None` for an incomplete line.
fn take_number(src: &mut BytesMut, invalid: &'static str) -> Result<Option<i64>, FrameError> {
    let Some((length, whole)) = first_line(src, MAX_HEADER_BYTES)? else { return Ok(None) };
    let found = number(&src[1..length]).ok_or(FrameError::Broken(invalid))?;
    src.advance(whole);
    Ok(Some(found))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Decoder for CommandDecoder {
    type Item = Vec<Bytes>;
    type Error = FrameError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Vec<Bytes>>, FrameError> {
        loop {
            if self.partial.is_none() {
                if src.is_empty() {
                    return Ok(None);
                }
                match self.begin(src)? {
                    Some(args) if args.is_empty() => continue,
                    Some(args) => return Ok(Some(args)),
                    None if self.partial.is_none() => return Ok(None),
                    None => {}
                }
            }
            let Some(partial) = self.partial.take() else { return Ok(None) };
            match self.proceed(partial, src)? {
                Some(args) if args.is_empty() => {}
                other => return Ok(other),
            }
        }
    }
}

#[cfg(test)]
mod tests;
