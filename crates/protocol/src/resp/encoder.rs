//! Encoder of replies, in RESP2 or RESP3.

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::Encoder;

use crate::limits::MAX_ERROR_LINE_BYTES;

/// RESP version of a connection. `HELLO 3` changes the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RespVersion {
    /// RESP2, the default.
    #[default]
    Two,
    /// RESP3, which has maps and nulls.
    Three,
}

/// Reply of agq.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+text`
    Simple(String),
    /// `-text`; the text begins with its code (`ERR …`).
    Error(String),
    /// `:number`
    Integer(i64),
    /// `$length`
    Bulk(Bytes),
    /// Null: `$-1` in RESP2, `_` in RESP3.
    Nil,
    /// Null array, the reply of a blocking pop that timed out: `*-1` in RESP2, `_` in RESP3.
    NilArray,
    /// `*count`
    Array(Vec<Reply>),
    /// A map in RESP3, a flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// A set in RESP3, an array in RESP2.
    Set(Vec<Reply>),
    /// Out-of-band message, such as a message of a channel: `>count` in RESP3, an array in RESP2.
    Push(Vec<Reply>),
    /// A double in RESP3, its text in RESP2.
    Double(f64),
    /// Members with scores: pairs in RESP3, a flat array in RESP2.
    Scored(Vec<(Bytes, f64)>),
    /// Several replies in sequence: SUBSCRIBE has one for each channel.
    Several(Vec<Reply>),
}

impl Reply {
    /// Returns `+OK`.
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// Returns a bulk string.
    pub fn bulk(text: impl Into<Bytes>) -> Self {
        Self::Bulk(text.into())
    }

    /// Returns a bulk string, or null.
    pub fn bulk_or_nil(text: Option<impl Into<Bytes>>) -> Self {
        text.map_or(Self::Nil, Self::bulk)
    }

    /// Returns an array of bulk strings.
    pub fn bulks<T: Into<Bytes>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::bulk).collect())
    }

    /// Returns a count as an integer.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// Encoder of replies in the RESP version of the connection.
#[derive(Debug, Default)]
pub struct ReplyEncoder {
    /// RESP version.
    pub version: RespVersion,
}

impl Encoder<Reply> for ReplyEncoder {
    type Error = std::io::Error;

    fn encode(&mut self, reply: Reply, dst: &mut BytesMut) -> std::io::Result<()> {
        put(&reply, self.version, dst);
        Ok(())
    }
}

fn put(reply: &Reply, version: RespVersion, dst: &mut BytesMut) {
    match (reply, version) {
        (Reply::Simple(text), _) => put_line(b'+', text, dst),
        (Reply::Error(text), _) => put_line(b'-', shortened(text), dst),
        (Reply::Integer(number), _) => put_number(b':', *number, dst),
        (Reply::Bulk(bytes), _) => put_bulk(bytes, dst),
        (Reply::Nil | Reply::NilArray, RespVersion::Three) => dst.put_slice(b"_\r\n"),
        (Reply::Nil, RespVersion::Two) => dst.put_slice(b"$-1\r\n"),
        (Reply::NilArray, RespVersion::Two) => dst.put_slice(b"*-1\r\n"),
        (Reply::Array(items), _) | (Reply::Set(items) | Reply::Push(items), RespVersion::Two) => {
            put_all(b'*', items, version, dst);
        }
        (Reply::Several(replies), _) => replies.iter().for_each(|reply| put(reply, version, dst)),
        (Reply::Set(items), RespVersion::Three) => put_all(b'~', items, version, dst),
        (Reply::Push(items), RespVersion::Three) => put_all(b'>', items, version, dst),
        (Reply::Double(number), RespVersion::Two) => put_bulk(double(*number).as_bytes(), dst),
        (Reply::Double(number), RespVersion::Three) => put_line(b',', &double(*number), dst),
        (Reply::Scored(members), _) => {
            let is_flat = version == RespVersion::Two;
            put_count(b'*', if is_flat { members.len() * 2 } else { members.len() }, dst);
            for (member, score) in members {
                if !is_flat {
                    put_count(b'*', 2, dst);
                }
                put_bulk(member, dst);
                put(&Reply::Double(*score), version, dst);
            }
        }
        (Reply::Map(pairs), _) => {
            match version {
                RespVersion::Two => put_count(b'*', pairs.len() * 2, dst),
                RespVersion::Three => put_count(b'%', pairs.len(), dst),
            }
            for (key, value) in pairs {
                put(key, version, dst);
                put(value, version, dst);
            }
        }
    }
}

