//! Documents of one kind that a write transaction has locked. No other transaction changes these
//! documents until the write transaction ends.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::documents::to_json;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Error, Result, Row, postgres::PgRow};

use crate::store::{
    DocumentKind,
    postgres::{
        connection::{DatabaseSession, Param, PreparedStatement, RoundTrip},
        sql_types,
    },
};

/// Defines a statement that locks documents of a kind. The statement reads the ends that the
/// documents of limits do not count. The statement may miss ends that are committed while it runs,
/// and then finds less room under a limit than there is.
macro_rules! locking {
    ($name:literal, $lock:literal) => {
        PreparedStatement {
            name: $name,
            sql: concat!(
                "SELECT id, json, (SELECT sum(ended)::bigint FROM agq.limit_ends WHERE $1::text = 'limit' AND limit_key = n.id) \
                 AS ended FROM agq.notes AS n WHERE kind = $1 AND id = ANY ($2::text[]) ORDER BY id",
                $lock
            ),
        }
    };
}

const WAIT: PreparedStatement = locking!("agq_lock_documents", " FOR UPDATE");
const FAIL: PreparedStatement = locking!("agq_lock_documents_nowait", " FOR UPDATE NOWAIT");
const FREE: PreparedStatement = locking!("agq_lock_free_documents", " FOR UPDATE SKIP LOCKED");

/// Statement that inserts those of the given documents that do not exist. The statement leaves out
/// existing documents first. Otherwise `ON CONFLICT` would wait for the transaction that changes
/// such a document, and the lock of the document would wait once more.
pub(crate) const MAKE: PreparedStatement = PreparedStatement {
    name: "agq_make_documents",
    sql: "INSERT INTO agq.notes (kind, id, json) SELECT $1::text, n.id, $3::text FROM unnest($2::text[]) AS n (id) \
         WHERE (SELECT true FROM agq.notes AS o WHERE o.kind = $1 AND o.id = n.id) IS NULL ORDER BY n.id ON CONFLICT DO NOTHING",
};

/// Query for the ids of those of the given documents that exist.
const IDS: PreparedStatement = PreparedStatement {
    name: "agq_document_ids",
    sql: "SELECT id FROM agq.notes WHERE kind = $1::text AND id = ANY ($2::text[])",
};

/// Query for documents without their locks.
pub(crate) const EXISTING: PreparedStatement = PreparedStatement {
    name: "agq_documents",
    sql: "SELECT id, json FROM agq.notes WHERE kind = $1::text AND id = ANY ($2::text[])",
};

const PUT: PreparedStatement = PreparedStatement {
    name: "agq_put_documents",
    sql: "INSERT INTO agq.notes (kind, id, json) SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) \
         ON CONFLICT (kind, id) DO UPDATE SET json = EXCLUDED.json",
};

/// Documents to write, by kind and id.
#[derive(Default)]
pub(crate) struct DocumentWrites(BTreeMap<(DocumentKind, String), String>);

impl DocumentWrites {
    pub(crate) fn put(&mut self, kind: DocumentKind, id: String, json: String) {
        self.0.insert((kind, id), json);
    }

    /// Adds the statement that writes the documents.
    pub(crate) fn push(self, round_trip: &mut RoundTrip) {
        if !self.0.is_empty() {
            round_trip.call(&PUT, self.params());
        }
    }

    fn params(self) -> Vec<Param> {
        let [mut kinds, mut ids, mut texts] = <[Vec<String>; 3]>::default();
        for ((kind, id), json) in self.0 {
            kinds.push(kind.as_str().to_owned());
            ids.push(id);
            texts.push(json);
        }
        vec![Param::Texts(kinds), Param::Texts(ids), Param::Texts(texts)]
    }
}

/// Writes documents of a kind: ids and texts.
pub(crate) fn put(
    session: &DatabaseSession,
    kind: DocumentKind,
    notes: (Vec<String>, Vec<String>),
) -> Result<()> {
    if notes.0.is_empty() {
        return Ok(());
    }
    let mut writes = DocumentWrites::default();
    notes.0.into_iter().zip(notes.1).for_each(|(id, json)| writes.put(kind, id, json));
    session.run(PUT.query(writes.params())).map(drop)
}

/// Behaviour towards a document that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLocked {
    Wait,
    /// Fails, because the other transaction may wait for this one.
    Fail,
}

pub(crate) struct LockedRows<T> {
    kind: DocumentKind,
    locked: BTreeMap<String, T>,
    changed: BTreeSet<String>,
    /// Ends that documents do not count, by the ids of the documents.
    ended: BTreeMap<String, u64>,
    /// True if other transactions held documents that this transaction could have used.
    pub(crate) has_passed_over: bool,
}

