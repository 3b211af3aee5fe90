//! Commands on keys of any type, and the commands that list keys.

use agenix_protocol::{glob, request::Conditions, resp::Reply, time::Timestamp};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::{KeyResult, is_there, live};
use crate::store::{KeyEntry, KeyReader, KeyWriter, StoreError, StoredValue};

/// Maximum number of keys that one call of SCAN reads, whatever its COUNT.
const MAX_PAGE: usize = 10_000;

pub(super) fn remove(keys: &mut dyn KeyWriter, names: &[Bytes]) -> KeyResult {
    let mut count = 0;
    for name in names {
        count += usize::from(keys.remove(name)?);
    }
    Ok(Reply::count(count))
}

/// EXISTS. A key that is named twice counts twice.
pub(super) fn count(keys: &dyn KeyReader, names: &[Bytes], now: Timestamp) -> KeyResult {
    let mut count = 0;
    for name in names {
        count += usize::from(is_there(keys, name, now)?);
    }
    Ok(Reply::count(count))
}

/// EXPIRE, PEXPIRE. No expiry counts as later than any time: GT leaves it unchanged, LT does not.
pub(super) fn expire(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    after_ms: i64,
    only: Conditions,
    now: Timestamp,
) -> KeyResult {
    let Some(entry) = live(keys, key, now)? else { return Ok(Reply::Integer(0)) };
    let at = Timestamp(now.0.saturating_add_signed(after_ms));
    let is_met = match entry.expires_at {
        None => !only.xx && !only.gt,
        Some(before) => !only.nx && (!only.gt || at > before) && (!only.lt || at < before),
    };
    if is_met && at <= now {
        keys.remove(key)?;
    } else if is_met {
        keys.put_entry(key, &KeyEntry { expires_at: Some(at), ..entry })?;
    }
    Ok(Reply::Integer(is_met.into()))
}

pub(super) fn time_to_live(keys: &dyn KeyReader, key: &[u8], unit_ms: u64, now: Timestamp) -> KeyResult {
    Ok(Reply::Integer(match live(keys, key, now)?.map(|entry| entry.expires_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let rounded = at.ms_since(now).saturating_add(unit_ms / 2) / unit_ms;
            i64::try_from(rounded).unwrap_or(i64::MAX)
        }
    }))
}

pub(super) fn persist(keys: &mut dyn KeyWriter, key: &[u8], now: Timestamp) -> KeyResult {
    let ends = live(keys, key, now)?.filter(|entry| entry.expires_at.is_some());
    let Some(entry) = ends else { return Ok(Reply::Integer(0)) };
    keys.put_entry(key, &KeyEntry { expires_at: None, ..entry })?;
    Ok(Reply::Integer(1))
}

pub(super) fn type_of(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult {
    Ok(Reply::Simple(live(keys, key, now)?.map_or("none", |entry| kind_of(&entry)).into()))
}

fn kind_of(entry: &KeyEntry) -> &'static str {
    match entry.content {
        StoredValue::Text(_) => "string",
        StoredValue::List { .. } => "list",
        StoredValue::Sorted { .. } => "zset",
    }
}

/// Reply of SMEMBERS and other commands on types that agq does not have, if the key does not exist.
pub(super) fn absent(keys: &dyn KeyReader, key: &[u8], reply: Reply, now: Timestamp) -> KeyResult {
    if is_there(keys, key, now)? { Err(Rejection::WrongType.into()) } else { Ok(reply) }
}

pub(super) fn size(keys: &dyn KeyReader, now: Timestamp) -> KeyResult {
    Ok(Reply::Integer(i64::try_from(keys.count(now)?).unwrap_or(i64::MAX)))
}

struct KeyFilter<'c> {
    pattern: Option<&'c [u8]>,
    kind: Option<&'c [u8]>,
    now: Timestamp,
}

impl KeyFilter<'_> {
    fn among(&self, keys: &dyn KeyReader, page: Vec<(u64, Bytes)>) -> Result<Vec<Bytes>, StoreError> {
        let mut names = Vec::new();
        for (_, name) in page {
            let is_named = self.pattern.is_none_or(|pattern| glob::matches(pattern, &name));
            if !is_named {
                continue;
            }
            let Some(entry) = live(keys, &name, self.now)? else { continue };
            if self.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(kind_of(&entry).as_bytes())) {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// KEYS, sorted by name.
pub(super) fn names(keys: &dyn KeyReader, pattern: &[u8], now: Timestamp) -> KeyResult {
    let wanted = KeyFilter { pattern: Some(pattern), kind: None, now };
    let (mut names, mut below) = (Vec::new(), u64::MAX);
    loop {
        let page = keys.newest(below, MAX_PAGE)?;
        let Some((last, _)) = page.last() else { break };
        below = *last;
        names.extend(wanted.among(keys, page)?);
    }
    names.sort_unstable();
    Ok(Reply::bulks(names))
}

/// SCAN. The cursor is the number of the last key that was read, from the newest key down. Numbers
/// stay with their keys: a key that exists during the whole scan is returned once, and new keys
/// have numbers that the scan has passed. A cursor stays valid without state, also after a restart.
pub(super) fn scan(
    keys: &dyn KeyReader,
    cursor: u64,
    count: usize,
    pattern: Option<&[u8]>,
    kind: Option<&[u8]>,
    now: Timestamp,
) -> KeyResult {
    let below = if cursor == 0 { u64::MAX } else { cursor };
    let limit = count.min(MAX_PAGE);
    let page = keys.newest(below, limit)?;
    let is_last = page.len() < limit;
    let next = page.last().filter(|_| !is_last).map_or(0, |(number, _)| *number);
    let names = KeyFilter { pattern, kind, now }.among(keys, page)?;
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), Reply::bulks(names)]))
}
