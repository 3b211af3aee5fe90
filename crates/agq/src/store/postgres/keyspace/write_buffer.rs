//! Write buffer of a transaction on users' keys, which also caches what the transaction has read.
//! The buffer is written in a few statements, however many keys, elements or members a command
//! names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::{discriminant, take},
};

use bytes::Bytes;
use sqlx::{Result, query};

use crate::store::{
    KeyEntry, StoredValue,
    postgres::{connection::DatabaseSession, sql_types},
};

/// Maximum number of unwritten bytes, because a list may be larger than any command.
const MAX_BYTES: usize = 4 << 20;
/// Cost of an element besides its bytes.
const OVERHEAD: usize = 32;

const CLEAR_LISTS: &str = "DELETE FROM agq.list_items \
     WHERE key_digest = ANY (ARRAY(SELECT sha256(n.key) FROM unnest($1::bytea[]) AS n (key)))";
const CLEAR_SETS: &str = "DELETE FROM agq.scores \
     WHERE key_digest = ANY (ARRAY(SELECT sha256(n.key) FROM unnest($1::bytea[]) AS n (key)))";
pub(crate) const REMOVE: &str = "DELETE FROM agq.keys \
     WHERE sha256(key) = ANY (ARRAY(SELECT sha256(n.key) FROM unnest($1::bytea[]) AS n (key)))";
pub(crate) const REMOVE_MEMBERS: &str = "DELETE FROM agq.scores WHERE key_digest = sha256($1) \
     AND member_digest = ANY (ARRAY(SELECT sha256(n.member) FROM unnest($2::bytea[]) AS n (member)))";
pub(crate) const UPDATE: &str = "UPDATE agq.keys AS k SET text = n.text, head = n.head, tail = n.tail, \
     members = n.members, expires_at = n.expires_at FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], \
     $5::bigint[], $6::bigint[]) AS n (key, text, head, tail, members, expires_at) WHERE sha256(k.key) = sha256(n.key)";

/// Entry of a key, as the transaction has left it.
struct CachedEntry {
    now: Option<KeyEntry>,
    /// True if the table has a row of the key.
    is_stored: bool,
    /// True if the row of the table is of a removed key, because a key that is created again gets a
    /// new number.
    is_reborn: bool,
    /// Position of the key's change among the unwritten changes.
    turn: Option<usize>,
}

#[derive(Default)]
pub(crate) struct WriteBuffer {
    known: HashMap<Bytes, CachedEntry>,
    turns: usize,
    cleared_lists: BTreeSet<Bytes>,
    cleared_sets: BTreeSet<Bytes>,
    items: BTreeMap<Bytes, BTreeMap<i64, Bytes>>,
    scores: BTreeMap<Bytes, BTreeMap<Bytes, Option<f64>>>,
    /// Cached scores, by key and member.
    seen: HashMap<Bytes, HashMap<Bytes, Option<f64>>>,
    bytes: usize,
}

impl WriteBuffer {
    /// Returns the entry of a key, if it is cached.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Option<KeyEntry>> {
        self.known.get(key).map(|known| known.now.clone())
    }

    /// Records the entry that the table has for a key.
    pub(crate) fn note_entry(&mut self, key: Bytes, now: Option<KeyEntry>) {
        let is_stored = now.is_some();
        self.known.insert(key, CachedEntry { now, is_stored, is_reborn: false, turn: None });
    }

    pub(crate) fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) {
        let Some(known) = self.known.get_mut(key) else { return };
        self.turns += 1;
        let before = known.now.replace(entry.clone());
        match &before {
            Some(_) => {
                known.turn.get_or_insert(self.turns);
            }
            None => {
                known.is_reborn = known.is_stored;
                known.turn = Some(self.turns);
            }
        }
        if let Some(before) = before
            && discriminant(&before.content) != discriminant(&entry.content)
        {
            self.clear(key, &before.content);
        }
    }

    /// Removes a cached key, and returns true if it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(known) = self.known.get_mut(key) else { return false };
        let Some(before) = known.now.take() else { return false };
        self.turns += 1;
        known.turn = Some(self.turns);
        self.clear(key, &before.content);
        true
    }

    /// Removes what a key holds outside of its entry.
    fn clear(&mut self, key: &[u8], content: &StoredValue) {
        let name = Bytes::copy_from_slice(key);
        match content {
            StoredValue::Text(_) => {}
            StoredValue::List { .. } => {
                self.items.remove(key);
                self.cleared_lists.insert(name);
            }
            StoredValue::Sorted { .. } => {
                self.scores.remove(key);
                self.seen.remove(key);
                self.cleared_sets.insert(name);
            }
        }
    }

    pub(crate) fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) {
        self.bytes += item.len() + OVERHEAD;
        of(&mut self.items, key).insert(place, Bytes::copy_from_slice(item));
    }

    /// Returns the score of a member, if it is cached.
    pub(crate) fn score(&self, key: &[u8], member: &[u8]) -> Option<Option<f64>> {
        let seen = self.seen.get(key).and_then(|seen| seen.get(member)).copied();
        seen.or_else(|| self.cleared_sets.contains(key).then_some(None))
    }

    /// Records the score that the table has for a member.
    pub(crate) fn note_score(&mut self, key: &[u8], member: Bytes, score: Option<f64>) {
        match self.seen.get_mut(key) {
            Some(seen) => seen.insert(member, score),
            None => self.seen.entry(Bytes::copy_from_slice(key)).or_default().insert(member, score),
        };
    }

    /// Sets the score of a member, or removes the member if `score` is `None`.
    pub(crate) fn put_score(&mut self, key: &[u8], member: &[u8], score: Option<f64>) {
        let member = Bytes::copy_from_slice(member);
        self.bytes += member.len() + OVERHEAD;
        self.note_score(key, member.clone(), score);
        of(&mut self.scores, key).insert(member, score);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// Writes all unwritten changes. The cached reads stay.
    pub(crate) fn write(&mut self, session: &DatabaseSession) -> Result<()> {
        self.bytes = 0;
        for (cleared, sql) in [(&mut self.cleared_lists, CLEAR_LISTS), (&mut self.cleared_sets, CLEAR_SETS)] {
            if !cleared.is_empty() {
                session.run(query(sql).bind(slices(take(cleared).iter())))?;
            }
        }
        self.write_entries(session)?;
        for (key, items) in take(&mut self.items) {
            let sql = "INSERT INTO agq.list_items (key_digest, place, item) SELECT sha256($1), n.place, n.item \
                 FROM unnest($2::bigint[], $3::bytea[]) AS n (place, item) \
                 ON CONFLICT (key_digest, place) DO UPDATE SET item = EXCLUDED.item";
            let places: Vec<i64> = items.keys().copied().collect();
            session.run(query(sql).bind(&key[..]).bind(places).bind(slices(items.values())))?;
        }
        for (key, scores) in take(&mut self.scores) {
            write_scores(session, &key, &scores)?;
        }
        Ok(())
    }

    fn write_entries(&mut self, session: &DatabaseSession) -> Result<()> {
        let mut changed: Vec<(&Bytes, &mut CachedEntry)> =
            self.known.iter_mut().filter(|(_, known)| known.turn.is_some()).collect();
        changed.sort_by_key(|(_, known)| known.turn);
        let gone =
            changed.iter().filter(|(_, known)| known.is_stored && (known.is_reborn || known.now.is_none()));
        let gone: Vec<&[u8]> = gone.map(|(key, _)| &key[..]).collect();
        if !gone.is_empty() {
            session.run(query(REMOVE).bind(gone))?;
        }
        let (mut kept, mut new) = (EntryRows::default(), EntryRows::default());
        for (key, known) in &changed {
            if let Some(entry) = &known.now {
                let rows = if known.is_stored && !known.is_reborn { &mut kept } else { &mut new };
                rows.push(key, entry);
            }
        }
        kept.update(session)?;
        new.insert(session)?;
        for (_, known) in changed {
            (known.is_stored, known.is_reborn, known.turn) = (known.now.is_some(), false, None);
        }
        Ok(())
    }
}

