//! The tables of the database file. A change of a table needs a new [`FORMAT`] and a step in
//! `file/migrations`.

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use redb::{Key, TableDefinition, TypeName, Value};

use crate::store::{KeyEntry, StoredValue, redb::schema::key_order::AreAdjacent};

/// Format of the file, stored under `format` in [`META`].
pub(crate) const FORMAT: u64 = 6;

/// Calls a macro with the rows of all tables, which are listed only here.
///
/// A row has the constant, the name in the database, the field of
/// [`Tables`](crate::store::redb::txn::tables::Tables), the type of keys and the type of values.
/// Two optional parts follow: the function that recognises adjacent keys, and the type that wraps
/// the table in a write transaction.
macro_rules! for_each_table {
    ($callback:ident) => {
        $callback! {
            /// Numbers of the file itself: `format`, `next_seq`, `journal_id`, `journal_next`.
            META "meta" meta: &'static str => u64;
            /// Plan → its record.
            PLANS "plans" plans: &'static str => &'static [u8];
            /// Action → its record.
            ACTIONS "actions" actions: &'static str => &'static [u8];
            /// Action → numbers of its jobs by status.
            JOB_COUNTS "tallies" job_counts: &'static str => &'static [u8];
            /// Action, index of the input → job.
            ACTION_JOBS "action_jobs" action_jobs: (&'static str, u64) => &'static str;
            /// Plan → number of its jobs that have not ended.
            PLAN_LOADS "plan_loads" plan_loads: &'static str => u64;
            /// Job → its record. Input and results are in tables of their own, because a change of
            /// state does not write them again.
            JOBS "jobs" jobs: &'static str => &'static [u8];
            /// Job → its input, JSON.
            INPUTS "inputs" inputs: &'static str => &'static str;
            /// Job → the report of its worker, JSON.
            RESULTS "results" results: &'static str => &'static str;
            /// Lane → its [`LaneKey`](super::index_keys::LaneKey).
            LANES "lanes" lane_keys: u32 => &'static [u8];
            /// Lane → number of its ready jobs, and number of all its jobs, which is at least 1.
            LANE_LENGTHS "lane_lengths" lane_lengths: u32 => (u64, u64);
            /// Paused queues.
            PAUSED "paused" paused: &'static str => ();
            /// Index of ready jobs: lane, rank (100 - priority), sequence number → job.
            READY "ready" ready: (u32, u8, u64) => &'static str, adjacent if are_adjacent_ready_keys;
            /// Index of scheduled and retryable jobs: due time, job.
            WAITING "waiting" waiting: (u64, &'static str) => ();
            /// Index of deadlines: end of the attempt of an active job, or expiry of an available
            /// job; job.
            LEASES "leases" leases: (u64, &'static str) => ();
            /// Index of claims: holder, active job.
            HELD "held" held: (&'static str, &'static str) => ();
            /// Index of ended jobs: status, time of the end, job.
            ENDED "ended" ended: (u8, u64, &'static str) => ();
            /// `totals` → numbers of jobs by status, now and ever.
            TOTALS "totals" totals: &'static str => &'static [u8];
            /// Worker → its record, which every heartbeat writes.
            WORKERS "workers" workers: &'static str => &'static [u8];
            /// Worker → its registration, JSON.
            REGISTRATIONS "registrations" registrations: &'static str => &'static str;
            /// User's key → [`KeyRecord`].
            KEYS "keys" keys: &'static [u8] => KeyRecord, wrapped by KeyTable;
            /// Number of a user's key → the key: the keys in order of creation.
            KEY_NUMBERS "key_numbers" key_numbers: u64 => &'static [u8];
            /// Index of expiries: time, key.
            EXPIRIES "expiries" expiries: (u64, &'static [u8]) => ();
            /// Key, place → element of a list.
            LIST_ITEMS "list_items" list_items: (&'static [u8], i64) => &'static [u8],
                adjacent if are_adjacent_list_places,
                wrapped by ListTable;
            /// Key, member → score, encoded by [`ordered`].
            SCORES "scores" scores: (&'static [u8], &'static [u8]) => u64;
            /// Key, score, member: a sorted set in its order.
            BY_SCORE "by_score" by_score: (&'static [u8], u64, &'static [u8]) => ();
            /// Kind, id → a document, JSON.
            DOCUMENTS "notes" documents: (&'static str, &'static str) => &'static str;
            /// Queue → numbers of its jobs by state.
            QUEUE_COUNTS "queue_counts" queue_counts: &'static str => &'static [u8];
        }
    };
}
pub(crate) use for_each_table;

/// A table: its name in the database, and its number, which is its place in the list of tables.
#[derive(Clone, Copy)]
pub(crate) struct Definition<K: Key + 'static, V: Value + 'static> {
    pub(crate) number: usize,
    pub(crate) table: TableDefinition<'static, K, V>,
    pub(crate) adjoins: AreAdjacent,
}

impl<K: Key + 'static, V: Value + 'static> Definition<K, V> {
    const fn new(number: TableNumber, name: &'static str) -> Self {
        Self { number: number as usize, table: TableDefinition::new(name), adjoins: |_, _| false }
    }

    const fn with_neighbours(self, adjoins: AreAdjacent) -> Self {
        Self { adjoins, ..self }
    }
}

macro_rules! define_constants {
    ($(
        $(#[$doc:meta])*
        $name:ident $text:literal $field:ident: $key:ty => $value:ty
        $(, adjacent if $adjoins:ident)? $(, wrapped by $wrapper:ident)?;
    )*) => {
        #[expect(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "the numbers have the names of the constants"
        )]
        enum TableNumber { $($name,)* }

        $(
            $(#[$doc])*
            pub(crate) const $name: Definition<$key, $value> =
                Definition::new(TableNumber::$name, $text)$(.with_neighbours($adjoins))?;
        )*
    };
}
for_each_table!(define_constants);

/// Record of a user's key. The encoding is: type, number, expiry (0 for none), content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRecord {
    /// Key in [`KEY_NUMBERS`].
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

fn are_adjacent_list_places(one: &[u8], other: &[u8]) -> bool {
    let [(key, place), (other_key, other_place)] = [one, other].map(<(&[u8], i64)>::from_bytes);
    key == other_key && place.checked_add(1) == Some(other_place)
}

fn are_adjacent_ready_keys(one: &[u8], other: &[u8]) -> bool {
    let [(lane, rank, seq), (other_lane, other_rank, other_seq)] =
        [one, other].map(<(u32, u8, u64)>::from_bytes);
    (lane, rank) == (other_lane, other_rank) && seq.checked_add(1) == Some(other_seq)
}

/// Returns an integer that sorts as the score does.
pub(crate) fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Returns the score of which [`ordered`] made `ordered`.
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
    fn adjacent_keys_are_recognised() {
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
    fn scores_keep_their_order_and_round_trip() {
        let scores = [f64::NEG_INFINITY, -2.5, -0.5, 0.0, 1e-9, 3.0, f64::INFINITY];
        assert!(scores.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert!(scores.iter().all(|score| score_of(ordered(*score)).to_bits() == score.to_bits()));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn records_of_keys_round_trip() {
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
