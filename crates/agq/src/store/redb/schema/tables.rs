//! The tables of the database file. A change of any of them is a new [`FORMAT`] and a step in `format`.

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use redb::{Key, TableDefinition, TypeName, Value};

use crate::store::{KeyEntry, StoredValue, redb::schema::key_order::AreAdjacent};

/// The format of the file, kept under `format` in [`META`].
pub(crate) const FORMAT: u64 = 6;

/// A table: its name in the database, and its number here.
pub(crate) struct Definition<K: Key + 'static, V: Value + 'static> {
    pub(crate) number: usize,
    pub(crate) table: TableDefinition<'static, K, V>,
    /// Whether two of its keys are known to have none between them.
    pub(crate) adjoins: AreAdjacent,
}

impl<K: Key + 'static, V: Value + 'static> Clone for Definition<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key + 'static, V: Value + 'static> Copy for Definition<K, V> {}

impl<K: Key + 'static, V: Value + 'static> Definition<K, V> {
    const fn new(number: usize, name: &'static str) -> Self {
        Self { number, table: TableDefinition::new(name), adjoins: |_, _| false }
    }

    const fn with_neighbours(self, adjoins: AreAdjacent) -> Self {
        Self { adjoins, ..self }
    }
}

/// Numbers of the file itself: `format`, `next_seq`, `journal_id`, `journal_next`.
pub(crate) const META: Definition<&str, u64> = Definition::new(0, "meta");

/// plan → its record.
pub(crate) const PLANS: Definition<&str, &[u8]> = Definition::new(1, "plans");
/// action → its record.
pub(crate) const ACTIONS: Definition<&str, &[u8]> = Definition::new(2, "actions");
/// action → how many of its jobs are where.
pub(crate) const TALLIES: Definition<&str, &[u8]> = Definition::new(3, "tallies");
/// action, place among its inputs → job.
pub(crate) const ACTION_JOBS: Definition<(&str, u64), &str> = Definition::new(4, "action_jobs");

/// plan → how many jobs need it that have not ended.
pub(crate) const PLAN_LOADS: Definition<&str, u64> = Definition::new(5, "plan_loads");

/// job → its record. Small: input and results are kept apart, so that a change of state does not write them again.
pub(crate) const JOBS: Definition<&str, &[u8]> = Definition::new(6, "jobs");
/// job → its input, JSON.
pub(crate) const INPUTS: Definition<&str, &str> = Definition::new(7, "inputs");
/// job → what its worker reported, JSON.
pub(crate) const RESULTS: Definition<&str, &str> = Definition::new(8, "results");

/// lane → its queue and needs.
pub(crate) const LANES: Definition<u32, &[u8]> = Definition::new(9, "lanes");
/// lane → how many jobs are ready in it, and how many of its jobs are kept at all: at least one.
pub(crate) const LANE_LENGTHS: Definition<u32, (u64, u64)> = Definition::new(10, "lane_lengths");
/// Queues that give no jobs.
pub(crate) const PAUSED: Definition<&str, ()> = Definition::new(11, "paused");
/// Index ready: lane, rank (100 - priority), order of arrival → job.
pub(crate) const READY: Definition<(u32, u8, u64), &str> =
    Definition::new(12, "ready").with_neighbours(one_after_the_other);
/// Index due, of jobs that wait for a time: when, job.
pub(crate) const WAITING: Definition<(u64, &str), ()> = Definition::new(13, "waiting");
/// Index due, of active jobs: when the attempt is over, job; of available ones: when it is too late to begin.
pub(crate) const LEASES: Definition<(u64, &str), ()> = Definition::new(14, "leases");
/// Index held: holder, active job.
pub(crate) const HELD: Definition<(&str, &str), ()> = Definition::new(15, "held");

/// Index ended: status, when, job.
pub(crate) const ENDED: Definition<(u8, u64, &str), ()> = Definition::new(16, "ended");
/// `totals` → how many jobs there are and were.
pub(crate) const TOTALS: Definition<&str, &[u8]> = Definition::new(17, "totals");

/// worker → its record. Small: it is written at every heartbeat.
pub(crate) const WORKERS: Definition<&str, &[u8]> = Definition::new(18, "workers");
/// worker → what it registered, JSON.
pub(crate) const REGISTRATIONS: Definition<&str, &str> = Definition::new(19, "registrations");

/// A user's key → [`KeyRecord`].
pub(crate) const KEYS: Definition<&[u8], KeyRecord> = Definition::new(20, "keys");
/// The number of a user's key → the key: the keys in the order in which they came.
pub(crate) const KEY_NUMBERS: Definition<u64, &[u8]> = Definition::new(21, "key_numbers");
/// Index expiries: when, key.
pub(crate) const EXPIRIES: Definition<(u64, &[u8]), ()> = Definition::new(22, "expiries");
/// key, place → element of a list.
pub(crate) const LIST_ITEMS: Definition<(&[u8], i64), &[u8]> =
    Definition::new(23, "list_items").with_neighbours(side_by_side);
/// key, member → score (see [`ordered`]).
pub(crate) const SCORES: Definition<(&[u8], &[u8]), u64> = Definition::new(24, "scores");
/// key, score, member: a sorted set in its order.
pub(crate) const BY_SCORE: Definition<(&[u8], u64, &[u8]), ()> = Definition::new(25, "by_score");

