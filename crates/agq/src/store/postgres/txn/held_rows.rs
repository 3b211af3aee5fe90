//! Documents of one kind that a write transaction has locked. No other transaction changes them
//! until it ends.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::documents::to_json;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Error, Result, Row, query};

use crate::store::{DocumentKind, postgres::connection::DatabaseSession};

const WAIT: &str = "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE";
const FAIL: &str =
    "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE NOWAIT";
const FREE: &str =
    "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE SKIP LOCKED";

/// Statement that inserts those of the given documents that do not exist. It leaves existing ones
/// out first. Otherwise `ON CONFLICT` would wait for the transaction that changes such a document,
/// and the lock of the document would wait once more.
pub(crate) const MAKE: &str = "INSERT INTO agq.notes (kind, id, json) \
     SELECT $1, n.id, $3 FROM unnest($2::text[]) AS n (id) \
     WHERE (SELECT true FROM agq.notes AS o WHERE o.kind = $1 AND o.id = n.id) IS NULL ORDER BY n.id ON CONFLICT DO NOTHING";

const PUT: &str = "INSERT INTO agq.notes (kind, id, json) SELECT $1, * FROM unnest($2::text[], $3::text[]) \
     ON CONFLICT (kind, id) DO UPDATE SET json = EXCLUDED.json";

/// Writes documents of a kind: ids and texts.
pub(crate) fn put(
    session: &DatabaseSession,
    kind: DocumentKind,
    notes: (Vec<String>, Vec<String>),
) -> Result<()> {
    if notes.0.is_empty() {
        return Ok(());
    }
    session.run(query(PUT).bind(kind.as_str()).bind(notes.0).bind(notes.1)).map(drop)
}

/// Behaviour towards a document that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLocked {
    Wait,
    /// Fails, because the other transaction may wait for this one.
    Fail,
}

pub(crate) struct HeldRows<T> {
    kind: DocumentKind,
    held: BTreeMap<String, T>,
    changed: BTreeSet<String>,
    /// True if other transactions held documents that this transaction could have used.
    pub(crate) has_passed_over: bool,
}

impl<T: Default + Serialize + DeserializeOwned> HeldRows<T> {
    pub(crate) fn new(kind: DocumentKind) -> Self {
        Self { kind, held: BTreeMap::new(), changed: BTreeSet::new(), has_passed_over: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        self.held.get(key)
    }

    /// Locks documents for this transaction. A transaction waits for documents once, in their
    /// order.
    ///
    /// A transaction that already holds some does not wait, because the holder of the missing ones
    /// may wait for those. The transaction then fails, and the writer retries the writes in parts.
    pub(crate) fn hold(
        &mut self,
        session: &DatabaseSession,
        keys: impl Iterator<Item = String>,
        on_locked: OnLocked,
    ) -> Result<()> {
        let missing: BTreeSet<String> = keys.filter(|key| !self.held.contains_key(key)).collect();
        let missing: Vec<String> = missing.into_iter().collect();
        if missing.is_empty() {
            return Ok(());
        }
        make::<T>(session, self.kind, &missing)?;
        let may_wait = self.held.is_empty() && on_locked == OnLocked::Wait;
        self.lock(session, if may_wait { WAIT } else { FAIL }, &missing)?;
        // A document that was removed between the two statements has no row to lock. The retry
        // creates it again.
        let is_held = |key: &String| self.held.contains_key(key);
        if missing.iter().all(is_held) { Ok(()) } else { Err(Error::RowNotFound) }
    }

    /// Locks those of `keys` that no other transaction holds at this moment.
    pub(crate) fn hold_free(&mut self, session: &DatabaseSession, keys: BTreeSet<String>) -> Result<()> {
        let missing: Vec<String> = keys.into_iter().filter(|key| !self.held.contains_key(key)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.lock(session, FREE, &missing)?;
        let others: Vec<String> = missing.into_iter().filter(|key| !self.held.contains_key(key)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let sql = "SELECT id FROM agq.notes WHERE kind = $1 AND id = ANY ($2)";
        let there = session.rows(query(sql).bind(self.kind.as_str()).bind(&others))?;
        let there = there.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<String>>>()?;
        self.has_passed_over |= !there.is_empty();
        let absent: Vec<String> = others.into_iter().filter(|key| !there.contains(key)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        // An absent row cannot be locked.
        make::<T>(session, self.kind, &absent)?;
        self.lock(session, FREE, &absent)
    }

    fn lock(&mut self, session: &DatabaseSession, sql: &'static str, keys: &[String]) -> Result<()> {
        for row in session.rows(query(sql).bind(self.kind.as_str()).bind(keys))? {
            let document =
                serde_json::from_str(row.try_get("json")?).map_err(|error| Error::Decode(Box::new(error)))?;
            self.held.insert(row.try_get("id")?, document);
        }
        Ok(())
    }

    /// Changes a locked document. Returns false if it is not locked.
    pub(crate) fn change(&mut self, key: &str, change: impl FnOnce(&T) -> T) -> bool {
        let Some(document) = self.held.get_mut(key) else { return false };
        *document = change(document);
        self.changed.insert(key.to_owned());
        true
    }

    /// Replaces a locked document if `json` is its new text, which another statement writes.
    pub(crate) fn replace(&mut self, kind: DocumentKind, key: &str, json: &str) {
        if kind == self.kind
            && let Some(document) = self.held.get_mut(key)
            && let Ok(new) = serde_json::from_str(json)
        {
            *document = new;
        }
    }

    /// Writes the changed documents.
    pub(crate) fn write(&mut self, session: &DatabaseSession) -> Result<()> {
        let changed = std::mem::take(&mut self.changed);
        let text = |key: &String| self.held.get(key).map(to_json).unwrap_or_default();
        put(session, self.kind, changed.iter().map(|key| (key.clone(), text(key))).unzip())
    }
}

pub(crate) fn make<T: Default + Serialize>(
    session: &DatabaseSession,
    kind: DocumentKind,
    keys: &[String],
) -> Result<()> {
    let sql = query(MAKE).bind(kind.as_str()).bind(keys);
    session.run(sql.bind(to_json(&T::default()))).map(drop)
}
