//! Choice of the shard of the counts for each transaction.

/// Number of shards of the counts. If more nodes write, some of them share a shard.
const SHARDS: u16 = 1024;
/// Number of shards that a node uses in turn under an old snapshot.
const IN_TURN: u16 = 32;
/// Number of transactions in a row that use the same shard.
const PER_TURN: u32 = 1_000;

/// Shards that a node writes.
///
/// As long as a transaction has an old snapshot, PostgreSQL keeps all versions of a row, and each
/// change of a count has to pass over these versions. A node then uses several shards in turn, so
/// that each row has fewer versions. Without an old snapshot, a node uses one shard, because
/// readers add up all shards.
#[derive(Debug)]
pub(crate) struct Shards {
    first: u16,
    count: u32,
}

impl Shards {
    /// Returns the shards of the node with this number among the live nodes. The first nodes have
    /// all shards that they use in turn for themselves.
    pub(crate) fn of_node(number: u16) -> Self {
        let groups = SHARDS / IN_TURN;
        let (group, place) = (number % groups, number / groups % IN_TURN);
        Self { first: group * IN_TURN + place, count: 0 }
    }

    /// Returns the shard for the next transaction.
    pub(crate) fn next(&mut self, is_snapshot_old: bool) -> i16 {
        let turn = if is_snapshot_old { self.count / PER_TURN % u32::from(IN_TURN) } else { 0 };
        self.count = self.count.wrapping_add(u32::from(is_snapshot_old));
        let shard = (u32::from(self.first) + turn) % u32::from(SHARDS);
        i16::try_from(shard).expect("there are fewer shards")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{IN_TURN, PER_TURN, SHARDS, Shards};

    #[test]
    fn nodes_have_different_first_shards_as_far_as_there_are_any() {
        let first = |number| Shards::of_node(number).first;
        assert_eq!([0, 1, 31, 32, 33, 1_023].map(first), [0, 32, 992, 1, 33, 1_023]);
        assert_eq!((0..SHARDS).map(first).collect::<BTreeSet<u16>>().len(), usize::from(SHARDS));
        assert_eq!(first(SHARDS), 0);
    }

    #[test]
    fn shards_take_turns_only_under_an_old_snapshot() {
        let mut shards = Shards { first: SHARDS - 1, count: 0 };
        let mut used = |is_snapshot_old| {
            (0..PER_TURN * u32::from(IN_TURN) * 2)
                .map(|_| shards.next(is_snapshot_old))
                .collect::<BTreeSet<i16>>()
        };
        assert_eq!(used(false), [1_023].into());
        assert_eq!(used(true), (0..31).chain([1_023]).collect());
        assert_eq!(used(false), [1_023].into());
    }
}
