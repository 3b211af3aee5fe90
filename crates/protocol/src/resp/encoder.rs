//! Replies to bytes, in RESP2 or RESP3.

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::Encoder;

/// Which RESP a connection speaks; `HELLO 3` changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RespVersion {
    /// What everyone speaks who did not say otherwise.
    #[default]
    Two,
    /// Asked for by `HELLO 3`: maps and nulls of their own.
    Three,
}

/// What agq answers.
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
    /// Nothing there: `$-1` in RESP2, `_` in RESP3.
    Nil,
    /// No array there (a blocking pop of an introduced client that timed out): `*-1` in RESP2, `_` in RESP3.
    NilArray,
    /// `*count`
    Array(Vec<Reply>),
    /// A map in RESP3, a flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// `+OK`
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// A bulk string.
    pub fn bulk(text: impl Into<Bytes>) -> Self {
        Self::Bulk(text.into())
    }

    /// A bulk string, or nil.
    pub fn bulk_or_nil(text: Option<impl Into<Bytes>>) -> Self {
        text.map_or(Self::Nil, Self::bulk)
    }

    /// An array of bulk strings.
    pub fn bulks<T: Into<Bytes>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::bulk).collect())
    }

    /// A count.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// Encodes replies in the connection's RESP.
#[derive(Debug, Default)]
pub struct ReplyEncoder {
    /// The RESP to speak.
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
        (Reply::Error(text), _) => put_line(b'-', text, dst),
        (Reply::Integer(number), _) => put_number(b':', *number, dst),
        (Reply::Bulk(bytes), _) => {
            put_count(b'$', bytes.len(), dst);
            dst.reserve(bytes.len() + 2);
            dst.put_slice(bytes);
            dst.put_slice(b"\r\n");
        }
        (Reply::Nil | Reply::NilArray, RespVersion::Three) => dst.put_slice(b"_\r\n"),
        (Reply::Nil, RespVersion::Two) => dst.put_slice(b"$-1\r\n"),
        (Reply::NilArray, RespVersion::Two) => dst.put_slice(b"*-1\r\n"),
        (Reply::Array(items), _) => {
            put_count(b'*', items.len(), dst);
            items.iter().for_each(|item| put(item, version, dst));
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

/// A line must stay one line: what a user typed may be quoted in it.
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

    use super::{Reply, ReplyEncoder, RespVersion};

    fn encoded(version: RespVersion, reply: Reply) -> String {
        let mut dst = BytesMut::new();
        ReplyEncoder { version }.encode(reply, &mut dst).unwrap();
        String::from_utf8(dst.to_vec()).unwrap()
    }

    #[test]
    fn both_versions() {
        let map = || Reply::Map(vec![(Reply::bulk("a"), Reply::Nil)]);
        assert_eq!(encoded(RespVersion::Two, map()), "*2\r\n$1\r\na\r\n$-1\r\n");
        assert_eq!(encoded(RespVersion::Three, map()), "%1\r\n$1\r\na\r\n_\r\n");
        assert_eq!(encoded(RespVersion::Two, Reply::NilArray), "*-1\r\n");
        assert_eq!(encoded(RespVersion::Two, Reply::Integer(-3)), ":-3\r\n");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(encoded(RespVersion::Two, Reply::Error("ERR a\r\n+OK".into())), "-ERR a  +OK\r\n");
    }
}
