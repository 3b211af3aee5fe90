//! Reads of users' keys, for write transactions and snapshots alike.

use std::ops::{Bound, Range};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;

use crate::store::{
    RangeSlice,
    keyspace::ScoreRange,
    redb::{
        engine::Table,
        schema::{KeyRecord, Result, ordered, score_of},
    },
};

type Raw = &'static [u8];

/// Sorts before all other keys and members.
pub(crate) const FIRST: &[u8] = b"";

pub(crate) fn count(
    keys: &Table<'_, Raw, KeyRecord>,
    expiries: &Table<'_, (u64, Raw), ()>,
    now: Timestamp,
) -> Result<u64> {
    let expired = expiries.range(..(now.0.saturating_add(1), FIRST))?.count() as u64;
    Ok(keys.len()?.saturating_sub(expired))
}

pub(crate) fn newest(numbers: &Table<'_, u64, Raw>, below: u64, limit: usize) -> Result<Vec<(u64, Bytes)>> {
    let mut found = Vec::new();
    for entry in numbers.range_back(..below)?.take(limit) {
        let (number, key) = entry?;
        found.push((number.value(), Bytes::copy_from_slice(key.value())));
    }
    Ok(found)
}

pub(crate) fn overdue(
    expiries: &Table<'_, (u64, Raw), ()>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Bytes>> {
    let mut found = Vec::new();
    for entry in expiries.range(..(now.0.saturating_add(1), FIRST))?.take(limit) {
        let (place, _) = entry?;
        found.push(Bytes::copy_from_slice(place.value().1));
    }
    Ok(found)
}

pub(crate) fn items(
    items: &Table<'_, (Raw, i64), Raw>,
    key: &[u8],
    places: Range<i64>,
) -> Result<Vec<Bytes>> {
    let mut found = Vec::new();
    if places.is_empty() {
        return Ok(found);
    }
    for entry in items.range((key, places.start)..(key, places.end))? {
        let (_, item) = entry?;
        found.push(Bytes::copy_from_slice(item.value()));
    }
    Ok(found)
}

pub(crate) fn score(scores: &Table<'_, (Raw, Raw), u64>, key: &[u8], member: &[u8]) -> Result<Option<f64>> {
    Ok(scores.get((key, member))?.map(|score| score_of(score.value())))
}

pub(crate) fn members(
    by_score: &Table<'_, (Raw, u64, Raw), ()>,
    key: &[u8],
    (min, max): ScoreRange,
    part: RangeSlice,
) -> Result<Vec<(Bytes, f64)>> {
    let first = match min {
        Bound::Included(score) => ordered(score),
        Bound::Excluded(score) => ordered(score) + 1,
        Bound::Unbounded => 0,
    };
    let end = match max {
        Bound::Included(score) => ordered(score) + 1,
        Bound::Excluded(score) => ordered(score),
        Bound::Unbounded => u64::MAX,
    };
    let mut found = Vec::new();
    if first >= end {
        return Ok(found);
    }
    let range = (key, first, FIRST)..(key, end, FIRST);
    let members = if part.is_reversed { by_score.range_back(range)? } else { by_score.range(range)? };
    for entry in members.skip(part.skip).take(part.take) {
        let (place, _) = entry?;
        let (_, score, member) = place.value();
        found.push((Bytes::copy_from_slice(member), score_of(score)));
    }
    Ok(found)
}
