//! Checks users' keys: numbers, expiries, elements and members.

use agenix_protocol::time::Timestamp;

use super::Inconsistencies;
use crate::store::{
    StoredValue,
    redb::{
        queries::keys::FIRST,
        schema::{KeyRecord, Result, score_of},
        txn::tables::Tables,
    },
};

/// Checks all keys, then their contents.
pub(super) fn check(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.keys.table().for_each(|key, record| entry(tables, key, &record, found))?;
    numbers(tables, found)?;
    expiries(tables, found)?;
    items(tables, found)?;
    scores(tables, found)?;
    by_score(tables, found)
}

fn entry(tables: &Tables<'_>, key: &[u8], record: &KeyRecord, found: &mut Inconsistencies) -> Result<()> {
    let (shown, number) = (key.escape_ascii(), record.number);
    let named = tables.key_numbers.get(number)?;
    let named = named.as_ref().map(|other| other.value());
    if named != Some(key) {
        let other = named.unwrap_or(b"nothing").escape_ascii();
        report!(found, "key_numbers: {number} should be {shown}, but is {other}");
    }
    if let Some(Timestamp(at)) = record.entry.expires_at
        && tables.expiries.get((at, key))?.is_none()
    {
        report!(found, "expiries: {shown} should stand at {at}, but does not");
    }
    match record.entry.content {
        StoredValue::Text(_) => Ok(()),
        StoredValue::List { head, tail } => list(tables, key, head, tail, found),
        StoredValue::Sorted { members } => sorted_set(tables, key, members, found),
    }
}

fn list(tables: &Tables<'_>, key: &[u8], head: i64, tail: i64, found: &mut Inconsistencies) -> Result<()> {
    let shown = key.escape_ascii();
    if head >= tail {
        report!(found, "keys: {shown} is a list without elements");
        return Ok(());
    }
    let mut items = tables.list_items.table().range((key, head)..(key, tail))?;
    let are = items.try_fold(0_u64, |count, item| item.map(|_| count + 1))?;
    let recorded = tail.abs_diff(head);
    if recorded != are {
        report!(found, "list_items: {shown} has {are} elements, but should have {recorded}");
    }
    Ok(())
}

fn sorted_set(tables: &Tables<'_>, key: &[u8], members: u64, found: &mut Inconsistencies) -> Result<()> {
    let shown = key.escape_ascii();
    if members == 0 {
        report!(found, "keys: {shown} is a sorted set without members");
    }
    let mut are = 0;
    for entry in tables.scores.range((key, FIRST)..)? {
        let (place, _) = entry?;
        if place.value().0 != key {
            break;
        }
        are += 1;
    }
    if members != are {
        report!(found, "scores: {shown} has {are} members, but should have {members}");
    }
    Ok(())
}

fn numbers(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.key_numbers.for_each(|number, key| {
        let why = match tables.keys.get(key)?.map(|record| record.number) {
            Some(own) if own == number => return Ok(()),
            Some(own) => format!("its number is {own}"),
            None => "there is no such key".to_owned(),
        };
        report!(found, "key_numbers: {number} is {}, but {why}", key.escape_ascii());
        Ok(())
    })
}

fn expiries(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.expiries.for_each(|(at, key), ()| {
        let why = match tables.keys.get(key)?.map(|record| record.entry.expires_at) {
            Some(Some(Timestamp(own))) if own == at => return Ok(()),
            Some(Some(Timestamp(own))) => format!("it expires at {own}"),
            Some(None) => "it never expires".to_owned(),
            None => "there is no such key".to_owned(),
        };
        report!(found, "expiries: {} is listed at {at}, but {why}", key.escape_ascii());
        Ok(())
    })
}

fn items(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.list_items.table().for_each(|(key, place), _| {
        let content = tables.keys.get(key)?.map(|record| record.entry.content);
        let is_so =
            matches!(content, Some(StoredValue::List { head, tail }) if (head..tail).contains(&place));
        if !is_so {
            let shown = key.escape_ascii();
            report!(found, "list_items: {shown} has an element at {place}, but no such place");
        }
        Ok(())
    })
}

fn scores(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.scores.for_each(|(key, member), score| {
        let (shown, name) = (key.escape_ascii(), member.escape_ascii());
        let content = tables.keys.get(key)?.map(|record| record.entry.content);
        if !matches!(content, Some(StoredValue::Sorted { .. })) {
            report!(found, "scores: {shown} has member {name}, but is no sorted set");
        }
        if tables.by_score.get((key, score, member))?.is_none() {
            let score = score_of(score);
            report!(found, "by_score: {name} of {shown} should stand at {score}, but does not");
        }
        Ok(())
    })
}

fn by_score(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.by_score.for_each(|(key, score, member), ()| {
        let why = match tables.scores.get((key, member))?.map(|own| own.value()) {
            Some(own) if own == score => return Ok(()),
            Some(own) => format!("its score is {}", score_of(own)),
            None => "it is no member".to_owned(),
        };
        let (shown, name, score) = (key.escape_ascii(), member.escape_ascii(), score_of(score));
        report!(found, "by_score: {name} of {shown} is listed at {score}, but {why}");
        Ok(())
    })
}
