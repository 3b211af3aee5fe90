//! Users' keys in a transaction: the steps that commands of Redis consist of.

pub(crate) mod calls;
pub(crate) mod write_buffer;

use std::{
    cell::RefCell,
    ops::{Bound, Range},
};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use sqlx::{Error, Result, Row, postgres::PgRow, query};

use crate::store::{
    KeyEntry, KeyReader, KeyWriter, RangeSlice, StoreError, StoredValue,
    keyspace::{ScoreRange, StoreResult},
    postgres::{connection::DatabaseSession, keyspace::write_buffer::WriteBuffer, sql_types},
};

pub(super) const ENTRIES: &str = "SELECT key, text, head, tail, members, expires_at FROM agq.keys \
     WHERE sha256(key) = ANY (ARRAY(SELECT sha256(n.key) FROM unnest($1::bytea[]) AS n (key)))";
pub(super) const ITEMS: &str = "SELECT item FROM agq.list_items WHERE key_digest = sha256($1) \
     AND place >= $2 AND place < $3 ORDER BY place";
pub(super) const SCORES: &str = "SELECT member, score FROM agq.scores WHERE key_digest = sha256($1) \
     AND member_digest = ANY (ARRAY(SELECT sha256(n.member) FROM unnest($2::bytea[]) AS n (member)))";
/// Query for members in ascending order. The index has the beginnings of members in order, so the
/// query sorts only members that begin alike.
pub(super) const ASCENDING: &str = "SELECT member, score FROM agq.scores WHERE key_digest = sha256($1) \
     AND CASE WHEN $3 THEN score > $2 ELSE score >= $2 END AND CASE WHEN $5 THEN score < $4 ELSE score <= $4 END \
     ORDER BY score, substr(member, 1, 1024), member OFFSET $6 LIMIT $7";
pub(super) const DESCENDING: &str = "SELECT member, score FROM agq.scores WHERE key_digest = sha256($1) \
     AND CASE WHEN $3 THEN score > $2 ELSE score >= $2 END AND CASE WHEN $5 THEN score < $4 ELSE score <= $4 END \
     ORDER BY score DESC, substr(member, 1, 1024) DESC, member DESC OFFSET $6 LIMIT $7";

pub(super) struct PgKeys<'s> {
    pub(super) session: &'s DatabaseSession,
    /// First database error, because a command may ignore a failed step, and must fail anyway.
    pub(super) fault: RefCell<Option<Error>>,
    pending: RefCell<WriteBuffer>,
    pub(super) filled: Vec<Bytes>,
}

impl<'s> PgKeys<'s> {
    pub(super) fn new(session: &'s DatabaseSession) -> Self {
        Self { session, fault: RefCell::default(), pending: RefCell::default(), filled: Vec::new() }
    }

    fn noted<T>(&self, outcome: Result<T>) -> StoreResult<T> {
        outcome.map_err(|error| {
            let shown = StoreError(error.to_string());
            self.fault.replace(Some(error));
            shown
        })
    }

    fn find(&self, key: &[u8]) -> Result<Option<KeyEntry>> {
        if let Some(known) = self.pending.borrow().entry(key) {
            return Ok(known);
        }
        self.read(&[key])?;
        Ok(self.pending.borrow().entry(key).flatten())
    }

    fn read(&self, keys: &[&[u8]]) -> Result<()> {
        let rows = self.session.rows(query(ENTRIES).bind(keys))?;
        let pending = &mut *self.pending.borrow_mut();
        for key in keys {
            pending.note_entry(Bytes::copy_from_slice(key), None);
        }
        for row in &rows {
            pending.note_entry(bytes(row, 0)?, Some(entry_of(row)?));
        }
        Ok(())
    }

    fn read_scores(&self, key: &[u8], members: &[&[u8]]) -> Result<()> {
        let rows = self.session.rows(query(SCORES).bind(key).bind(members))?;
        let pending = &mut *self.pending.borrow_mut();
        for member in members {
            pending.note_score(key, Bytes::copy_from_slice(member), None);
        }
        for row in &rows {
            pending.note_score(key, bytes(row, 0)?, Some(row.try_get(1)?));
        }
        Ok(())
    }

