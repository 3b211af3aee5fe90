//! Users' keys, in a transaction: what a command of Redis does with them is done step by step.

use std::{
    mem::discriminant,
    ops::{Bound, Range},
};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use sqlx::{Error, Row, postgres::PgRow, query};

use super::{numbers, session::Session};
use crate::store::{Content, Entry, Keys, Part, StoreError};

/// The keys, seen through a connection.
pub(super) struct PgKeys<'s> {
    pub(super) session: &'s Session,
    /// What went wrong, as it was: a command may be told that it failed, and go on.
    pub(super) fault: std::cell::RefCell<Option<Error>>,
    /// Lists that got elements.
    pub(super) filled: Vec<Bytes>,
}

impl<'s> PgKeys<'s> {
    pub(super) fn new(session: &'s Session) -> Self {
        Self { session, fault: std::cell::RefCell::default(), filled: Vec::new() }
    }

    fn noted<T>(&self, outcome: Result<T, Error>) -> Result<T, StoreError> {
        outcome.map_err(|error| {
            let shown = StoreError(error.to_string());
            self.fault.replace(Some(error));
            shown
        })
    }

    fn find(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let sql = "SELECT text, head, tail, members, expires_at FROM agq.keys WHERE key = $1";
        self.session.row(query(sql).bind(key))?.as_ref().map(entry_of).transpose()
    }

    fn put(&self, key: &[u8], entry: &Entry) -> Result<(), Error> {
        let before = self.find(key)?;
        if let Some(before) = &before
            && discriminant(&before.content) != discriminant(&entry.content)
        {
            self.clear(key, &before.content)?;
        }
        let (text, head, tail, members) = match &entry.content {
            Content::Text(text) => (Some(&text[..]), None, None, None),
            Content::List { head, tail } => (None, Some(*head), Some(*tail), None),
            Content::Sorted { members } => (None, None, None, Some(numbers::wide(*members))),
        };
        let sql = if before.is_some() {
            "UPDATE agq.keys SET text = $2, head = $3, tail = $4, members = $5, expires_at = $6 WHERE key = $1"
        } else {
            "INSERT INTO agq.keys (key, number, text, head, tail, members, expires_at) \
             VALUES ($1, nextval('agq.key_numbers'), $2, $3, $4, $5, $6)"
        };
        let sql = query(sql).bind(key).bind(text).bind(head).bind(tail).bind(members);
        self.session.run(sql.bind(numbers::time(entry.expires_at))).map(drop)
    }

    fn erase(&self, key: &[u8]) -> Result<bool, Error> {
        let Some(entry) = self.find(key)? else { return Ok(false) };
        self.session.run(query("DELETE FROM agq.keys WHERE key = $1").bind(key))?;
        self.clear(key, &entry.content)?;
        Ok(true)
    }

    /// Removes what a key holds outside of its entry.
    fn clear(&self, key: &[u8], content: &Content) -> Result<(), Error> {
        let sql = match content {
            Content::Text(_) => return Ok(()),
            Content::List { .. } => "DELETE FROM agq.list_items WHERE key = $1",
            Content::Sorted { .. } => "DELETE FROM agq.scores WHERE key = $1",
        };
        self.session.run(query(sql).bind(key)).map(drop)
    }

    fn between(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: Part,
    ) -> Result<Vec<(Bytes, f64)>, Error> {
        const ASCENDING: &str = "SELECT member, score FROM agq.scores WHERE key = $1 \
             AND CASE WHEN $3 THEN score > $2 ELSE score >= $2 END AND CASE WHEN $5 THEN score < $4 ELSE score <= $4 END \
             ORDER BY score, member OFFSET $6 LIMIT $7";
        const DESCENDING: &str = "SELECT member, score FROM agq.scores WHERE key = $1 \
             AND CASE WHEN $3 THEN score > $2 ELSE score >= $2 END AND CASE WHEN $5 THEN score < $4 ELSE score <= $4 END \
             ORDER BY score DESC, member DESC OFFSET $6 LIMIT $7";
        let bound = |bound: Bound<f64>, open: f64| match bound {
            Bound::Included(score) => (score, false),
            Bound::Excluded(score) => (score, true),
            Bound::Unbounded => (open, false),
        };
        let (min, max) = (bound(scores.0, f64::NEG_INFINITY), bound(scores.1, f64::INFINITY));
        let sql = query(if part.is_reversed { DESCENDING } else { ASCENDING });
        let sql = sql.bind(key).bind(min.0).bind(min.1).bind(max.0).bind(max.1);
        let rows = self.session.rows(sql.bind(numbers::limit(part.skip)).bind(numbers::limit(part.take)))?;
        rows.iter().map(|row| Ok((bytes(row, 0)?, row.try_get(1)?))).collect()
    }
}