fn put_all(kind: u8, items: &[Reply], version: RespVersion, dst: &mut BytesMut) {
    put_count(kind, items.len(), dst);
    items.iter().for_each(|item| put(item, version, dst));
}

fn put_bulk(bytes: &[u8], dst: &mut BytesMut) {
    put_count(b'$', bytes.len(), dst);
    dst.reserve(bytes.len() + 2);
    dst.put_slice(bytes);
    dst.put_slice(b"\r\n");
}

/// Formats a number as Redis does, like `%.17g` of C: 17 significant digits without trailing zeros.
fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific.as_str(), "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..17).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(16 - exponent).unwrap_or_default();
    without_zeros(&format!("{number:.decimals$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Returns the beginning of a long error line, cut between characters.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ERROR_LINE_BYTES)]
}

/// Writes `text` as one line. Line breaks are replaced, because an error may quote any text.
fn put_line(kind: u8, text: &str, dst: &mut BytesMut) {
    dst.put_u8(kind);
    dst.extend(text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
    dst.put_slice(b"\r\n");
}

fn put_count(kind: u8, count: usize, dst: &mut BytesMut) {
    put_number(kind, i64::try_from(count).unwrap_or(i64::MAX), dst);
}

fn put_number(kind: u8, number: i64, dst: &mut BytesMut) {
    dst.put_u8(kind);
    dst.put_slice(number.to_string().as_bytes());
    dst.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio_util::codec::Encoder;

    use super::{Reply, ReplyEncoder, RespVersion, double};

    fn encoded(version: RespVersion, reply: Reply) -> String {
        let mut dst = BytesMut::new();
        ReplyEncoder { version }.encode(reply, &mut dst).unwrap();
        String::from_utf8(dst.to_vec()).unwrap()
    }

    #[test]
    fn replies_are_encoded_in_both_versions() {
        let map = || Reply::Map(vec![(Reply::bulk("a"), Reply::Nil)]);
        assert_eq!(encoded(RespVersion::Two, map()), "*2\r\n$1\r\na\r\n$-1\r\n");
        assert_eq!(encoded(RespVersion::Three, map()), "%1\r\n$1\r\na\r\n_\r\n");
        assert_eq!(encoded(RespVersion::Two, Reply::NilArray), "*-1\r\n");
        assert_eq!(encoded(RespVersion::Two, Reply::Integer(-3)), ":-3\r\n");
    }

    #[test]
    fn resp3_types_fall_back_to_arrays_in_resp2() {
        let both =
            |reply: Reply| (encoded(RespVersion::Two, reply.clone()), encoded(RespVersion::Three, reply));
        let pair = |two: &str, three: &str| (two.to_owned(), three.to_owned());
        assert_eq!(both(Reply::Set(vec![Reply::bulk("a")])), pair("*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"));
        assert_eq!(both(Reply::Push(vec![Reply::Integer(1)])), pair("*1\r\n:1\r\n", ">1\r\n:1\r\n"));
        assert_eq!(both(Reply::Double(1.5)), pair("$3\r\n1.5\r\n", ",1.5\r\n"));
        let scored = Reply::Scored(vec![("a".into(), 2.0)]);
        let expected = pair("*2\r\n$1\r\na\r\n$1\r\n2\r\n", "*1\r\n*2\r\n$1\r\na\r\n,2\r\n");
        assert_eq!(both(scored), expected);
    }

    #[test]
    fn doubles_are_formatted_as_in_redis() {
        let texts = [
            (0.0, "0"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000001"),
            (1_700_000_000.0, "1700000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (0.00001, "1.0000000000000001e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in texts {
            assert_eq!(double(number), text);
        }
    }

    #[test]
    fn line_breaks_are_replaced_in_lines() {
        assert_eq!(encoded(RespVersion::Two, Reply::Error("ERR a\r\n+OK".into())), "-ERR a  +OK\r\n");
    }

    #[test]
    fn long_error_lines_are_shortened() {
        let error = |quoted: &str, times| Reply::Error(quoted.repeat(times));
        assert_eq!(encoded(RespVersion::Two, error("x", 8192)).len(), 8192 + 3);
        assert_eq!(encoded(RespVersion::Two, error("x", 8193)).len(), 8192 + 3);
        assert_eq!(encoded(RespVersion::Three, error("€", 4000)).len(), 8190 + 3, "no character is cut");
    }
}