    fn score_of(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>> {
        if let Some(known) = self.pending.borrow().score(key, member) {
            return Ok(known);
        }
        self.read_scores(key, &[member])?;
        Ok(self.pending.borrow().score(key, member).flatten())
    }

    /// Writes the pending changes, so that later reads see them.
    pub(super) fn write(&self) -> Result<()> {
        self.pending.borrow_mut().write(self.session)
    }

    fn write_if_full(&self) -> Result<()> {
        if self.pending.borrow().is_full() { self.write() } else { Ok(()) }
    }

    /// Runs a statement that returns the elements of a list at `places`.
    fn elements(&self, sql: &'static str, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        self.noted(self.write())?;
        let rows = self.session.rows(query(sql).bind(key).bind(places.start).bind(places.end));
        self.noted(rows.and_then(|rows| rows.iter().map(|row| bytes(row, 0)).collect()))
    }

    fn between(&self, key: &[u8], scores: ScoreRange, part: RangeSlice) -> Result<Vec<(Bytes, f64)>> {
        let bound = |bound: Bound<f64>, open: f64| match bound {
            Bound::Included(score) => (score, false),
            Bound::Excluded(score) => (score, true),
            Bound::Unbounded => (open, false),
        };
        let (min, max) = (bound(scores.0, f64::NEG_INFINITY), bound(scores.1, f64::INFINITY));
        let sql = query(if part.is_reversed { DESCENDING } else { ASCENDING });
        let sql = sql.bind(key).bind(min.0).bind(min.1).bind(max.0).bind(max.1);
        let rows =
            self.session.rows(sql.bind(sql_types::limit(part.skip)).bind(sql_types::limit(part.take)))?;
        rows.iter().map(|row| Ok((bytes(row, 0)?, row.try_get(1)?))).collect()
    }
}

pub(super) fn entry_of(row: &PgRow) -> Result<KeyEntry> {
    let content =
        match (row.try_get("head")?, row.try_get("tail")?, row.try_get::<Option<i64>, _>("members")?) {
            (Some(head), Some(tail), _) => StoredValue::List { head, tail },
            (_, _, Some(members)) => StoredValue::Sorted { members: sql_types::count(members) },
            _ => StoredValue::Text(row.try_get::<Option<Vec<u8>>, _>("text")?.unwrap_or_default().into()),
        };
    let expires_at: Option<i64> = row.try_get("expires_at")?;
    Ok(KeyEntry { content, expires_at: expires_at.map(|at| Timestamp(sql_types::count(at))) })
}

pub(super) fn bytes(row: &PgRow, at: usize) -> Result<Bytes> {
    row.try_get::<Vec<u8>, _>(at).map(Bytes::from)
}

impl KeyReader for PgKeys<'_> {
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>> {
        self.noted(self.find(key))
    }

    fn read_ahead(&self, keys: &[&[u8]]) -> StoreResult<()> {
        let unknown: Vec<&[u8]> =
            keys.iter().copied().filter(|key| self.pending.borrow().entry(key).is_none()).collect();
        if unknown.is_empty() { Ok(()) } else { self.noted(self.read(&unknown)) }
    }

    fn count(&self, now: Timestamp) -> StoreResult<u64> {
        self.noted(self.write())?;
        let sql = "SELECT count(*) FROM agq.keys WHERE expires_at IS NULL OR expires_at > $1";
        let row = self.noted(self.session.row(query(sql).bind(sql_types::wide(now.0))))?;
        let count: Option<i64> = self.noted(row.map(|row| row.try_get(0)).transpose())?;
        Ok(sql_types::count(count.unwrap_or_default()))
    }

    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>> {
        self.noted(self.write())?;
        let sql = "SELECT number, key FROM agq.keys WHERE number < $1 ORDER BY number DESC LIMIT $2";
        let rows = self.session.rows(query(sql).bind(sql_types::wide(below)).bind(sql_types::limit(limit)));
        let found = rows.and_then(|rows| {
            rows.iter().map(|row| Ok((sql_types::count(row.try_get(0)?), bytes(row, 1)?))).collect()
        });
        self.noted(found)
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        self.elements(ITEMS, key, places)
    }

    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>> {
        self.noted(self.score_of(key, member))
    }

    fn read_scores_ahead(&self, key: &[u8], members: &[&[u8]]) -> StoreResult<()> {
        let unknown: Vec<&[u8]> = members
            .iter()
            .copied()
            .filter(|member| self.pending.borrow().score(key, member).is_none())
            .collect();
        if unknown.is_empty() { Ok(()) } else { self.noted(self.read_scores(key, &unknown)) }
    }

    fn members(&self, key: &[u8], scores: ScoreRange, part: RangeSlice) -> StoreResult<Vec<(Bytes, f64)>> {
        self.noted(self.write().and_then(|()| self.between(key, scores, part)))
    }
}

impl KeyWriter for PgKeys<'_> {
    fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) -> StoreResult<()> {
        self.noted(self.find(key))?;
        self.pending.borrow_mut().put_entry(key, entry);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> StoreResult<bool> {
        self.noted(self.find(key))?;
        Ok(self.pending.borrow_mut().remove(key))
    }

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> StoreResult<()> {
        self.pending.borrow_mut().put_item(key, place, item);
        self.noted(self.write_if_full())
    }

    fn take_item(&mut self, key: &[u8], place: i64) -> StoreResult<Option<Bytes>> {
        Ok(self.take_items(key, place..place + 1)?.pop())
    }

    fn take_items(&mut self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        let sql = "WITH taken AS (DELETE FROM agq.list_items WHERE key_digest = sha256($1) AND place >= $2 AND place < $3 \
             RETURNING place, item) SELECT item FROM taken ORDER BY place";
        self.elements(sql, key, places)
    }

    fn announce_list(&mut self, key: &Bytes) {
        self.filled.push(key.clone());
    }

    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> StoreResult<()> {
        self.pending.borrow_mut().put_score(key, member, Some(score));
        self.noted(self.write_if_full())
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> StoreResult<bool> {
        if self.noted(self.score_of(key, member))?.is_none() {
            return Ok(false);
        }
        self.pending.borrow_mut().put_score(key, member, None);
        self.noted(self.write_if_full())?;
        Ok(true)
    }
}
