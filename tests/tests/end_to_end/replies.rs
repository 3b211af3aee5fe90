//! Property test of replies: the redis crate decodes every reply of agq in both versions of RESP,
//! and stays in step.

use agenix_protocol::{
    limits::MAX_ERROR_LINE_BYTES,
    resp::{Reply, ReplyEncoder, RespVersion},
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_oneof, proptest};
use redis::{Parser, Value};
use tokio_util::codec::Encoder;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

/// Generates all numbers except NaN, because a score cannot be NaN.
fn double() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("not a number", |number| !number.is_nan())
}

fn reply() -> impl Strategy<Value = Reply> {
    let text = || prop_oneof![any::<String>(), Just("OK".to_owned()), Just("ERR a\r\n+OK\n".to_owned())];
    let leaf = prop_oneof![
        text().prop_map(Reply::Simple),
        text().prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Integer),
        bytes().prop_map(Reply::Bulk),
        Just(Reply::Nil),
        Just(Reply::NilArray),
        double().prop_map(Reply::Double),
        prop::collection::vec((bytes(), double()), 0..4).prop_map(Reply::Scored),
    ];
    leaf.prop_recursive(3, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Reply::Array),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Reply::Set),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Reply::Map),
        ]
    })
}

/// Generates a push message, whose first item is its kind.
fn push() -> impl Strategy<Value = Reply> {
    ("[a-z]{1,9}", prop::collection::vec(reply(), 0..4)).prop_map(|(kind, mut items)| {
        items.insert(0, Reply::bulk(kind));
        Reply::Push(items)
    })
}

/// Returns the reply in the types of this RESP version.
fn shaped(reply: &Reply, version: RespVersion) -> Reply {
    let is_flat = version == RespVersion::Two;
    let each = |items: &[Reply]| items.iter().map(|item| shaped(item, version)).collect::<Vec<_>>();
    match reply {
        Reply::Array(items) => Reply::Array(each(items)),
        Reply::Set(items) if is_flat => Reply::Array(each(items)),
        Reply::Push(items) if is_flat => Reply::Array(each(items)),
        Reply::Set(items) => Reply::Set(each(items)),
        Reply::Push(items) => Reply::Push(each(items)),
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (shaped(key, version), shaped(value, version)));
            if is_flat {
                Reply::Array(pairs.flat_map(<[Reply; 2]>::from).collect())
            } else {
                Reply::Map(pairs.collect())
            }
        }
        Reply::Scored(members) => {
            let pairs =
                members.iter().map(|(member, score)| [Reply::Bulk(member.clone()), Reply::Double(*score)]);
            let pairs = pairs.map(Vec::from);
            Reply::Array(if is_flat { pairs.flatten().collect() } else { pairs.map(Reply::Array).collect() })
        }
        other => other.clone(),
    }
}

/// Returns the part of `text` that a one-line reply transmits.
fn line(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].replace(['\r', '\n'], " ")
}

/// Returns true if a client has read the reply `sent`.
fn is(read: &Value, sent: &Reply) -> bool {
    let all = |items: &[Reply], read: &[Value]| {
        items.len() == read.len() && items.iter().zip(read).all(|(sent, read)| is(read, sent))
    };
    match (sent, read) {
        (Reply::Simple(text), Value::Okay) => text == "OK",
        (Reply::Simple(text), Value::SimpleString(read)) => line(text, usize::MAX) == *read,
        (Reply::Error(text), Value::ServerError(error)) => {
            let words = [Some(error.code()), error.details()].into_iter().flatten().collect::<Vec<_>>();
            words.join(" ") == line(text, MAX_ERROR_LINE_BYTES)
        }
        (Reply::Integer(number), Value::Int(read)) => number == read,
        (Reply::Bulk(bytes), Value::BulkString(read)) => bytes == read,
        (Reply::Nil | Reply::NilArray, Value::Nil) => true,
        (Reply::Double(number), Value::Double(read)) => number == read,
        // RESP2 transmits a double as text.
        (Reply::Double(number), Value::BulkString(text)) => {
            std::str::from_utf8(text).is_ok_and(|text| text.parse() == Ok(*number))
        }
        (Reply::Array(items), Value::Array(read)) | (Reply::Set(items), Value::Set(read)) => all(items, read),
        (Reply::Push(items), Value::Push { kind, data }) => {
            items[0] == Reply::bulk(kind.to_string()) && all(&items[1..], data)
        }
        (Reply::Map(pairs), Value::Map(read)) => {
            let same = |((key, value), (read_key, read_value)): (&(Reply, Reply), &(Value, Value))| {
                is(read_key, key) && is(read_value, value)
            };
            pairs.len() == read.len() && pairs.iter().zip(read).all(same)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn clients_read_every_reply_as_it_was_sent(
        replies in prop::collection::vec(prop_oneof![8 => reply(), 1 => push()], 1..5),
        is_three in any::<bool>(),
    ) {
        let version = if is_three { RespVersion::Three } else { RespVersion::Two };
        let mut bytes = BytesMut::new();
        let several = Reply::Several(replies.clone());
        ReplyEncoder { version }.encode(several, &mut bytes).unwrap();
        let (mut parser, mut stream) = (Parser::new(), &bytes[..]);
        for reply in &replies {
            let read = parser.parse_value(&mut stream).unwrap();
            let sent = shaped(reply, version);
            prop_assert!(is(&read, &sent), "{sent:?} was read as {read:?}");
        }
        prop_assert!(parser.parse_value(&mut stream).is_err(), "nothing is left");
    }
}
