//! Commands on lists. The elements have consecutive positions, which move as the list grows and
//! shrinks at its ends.

use std::{ops::Range, slice};

use agenix_protocol::{request::ListEnd, resp::Reply, time::Timestamp};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::{KeyResult, live};
use crate::store::{KeyEntry, KeyReader, KeyWriter, StoreError, StoredValue};

/// List that is being changed; empty if the key does not exist.
struct OpenList {
    places: Range<i64>,
    expires_at: Option<Timestamp>,
}

impl OpenList {
    fn of(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult<Self> {
        match live(keys, key, now)? {
            None => Ok(Self { places: 0..0, expires_at: None }),
            Some(KeyEntry { content: StoredValue::List { head, tail }, expires_at }) => {
                Ok(Self { places: head..tail, expires_at })
            }
            Some(_) => Err(Rejection::WrongType.into()),
        }
    }

    fn length(&self) -> i64 {
        self.places.end - self.places.start
    }

    fn count(&self) -> usize {
        usize::try_from(self.length()).unwrap_or_default()
    }

    fn push(
        &mut self,
        keys: &mut dyn KeyWriter,
        key: &[u8],
        item: &[u8],
        to: ListEnd,
    ) -> Result<(), StoreError> {
        let place = match to {
            ListEnd::Head => {
                self.places.start -= 1;
                self.places.start
            }
            ListEnd::Tail => {
                self.places.end += 1;
                self.places.end - 1
            }
        };
        keys.put_item(key, place, item)
    }

    fn pop(
        &mut self,
        keys: &mut dyn KeyWriter,
        key: &[u8],
        from: ListEnd,
    ) -> Result<Option<Bytes>, StoreError> {
        if self.places.is_empty() {
            return Ok(None);
        }
        let place = match from {
            ListEnd::Head => {
                self.places.start += 1;
                self.places.start - 1
            }
            ListEnd::Tail => {
                self.places.end -= 1;
                self.places.end
            }
        };
        keys.take_item(key, place)
    }

    /// Saves the list. Removes the key if the list is empty.
    fn save(&self, keys: &mut dyn KeyWriter, key: &[u8]) -> Result<(), StoreError> {
        if self.places.is_empty() {
            keys.remove(key)?;
            return Ok(());
        }
        let content = StoredValue::List { head: self.places.start, tail: self.places.end };
        keys.put_entry(key, &KeyEntry { content, expires_at: self.expires_at })
    }
}

/// Positions from `start` to `stop`, both included. Negative values count from the end.
pub(super) fn part(start: i64, stop: i64, length: i64) -> Range<i64> {
    let first = if start < 0 { (length + start).max(0) } else { start };
    let last = if stop < 0 { length + stop } else { stop.min(length - 1) };
    first..(last + 1).max(first)
}

/// LPUSH, RPUSH. Returns the new length.
pub(super) fn push(
    keys: &mut dyn KeyWriter,
    key: &Bytes,
    values: &[Bytes],
    to: ListEnd,
    now: Timestamp,
) -> KeyResult<usize> {
    let mut list = OpenList::of(keys, key, now)?;
    for value in values {
        list.push(keys, key, value, to)?;
    }
    list.save(keys, key)?;
    keys.announce_list(key);
    Ok(list.count())
}

pub(super) fn take(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    from: ListEnd,
    now: Timestamp,
) -> KeyResult<Option<Bytes>> {
    let mut list = OpenList::of(keys, key, now)?;
    let item = list.pop(keys, key, from)?;
    if item.is_some() {
        list.save(keys, key)?;
    }
    Ok(item)
}

pub(super) fn pop(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    from: ListEnd,
    count: Option<usize>,
    now: Timestamp,
) -> KeyResult {
    let Some(count) = count else { return Ok(Reply::bulk_or_nil(take(keys, key, from, now)?)) };
    let mut list = OpenList::of(keys, key, now)?;
    if list.places.is_empty() {
        return Ok(Reply::NilArray);
    }
    let count = i64::try_from(count).unwrap_or(i64::MAX).min(list.length());
    let places = match from {
        ListEnd::Head => list.places.start..list.places.start + count,
        ListEnd::Tail => list.places.end - count..list.places.end,
    };
    list.places = match from {
        ListEnd::Head => places.end..list.places.end,
        ListEnd::Tail => list.places.start..places.start,
    };
    let mut items = keys.take_items(key, places)?;
    if from == ListEnd::Tail {
        items.reverse();
    }
    list.save(keys, key)?;
    Ok(Reply::bulks(items))
}

pub(super) fn length(keys: &dyn KeyReader, key: &[u8], now: Timestamp) -> KeyResult<usize> {
    Ok(OpenList::of(keys, key, now)?.count())
}

pub(super) fn range(keys: &dyn KeyReader, key: &[u8], start: i64, stop: i64, now: Timestamp) -> KeyResult {
    let list = OpenList::of(keys, key, now)?;
    let part = part(start, stop, list.length());
    if part.is_empty() {
        return Ok(Reply::Array(Vec::new()));
    }
    let head = list.places.start;
    Ok(Reply::bulks(keys.items(key, head + part.start..head + part.end)?))
}

/// LREM, from the tail if `count` is negative; all matches if it is 0.
pub(super) fn remove(
    keys: &mut dyn KeyWriter,
    key: &[u8],
    count: i64,
    value: &Bytes,
    now: Timestamp,
) -> KeyResult {
    let mut list = OpenList::of(keys, key, now)?;
    let items = keys.items(key, list.places.clone())?;
    let max =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let mut hits: Vec<usize> = (0..items.len()).filter(|at| items[*at] == *value).collect();
    let excess = hits.len().saturating_sub(max);
    if count < 0 {
        hits.drain(..excess);
    } else {
        hits.truncate(max);
    }
    let Some(first) = hits.first() else { return Ok(Reply::Integer(0)) };
    let kept = (0..items.len()).filter(|at| hits.binary_search(at).is_err());
    // Elements before the first match keep their positions.
    let mut place = list.places.start + i64::try_from(*first).unwrap_or(i64::MAX);
    for at in kept.skip(*first) {
        keys.put_item(key, place, &items[at])?;
        place += 1;
    }
    keys.take_items(key, place..list.places.end)?;
    list.places.end = place;
    list.save(keys, key)?;
    Ok(Reply::count(hits.len()))
}

/// LMOVE, also within one list. Returns `None` if the list is empty.
pub(super) fn move_element(
    keys: &mut dyn KeyWriter,
    key: &Bytes,
    from: ListEnd,
    (target, to): &(Bytes, ListEnd),
    now: Timestamp,
) -> KeyResult<Option<Bytes>> {
    let mut list = OpenList::of(keys, key, now)?;
    if list.places.is_empty() {
        return Ok(None);
    }
    // Fail before anything is removed if the target has another type.
    OpenList::of(keys, target, now)?;
    let Some(item) = list.pop(keys, key, from)? else { return Ok(None) };
    if key == target {
        list.push(keys, key, &item, *to)?;
        list.save(keys, key)?;
        keys.announce_list(key);
    } else {
        list.save(keys, key)?;
        push(keys, target, slice::from_ref(&item), *to, now)?;
    }
    Ok(Some(item))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn lrange_positions_count_from_either_end() {
        assert_eq!(part(0, -1, 3), 0..3);
        assert_eq!(part(-2, 9, 3), 1..3);
        assert_eq!(part(i64::MIN, i64::MAX, 3), 0..3);
        assert!(part(2, 1, 3).is_empty() && part(5, 9, 3).is_empty() && part(0, i64::MIN, 3).is_empty());
        assert!(part(0, -1, 0).is_empty());
    }
}