/// A row with the columns of a key.
pub(super) fn entry_of(row: &PgRow) -> Result<Entry, Error> {
    let content =
        match (row.try_get("head")?, row.try_get("tail")?, row.try_get::<Option<i64>, _>("members")?) {
            (Some(head), Some(tail), _) => Content::List { head, tail },
            (_, _, Some(members)) => Content::Sorted { members: numbers::count(members) },
            _ => Content::Text(row.try_get::<Option<Vec<u8>>, _>("text")?.unwrap_or_default().into()),
        };
    let expires_at: Option<i64> = row.try_get("expires_at")?;
    Ok(Entry { content, expires_at: expires_at.map(|at| Timestamp(numbers::count(at))) })
}

fn bytes(row: &PgRow, at: usize) -> Result<Bytes, Error> {
    row.try_get::<Vec<u8>, _>(at).map(Bytes::from)
}

impl Keys for PgKeys<'_> {
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.noted(self.find(key))
    }

    fn put_entry(&mut self, key: &[u8], entry: &Entry) -> Result<(), StoreError> {
        self.noted(self.put(key, entry))
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.noted(self.erase(key))
    }

    fn count(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM agq.keys WHERE expires_at IS NULL OR expires_at > $1";
        let row = self.noted(self.session.row(query(sql).bind(numbers::wide(now.0))))?;
        let count: Option<i64> = self.noted(row.map(|row| row.try_get(0)).transpose())?;
        Ok(numbers::count(count.unwrap_or_default()))
    }

    fn newest(&self, below: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let sql = "SELECT number, key FROM agq.keys WHERE number < $1 ORDER BY number DESC LIMIT $2";
        let rows = self.session.rows(query(sql).bind(numbers::wide(below)).bind(numbers::limit(limit)));
        let found = rows.and_then(|rows| {
            rows.iter().map(|row| Ok((numbers::count(row.try_get(0)?), bytes(row, 1)?))).collect()
        });
        self.noted(found)
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> Result<Vec<Bytes>, StoreError> {
        let sql =
            "SELECT item FROM agq.list_items WHERE key = $1 AND place >= $2 AND place < $3 ORDER BY place";
        let rows = self.session.rows(query(sql).bind(key).bind(places.start).bind(places.end));
        self.noted(rows.and_then(|rows| rows.iter().map(|row| bytes(row, 0)).collect()))
    }

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT INTO agq.list_items (key, place, item) VALUES ($1, $2, $3) \
             ON CONFLICT (key, place) DO UPDATE SET item = EXCLUDED.item";
        self.noted(self.session.run(query(sql).bind(key).bind(place).bind(item)).map(drop))
    }

    fn take_item(&mut self, key: &[u8], place: i64) -> Result<Option<Bytes>, StoreError> {
        let sql = "DELETE FROM agq.list_items WHERE key = $1 AND place = $2 RETURNING item";
        let row = self.session.row(query(sql).bind(key).bind(place));
        self.noted(row.and_then(|row| row.map(|row| bytes(&row, 0)).transpose()))
    }

    fn announce_list(&mut self, key: &Bytes) {
        self.filled.push(key.clone());
    }

    fn score(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, StoreError> {
        let sql = "SELECT score FROM agq.scores WHERE key = $1 AND member = $2";
        let row = self.session.row(query(sql).bind(key).bind(member));
        self.noted(row.and_then(|row| row.map(|row| row.try_get(0)).transpose()))
    }

    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> Result<(), StoreError> {
        let sql = "INSERT INTO agq.scores (key, member, score) VALUES ($1, $2, $3) \
             ON CONFLICT (key, member) DO UPDATE SET score = EXCLUDED.score";
        // There is one zero.
        self.noted(self.session.run(query(sql).bind(key).bind(member).bind(score + 0.0)).map(drop))
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> Result<bool, StoreError> {
        let sql = "DELETE FROM agq.scores WHERE key = $1 AND member = $2";
        self.noted(self.session.run(query(sql).bind(key).bind(member)).map(|count| count > 0))
    }

    fn members(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: Part,
    ) -> Result<Vec<(Bytes, f64)>, StoreError> {
        self.noted(self.between(key, scores, part))
    }
}