impl<T: Default + Serialize + DeserializeOwned> LockedRows<T> {
    pub(crate) fn new(kind: DocumentKind) -> Self {
        Self {
            kind,
            locked: BTreeMap::new(),
            changed: BTreeSet::new(),
            ended: BTreeMap::new(),
            has_passed_over: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.locked.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        self.locked.get(key)
    }

    /// Returns the number of ends that a locked document does not count.
    pub(crate) fn ended(&self, key: &str) -> u64 {
        self.ended.get(key).copied().unwrap_or_default()
    }

    /// Adds ends that a locked document does not count.
    pub(crate) fn add_ended(&mut self, key: &str, count: u64) {
        if self.locked.contains_key(key) {
            *self.ended.entry(key.to_owned()).or_default() += count;
        }
    }

    /// Locks documents for this transaction. A transaction waits for documents once, in their
    /// order.
    ///
    /// A transaction that already holds documents does not wait, because the holder of the missing
    /// documents may wait for the held ones. The transaction then fails, and the writer retries the
    /// writes in parts.
    pub(crate) fn lock(
        &mut self,
        session: &DatabaseSession,
        keys: impl Iterator<Item = String>,
        on_locked: OnLocked,
    ) -> Result<()> {
        self.lock_with_free(session, keys, on_locked, BTreeSet::new())
    }

    /// Locks those of `keys` that no other transaction holds at this moment.
    pub(crate) fn lock_free(&mut self, session: &DatabaseSession, keys: BTreeSet<String>) -> Result<()> {
        self.lock_with_free(session, std::iter::empty(), OnLocked::Fail, keys)
    }

    /// Locks `keys` as [`Self::lock`] does, and then `free` as [`Self::lock_free`] does.
    pub(crate) fn lock_with_free(
        &mut self,
        session: &DatabaseSession,
        keys: impl Iterator<Item = String>,
        on_locked: OnLocked,
        mut free: BTreeSet<String>,
    ) -> Result<()> {
        let missing: BTreeSet<String> = keys.filter(|key| !self.locked.contains_key(key)).collect();
        free.retain(|key| !self.locked.contains_key(key) && !missing.contains(key));
        let missing: Vec<String> = missing.into_iter().collect();
        let (mut round_trip, mut places) = (RoundTrip::default(), Vec::new());
        if !missing.is_empty() {
            let may_wait = self.locked.is_empty() && on_locked == OnLocked::Wait;
            round_trip.call(&MAKE, making::<T>(self.kind, &missing));
            let lock = if may_wait { &WAIT } else { &FAIL };
            places.push(round_trip.call(lock, naming(self.kind, missing.clone())));
        }
        let mut existing = None;
        if !free.is_empty() {
            let named = naming(self.kind, free.iter().cloned().collect());
            places.push(round_trip.call(&FREE, named.clone()));
            existing = Some(round_trip.call(&IDS, named));
        }
        if places.is_empty() {
            return Ok(());
        }
        let answers = session.send(round_trip).map_err(|failure| failure.error)?;
        for place in places {
            self.add(answers.get(place).ok_or(Error::RowNotFound)?)?;
        }
        // A document that was removed between the two statements has no row to lock. The retry
        // creates the document again.
        if !missing.iter().all(|key| self.locked.contains_key(key)) {
            return Err(Error::RowNotFound);
        }
        free.retain(|key| !self.locked.contains_key(key));
        let Some(existing) = existing.and_then(|place| answers.get(place)) else { return Ok(()) };
        let existing = existing.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<String>>>()?;
        self.has_passed_over |= free.iter().any(|key| existing.contains(key));
        self.lock_absent(session, free.into_iter().filter(|key| !existing.contains(key)).collect())
    }

    /// Creates documents, and locks them.
    fn lock_absent(&mut self, session: &DatabaseSession, absent: Vec<String>) -> Result<()> {
        if absent.is_empty() {
            return Ok(());
        }
        // An absent row cannot be locked.
        make::<T>(session, self.kind, &absent)?;
        self.lock_existing(session, absent)
    }

    fn lock_existing(&mut self, session: &DatabaseSession, keys: Vec<String>) -> Result<()> {
        self.add(&session.rows(FREE.query(naming(self.kind, keys)))?)
    }

    /// Adds locked documents.
    fn add(&mut self, rows: &[PgRow]) -> Result<()> {
        self.locked.extend(documents_in(rows)?);
        for row in rows {
            if let Some(ended) = row.try_get("ended")? {
                self.ended.insert(row.try_get("id")?, sql_types::count(ended));
            }
        }
        Ok(())
    }

    /// Changes a locked document. Returns false if the document is not locked.
    pub(crate) fn change(&mut self, key: &str, change: impl FnOnce(&T) -> T) -> bool {
        let Some(document) = self.locked.get_mut(key) else { return false };
        *document = change(document);
        self.changed.insert(key.to_owned());
        true
    }

    /// Replaces a locked document if `json` is its new text, which another statement writes.
    pub(crate) fn replace(&mut self, kind: DocumentKind, key: &str, json: &str) {
        if kind == self.kind
            && let Some(document) = self.locked.get_mut(key)
            && let Ok(new) = serde_json::from_str(json)
        {
            *document = new;
        }
    }

    /// Moves the changed documents to `writes`.
    pub(crate) fn take_changed(&mut self, writes: &mut DocumentWrites) {
        for key in std::mem::take(&mut self.changed) {
            let json = self.locked.get(&key).map(to_json).unwrap_or_default();
            writes.put(self.kind, key, json);
        }
    }
}

/// Reads documents by their ids.
pub(crate) fn documents_in<T: DeserializeOwned>(rows: &[PgRow]) -> Result<BTreeMap<String, T>> {
    let document = |row: &PgRow| {
        let parsed = serde_json::from_str(row.try_get("json")?);
        Ok((row.try_get("id")?, parsed.map_err(|error| Error::Decode(Box::new(error)))?))
    };
    rows.iter().map(document).collect()
}

pub(crate) fn naming(kind: DocumentKind, keys: Vec<String>) -> Vec<Param> {
    vec![Param::Text(kind.as_str().to_owned()), Param::Texts(keys)]
}

fn making<T: Default + Serialize>(kind: DocumentKind, keys: &[String]) -> Vec<Param> {
    let mut params = naming(kind, keys.to_vec());
    params.push(Param::Text(to_json(&T::default())));
    params
}

pub(crate) fn make<T: Default + Serialize>(
    session: &DatabaseSession,
    kind: DocumentKind,
    keys: &[String],
) -> Result<()> {
    session.run(MAKE.query(making::<T>(kind, keys))).map(drop)
}