/// kind, id → a note, JSON.
pub(crate) const NOTES: Definition<(&str, &str), &str> = Definition::new(26, "notes");
/// queue → how many of its jobs are kept in each state.
pub(crate) const QUEUE_COUNTS: Definition<&str, &[u8]> = Definition::new(27, "queue_counts");

/// What is kept of a user's key in one place. As bytes: the type, the number, the expiry (0 for none), what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRecord {
    /// Its place in [`KEY_NUMBERS`].
    pub(crate) number: u64,
    pub(crate) entry: KeyEntry,
}

impl Value for KeyRecord {
    type SelfType<'a> = Self;
    type AsBytes<'a> = Vec<u8>;

    fn fixed_width() -> Option<usize> {
        None
    }

    fn from_bytes<'a>(bytes: &'a [u8]) -> Self
    where
        Self: 'a,
    {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        let content = match bytes.first() {
            Some(b'l') => {
                StoredValue::List { head: number(17).cast_signed(), tail: number(25).cast_signed() }
            }
            Some(b'z') => StoredValue::Sorted { members: number(17) },
            _ => StoredValue::Text(Bytes::copy_from_slice(bytes.get(17..).unwrap_or_default())),
        };
        let expires_at = Some(number(9)).filter(|at| *at > 0).map(Timestamp);
        Self { number: number(1), entry: KeyEntry { content, expires_at } }
    }

    fn as_bytes<'a, 'b: 'a>(record: &'a Self) -> Vec<u8>
    where
        Self: 'b,
    {
        let expires_at = record.entry.expires_at.map_or(0, |at| at.0);
        let with = |kind: u8, content: [&[u8]; 2]| {
            let mut bytes = Vec::with_capacity(17 + content[0].len() + content[1].len());
            bytes.push(kind);
            bytes.extend_from_slice(&record.number.to_le_bytes());
            bytes.extend_from_slice(&expires_at.to_le_bytes());
            content.iter().for_each(|content| bytes.extend_from_slice(content));
            bytes
        };
        match &record.entry.content {
            StoredValue::Text(text) => with(b't', [&text[..], &[]]),
            StoredValue::List { head, tail } => with(b'l', [&head.to_le_bytes(), &tail.to_le_bytes()]),
            StoredValue::Sorted { members } => with(b'z', [&members.to_le_bytes(), &[]]),
        }
    }

    fn type_name() -> TypeName {
        TypeName::new("agq::key")
    }
}

/// Whether the places of two elements follow each other.
fn side_by_side(one: &[u8], other: &[u8]) -> bool {
    let [(key, place), (other_key, other_place)] = [one, other].map(<(&[u8], i64)>::from_bytes);
    key == other_key && place.checked_add(1) == Some(other_place)
}

/// Whether two jobs of one lane and rank have come one right after the other.
fn one_after_the_other(one: &[u8], other: &[u8]) -> bool {
    let [(lane, rank, seq), (other_lane, other_rank, other_seq)] =
        [one, other].map(<(u32, u8, u64)>::from_bytes);
    (lane, rank) == (other_lane, other_rank) && seq.checked_add(1) == Some(other_seq)
}

/// A score as a number that sorts as the score does.
pub(crate) fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The score that [`ordered`] made a number of.
pub(crate) fn score_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1_u64 << 63) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use bytes::Bytes;
    use redb::Value;

    use super::{KeyEntry, KeyRecord, LIST_ITEMS, READY, StoredValue, ordered, score_of};

    #[test]
    fn what_has_nothing_between_follows_right_after() {
        let ready = |one, other| {
            let [one, other] = [one, other].map(|key| <(u32, u8, u64)>::as_bytes(&key).to_vec());
            (READY.adjoins)(&one, &other)
        };
        assert!(ready((1, 100, 7), (1, 100, 8)));
        let others = [(1, 100, 7), (1, 100, 9), (1, 101, 8), (2, 100, 8)];
        assert!(others.iter().all(|other| !ready((1, 100, 7), *other)));
        assert!(!ready((1, 100, u64::MAX), (1, 100, 0)));
        let items = |one, other| {
            let [one, other] = [one, other].map(|key| <(&[u8], i64)>::as_bytes(&key));
            (LIST_ITEMS.adjoins)(&one, &other)
        };
        assert!(items((&b"a"[..], -1), (&b"a"[..], 0)));
        assert!(!items((&b"a"[..], -1), (&b"b"[..], 0)) && !items((&b"a"[..], 0), (&b"a"[..], 2)));
    }

    #[test]
    fn scores_keep_their_order_and_come_back() {
        let scores = [f64::NEG_INFINITY, -2.5, -0.5, 0.0, 1e-9, 3.0, f64::INFINITY];
        assert!(scores.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert!(scores.iter().all(|score| score_of(ordered(*score)).to_bits() == score.to_bits()));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn records_of_keys_come_back() {
        let texts = [StoredValue::Text(Bytes::new()), StoredValue::Text(Bytes::from_static(b"text"))];
        let others = [StoredValue::List { head: -3, tail: 9 }, StoredValue::Sorted { members: 7 }];
        for content in texts.into_iter().chain(others) {
            for expires_at in [None, Some(Timestamp(5))] {
                let record =
                    KeyRecord { number: 3, entry: KeyEntry { content: content.clone(), expires_at } };
                assert_eq!(KeyRecord::from_bytes(&KeyRecord::as_bytes(&record)), record);
            }
        }
    }
}