fn of<'m, V: Default>(map: &'m mut BTreeMap<Bytes, V>, key: &[u8]) -> &'m mut V {
    map.entry(Bytes::copy_from_slice(key)).or_default()
}

fn slices<'b>(all: impl Iterator<Item = &'b Bytes>) -> Vec<&'b [u8]> {
    all.map(|bytes| &bytes[..]).collect()
}

fn write_scores(session: &DatabaseSession, key: &[u8], scores: &BTreeMap<Bytes, Option<f64>>) -> Result<()> {
    let gone = scores.iter().filter(|(_, score)| score.is_none());
    let gone = slices(gone.map(|(member, _)| member));
    if !gone.is_empty() {
        session.run(query(REMOVE_MEMBERS).bind(key).bind(gone))?;
    }
    let put = || scores.iter().filter_map(|(member, score)| Some((member, (*score)?)));
    if put().next().is_some() {
        let sql = "INSERT INTO agq.scores (key_digest, member, score) SELECT sha256($1), n.member, n.score \
             FROM unnest($2::bytea[], $3::float8[]) AS n (member, score) \
             ON CONFLICT (key_digest, member_digest) DO UPDATE SET score = EXCLUDED.score";
        let members = slices(put().map(|(member, _)| member));
        // Zero has one representation, so -0 is stored as 0.
        let scores: Vec<f64> = put().map(|(_, score)| score + 0.0).collect();
        session.run(query(sql).bind(key).bind(members).bind(scores))?;
    }
    Ok(())
}

#[derive(Default)]
struct EntryRows<'e> {
    keys: Vec<&'e [u8]>,
    texts: Vec<Option<&'e [u8]>>,
    heads: Vec<Option<i64>>,
    tails: Vec<Option<i64>>,
    members: Vec<Option<i64>>,
    expiries: Vec<Option<i64>>,
}

impl<'e> EntryRows<'e> {
    fn push(&mut self, key: &'e [u8], entry: &'e KeyEntry) {
        let (text, head, tail, members) = match &entry.content {
            StoredValue::Text(text) => (Some(&text[..]), None, None, None),
            StoredValue::List { head, tail } => (None, Some(*head), Some(*tail), None),
            StoredValue::Sorted { members } => (None, None, None, Some(sql_types::wide(*members))),
        };
        self.keys.push(key);
        self.texts.push(text);
        self.heads.push(head);
        self.tails.push(tail);
        self.members.push(members);
        self.expiries.push(sql_types::time(entry.expires_at));
    }

    fn update(self, session: &DatabaseSession) -> Result<()> {
        self.run(session, UPDATE)
    }

    fn insert(self, session: &DatabaseSession) -> Result<()> {
        let sql = "INSERT INTO agq.keys (key, number, text, head, tail, members, expires_at) \
             SELECT key, nextval('agq.key_numbers'), text, head, tail, members, expires_at FROM \
             (SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], \
             $6::bigint[]) WITH ORDINALITY AS n (key, text, head, tail, members, expires_at, turn) \
             ORDER BY turn) AS n";
        self.run(session, sql)
    }

    fn run(self, session: &DatabaseSession, sql: &'static str) -> Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let sql = query(sql).bind(self.keys).bind(self.texts).bind(self.heads).bind(self.tails);
        session.run(sql.bind(self.members).bind(self.expiries)).map(drop)
    }
}
