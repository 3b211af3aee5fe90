//! Commands on strings, and on the integers in them.

use agenix_protocol::{
    request::{Expiry, SetOptions, integer_of},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::{KeyResult, live};
use crate::store::{KeyEntry, KeyReader, KeyWriter, StoreError, StoredValue};

fn text(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult<Option<(Bytes, Option<Timestamp>)>> {
    match live(keys, key, now)? {
        None => Ok(None),
        Some(KeyEntry { content: StoredValue::Text(text), expires_at }) => Ok(Some((text, expires_at))),
        Some(_) => Err(Rejection::WrongType.into()),
    }
}

fn put(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    text: Bytes,
    expires_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    keys.put_entry(key, &KeyEntry { content: StoredValue::Text(text), expires_at })
}

pub(super) fn get(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult {
    Ok(Reply::bulk_or_nil(text(keys, key, now)?.map(|(text, _)| text)))
}

/// MGET. The value of a key of another type is nil.
pub(super) fn get_all(keys: &dyn KeyReader, names: &[Bytes], now: Timestamp) -> KeyResult {
    let mut replies = Vec::with_capacity(names.len());
    for name in names {
        let content = live(keys, name, now)?.map(|entry| entry.content);
        replies.push(if let Some(StoredValue::Text(text)) = content {
            Reply::Bulk(text)
        } else {
            Reply::Nil
        });
    }
    Ok(Reply::Array(replies))
}

pub(super) fn set(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    value: &Bytes,
    options: SetOptions,
    now: Timestamp,
) -> KeyResult {
    let before = live(keys, key, now)?;
    let old = match &before {
        Some(KeyEntry { content: StoredValue::Text(text), .. }) => Reply::bulk(text.clone()),
        Some(_) if options.returns_old => return Err(Rejection::WrongType.into()),
        _ => Reply::Nil,
    };
    let is_met = if before.is_some() { !options.only.nx } else { !options.only.xx };
    if is_met {
        let expires_at = match options.expiry {
            Expiry::Never => None,
            Expiry::Kept => before.and_then(|before| before.expires_at),
            Expiry::AfterMs(ms) => Some(now.plus_ms(ms)),
            Expiry::At(at) => Some(at),
        };
        if expires_at.is_some_and(|at| at <= now) {
            keys.remove(key)?;
        } else {
            put(keys, key, value.clone(), expires_at)?;
        }
    }
    Ok(match (options.returns_old, is_met) {
        (true, _) => old,
        (false, true) => Reply::ok(),
        (false, false) => Reply::Nil,
    })
}

pub(super) fn set_all(keys: &mut dyn KeyWriter, pairs: &[[Bytes; 2]]) -> KeyResult {
    for [key, value] in pairs {
        put(keys, key, value.clone(), None)?;
    }
    Ok(Reply::ok())
}

/// INCR, DECR, INCRBY, DECRBY
pub(super) fn add(keys: &mut dyn KeyWriter, key: &[u8], by: i64, now: Timestamp) -> KeyResult {
    let (text, expires_at) = text(keys, key, now)?.unwrap_or((Bytes::from_static(b"0"), None));
    let number = integer_of(&text).ok_or(Rejection::Redis("value is not an integer or out of range"))?;
    let sum = number.checked_add(by).ok_or(Rejection::Redis("increment or decrement would overflow"))?;
    put(keys, key, sum.to_string().into(), expires_at)?;
    Ok(Reply::Integer(sum))
}
