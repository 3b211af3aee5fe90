//! The tables of the database file. A change of any of them is a new [`FORMAT`].

use redb::{TableDefinition, TypeName, Value};

/// The format of the file, kept under `format` in [`META`].
pub(super) const FORMAT: u64 = 1;

/// Numbers of the file itself: `format`, `next_seq`.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// plan → its record.
pub(super) const PLANS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("plans");
/// action → its record.
pub(super) const ACTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("actions");
/// action → how many of its jobs are where.
pub(super) const TALLIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tallies");
/// action, place among its inputs → job.
pub(super) const ACTION_JOBS: TableDefinition<'_, (&str, u64), &str> = TableDefinition::new("action_jobs");

/// job → its record. Small: input and results are kept apart, so that a change of state does not write them again.
pub(super) const JOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("jobs");
/// job → its input, JSON.
pub(super) const INPUTS: TableDefinition<'_, &str, &str> = TableDefinition::new("inputs");
/// job → what its worker reported, JSON.
pub(super) const RESULTS: TableDefinition<'_, &str, &str> = TableDefinition::new("results");

/// lane → its queue and needs.
pub(super) const LANES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("lanes");
/// lane → how many jobs are ready in it.
pub(super) const LANE_LENGTHS: TableDefinition<'_, u32, u64> = TableDefinition::new("lane_lengths");
/// Index ready: lane, order of arrival → job.
pub(super) const READY: TableDefinition<'_, (u32, u64), &str> = TableDefinition::new("ready");
/// Index due, of jobs that wait for a time: when, job.
pub(super) const WAITING: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("waiting");
/// Index due, of active jobs: when the attempt is over, job.
pub(super) const LEASES: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("leases");
/// Index held: holder, active job.
pub(super) const HELD: TableDefinition<'_, (&str, &str), ()> = TableDefinition::new("held");

/// worker → its record.
pub(super) const WORKERS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("workers");

/// A user's key → [`Entry`].
pub(super) const KEYS: TableDefinition<'_, &[u8], Entry> = TableDefinition::new("keys");
/// key, place → element of a list.
pub(super) const LIST_ITEMS: TableDefinition<'_, (&[u8], i64), &[u8]> = TableDefinition::new("list_items");
/// key, member → score (see [`ordered`]).
pub(super) const SCORES: TableDefinition<'_, (&[u8], &[u8]), u64> = TableDefinition::new("scores");
/// key, score, member: a sorted set in its order.
pub(super) const BY_SCORE: TableDefinition<'_, (&[u8], u64, &[u8]), ()> = TableDefinition::new("by_score");

/// What a user's key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// A string, in place.
    Text(Vec<u8>),
    /// A list: the places `head..tail` of [`LIST_ITEMS`].
    List { head: i64, tail: i64 },
    /// A sorted set: how many members it has.
    Sorted { members: u64 },
}

impl Value for Entry {
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
        match bytes.first() {
            Some(b'l') => Self::List { head: number(1).cast_signed(), tail: number(9).cast_signed() },
            Some(b'z') => Self::Sorted { members: number(1) },
            _ => Self::Text(bytes.get(1..).unwrap_or_default().to_vec()),
        }
    }

    fn as_bytes<'a, 'b: 'a>(value: &'a Self) -> Vec<u8>
    where
        Self: 'b,
    {
        match value {
            Self::Text(text) => [b"t", text.as_slice()].concat(),
            Self::List { head, tail } => [&b"l"[..], &head.to_le_bytes(), &tail.to_le_bytes()].concat(),
            Self::Sorted { members } => [&b"z"[..], &members.to_le_bytes()].concat(),
        }
    }

    fn type_name() -> TypeName {
        TypeName::new("agq::entry")
    }
}

/// A score as a number that sorts as the score does.
pub(super) fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use redb::Value;

    use super::{Entry, ordered};

    #[test]
    fn scores_keep_their_order() {
        let scores = [f64::NEG_INFINITY, -2.5, -0.5, 0.0, 1e-9, 3.0, f64::INFINITY];
        assert!(scores.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn entries_come_back() {
        for entry in [Entry::Text(vec![]), Entry::List { head: -3, tail: 9 }, Entry::Sorted { members: 7 }] {
            assert_eq!(Entry::from_bytes(&Entry::as_bytes(&entry)), entry);
        }
    }
}
