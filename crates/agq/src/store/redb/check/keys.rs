//! Checks users' keys: numbers, expiries, elements and members.

use agenix_protocol::time::Timestamp;
use redb::Error;

use super::{Bytes, Inconsistencies};
use crate::store::{
    StoredValue,
    redb::{
        engine::{Snapshot, Table},
        queries::keys::FIRST,
        schema::tables::{BY_SCORE, EXPIRIES, KEY_NUMBERS, KEYS, KeyRecord, LIST_ITEMS, SCORES, score_of},
    },
};

struct KeyTables<'v> {
    keys: Table<'v, Bytes, KeyRecord>,
    numbers: Table<'v, u64, Bytes>,
    expiries: Table<'v, (u64, Bytes), ()>,
    items: Table<'v, (Bytes, i64), Bytes>,
    scores: Table<'v, (Bytes, Bytes), u64>,
    by_score: Table<'v, (Bytes, u64, Bytes), ()>,
}

pub(super) fn check(read: &Snapshot<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    let tables = KeyTables {
        keys: read.table(&KEYS),
        numbers: read.table(&KEY_NUMBERS),
        expiries: read.table(&EXPIRIES),
        items: read.table(&LIST_ITEMS),
        scores: read.table(&SCORES),
        by_score: read.table(&BY_SCORE),
    };
    for entry in tables.keys.iter()? {
        let (key, record) = entry?;
        tables.entry(key.value(), &record.value(), found)?;
    }
    tables.numbers(found)?;
    tables.expiries(found)?;
    tables.items(found)?;
    tables.scores(found)?;
    tables.by_score(found)
}

impl KeyTables<'_> {
    fn entry(&self, key: &[u8], record: &KeyRecord, found: &mut Inconsistencies) -> Result<(), Error> {
        let (shown, number) = (key.escape_ascii(), record.number);
        let named = self.numbers.get(number)?;
        let named = named.as_ref().map(|other| other.value());
        if named != Some(key) {
            let other = named.unwrap_or(b"nothing").escape_ascii();
            found.report(format_args!("key_numbers: {number} should be {shown}, but is {other}"));
        }
        if let Some(Timestamp(at)) = record.entry.expires_at
            && self.expiries.get((at, key))?.is_none()
        {
            found.report(format_args!("expiries: {shown} should stand at {at}, but does not"));
        }
        match record.entry.content {
            StoredValue::Text(_) => Ok(()),
            StoredValue::List { head, tail } => self.list(key, head, tail, found),
            StoredValue::Sorted { members } => self.sorted_set(key, members, found),
        }
    }

    fn list(&self, key: &[u8], head: i64, tail: i64, found: &mut Inconsistencies) -> Result<(), Error> {
        let shown = key.escape_ascii();
        if head >= tail {
            found.report(format_args!("keys: {shown} is a list without elements"));
            return Ok(());
        }
        let mut items = self.items.range((key, head)..(key, tail))?;
        let are = items.try_fold(0_u64, |count, item| item.map(|_| count + 1))?;
        let told = tail.abs_diff(head);
        if told != are {
            found.report(format_args!("list_items: {shown} has {are} elements, but should have {told}"));
        }
        Ok(())
    }

    fn sorted_set(&self, key: &[u8], members: u64, found: &mut Inconsistencies) -> Result<(), Error> {
        let shown = key.escape_ascii();
        if members == 0 {
            found.report(format_args!("keys: {shown} is a sorted set without members"));
        }
        let mut are = 0;
        for entry in self.scores.range((key, FIRST)..)? {
            let (place, _) = entry?;
            if place.value().0 != key {
                break;
            }
            are += 1;
        }
        if members != are {
            found.report(format_args!("scores: {shown} has {are} members, but should have {members}"));
        }
        Ok(())
    }

    fn numbers(&self, found: &mut Inconsistencies) -> Result<(), Error> {
        for entry in self.numbers.iter()? {
            let (number, key) = entry?;
            let (number, key) = (number.value(), key.value());
            let why = match self.keys.get(key)?.map(|record| record.value().number) {
                Some(own) if own == number => continue,
                Some(own) => format!("its number is {own}"),
                None => "there is no such key".to_owned(),
            };
            found.report(format_args!("key_numbers: {number} is {}, but {why}", key.escape_ascii()));
        }
        Ok(())
    }

    fn expiries(&self, found: &mut Inconsistencies) -> Result<(), Error> {
        for entry in self.expiries.iter()? {
            let (place, _) = entry?;
            let (at, key) = place.value();
            let why = match self.keys.get(key)?.map(|record| record.value().entry.expires_at) {
                Some(Some(Timestamp(own))) if own == at => continue,
                Some(Some(Timestamp(own))) => format!("it expires at {own}"),
                Some(None) => "it never expires".to_owned(),
                None => "there is no such key".to_owned(),
            };
            found.report(format_args!("expiries: {} is listed at {at}, but {why}", key.escape_ascii()));
        }
        Ok(())
    }

    fn items(&self, found: &mut Inconsistencies) -> Result<(), Error> {
        for entry in self.items.iter()? {
            let (place, _) = entry?;
            let (key, place) = place.value();
            let content = self.keys.get(key)?.map(|record| record.value().entry.content);
            let is_so =
                matches!(content, Some(StoredValue::List { head, tail }) if (head..tail).contains(&place));
            if !is_so {
                let shown = key.escape_ascii();
                found
                    .report(format_args!("list_items: {shown} has an element at {place}, but no such place"));
            }
        }
        Ok(())
    }

    fn scores(&self, found: &mut Inconsistencies) -> Result<(), Error> {
        for entry in self.scores.iter()? {
            let (place, score) = entry?;
            let ((key, member), score) = (place.value(), score.value());
            let (shown, name) = (key.escape_ascii(), member.escape_ascii());
            let content = self.keys.get(key)?.map(|record| record.value().entry.content);
            if !matches!(content, Some(StoredValue::Sorted { .. })) {
                found.report(format_args!("scores: {shown} has member {name}, but is no sorted set"));
            }
            if self.by_score.get((key, score, member))?.is_none() {
                let score = score_of(score);
                found.report(format_args!(
                    "by_score: {name} of {shown} should stand at {score}, but does not"
                ));
            }
        }
        Ok(())
    }

    fn by_score(&self, found: &mut Inconsistencies) -> Result<(), Error> {
        for entry in self.by_score.iter()? {
            let (place, _) = entry?;
            let (key, score, member) = place.value();
            let why = match self.scores.get((key, member))?.map(|own| own.value()) {
                Some(own) if own == score => continue,
                Some(own) => format!("its score is {}", score_of(own)),
                None => "it is no member".to_owned(),
            };
            let (shown, name, score) = (key.escape_ascii(), member.escape_ascii(), score_of(score));
            found.report(format_args!("by_score: {name} of {shown} is listed at {score}, but {why}"));
        }
        Ok(())
    }
}
