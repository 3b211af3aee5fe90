//! Positions in lanes from which on there may be ready jobs.
//!
//! As long as a transaction has an old snapshot, the index of ready jobs keeps an entry for each
//! job that has been claimed since. A claim that began at the first entry of a lane would read all
//! these entries. So a node stores for each lane a position before which it has found no ready job,
//! and begins there. A job that becomes ready before that position moves the position back. Nodes
//! notify each other of such jobs, and scan whole lanes in every poll interval, because a
//! notification may be lost. A claim that finds too little also scans whole lanes, unless that
//! takes long.

use std::{
    collections::BTreeMap,
    fmt::Write,
    mem::take,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use agenix_rules::job::Job;

use super::sql_types;

/// Position of a job in its lane: rank and turn.
pub(super) type Position = (i16, i64);

/// Position behind all jobs of a lane.
pub(super) const END: Position = (i16::MAX, i64::MAX);

/// Maximum number of lanes in a notification, which has a maximum length.
const MAX_NOTIFIED_LANES: usize = 100;

/// Returns the position of a job in its lane.
pub(super) fn position_of(job: &Job) -> Position {
    (sql_types::rank(job), sql_types::wide(job.seq))
}

/// Ready jobs that claims may not have seen yet: the first position for each lane, or [`END`] if
/// only a limit or a budget of the lane has room.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ReadyPositions {
    /// True if any job of any lane may be ready, too.
    pub(super) any: bool,
    pub(super) first: BTreeMap<i32, Position>,
}

impl ReadyPositions {
    pub(super) fn any() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// Adds a ready job.
    pub(super) fn add(&mut self, lane: i32, position: Position) {
        let first = self.first.entry(lane).or_insert(position);
        *first = position.min(*first);
    }

    /// Returns the text for a notification.
    pub(super) fn encode(&self) -> String {
        if self.any || self.first.len() > MAX_NOTIFIED_LANES {
            return "any".into();
        }
        let mut text = String::from("of");
        for (lane, (rank, turn)) in &self.first {
            let _always_written = write!(text, " {lane}:{rank}:{turn}");
        }
        text
    }

    /// Decodes the text of a notification. A text that cannot be decoded may mean any job, because
    /// it may be that of another version.
    pub(super) fn decode(text: &str) -> Self {
        let Some(lanes) = text.strip_prefix("of") else { return Self::any() };
        let lane = |word: &str| {
            let mut numbers = word.splitn(3, ':');
            let lane: i32 = numbers.next()?.parse().ok()?;
            let position = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
            Some((lane, position))
        };
        match lanes.split_whitespace().map(lane).collect::<Option<_>>() {
            Some(first) => Self { any: false, first },
            None => Self::any(),
        }
    }
}

/// Ready jobs of which other nodes have notified this node since the latest claim.
#[derive(Debug, Default)]
pub(crate) struct ReadyNotices {
    notified: Mutex<ReadyPositions>,
    /// True if this node receives the notifications of other nodes.
    is_listening: AtomicBool,
}

impl ReadyNotices {
    pub(super) fn add(&self, ready: ReadyPositions) {
        let mut notified = self.locked();
        notified.any |= ready.any;
        ready.first.into_iter().for_each(|(lane, position)| notified.add(lane, position));
    }

    pub(super) fn take(&self) -> ReadyPositions {
        take(&mut *self.locked())
    }

    /// Records whether this node receives notifications. Any job may have become ready before it
    /// begins to.
    pub(super) fn set_listening(&self, is_listening: bool) {
        self.add(ReadyPositions::any());
        self.is_listening.store(is_listening, Ordering::SeqCst);
    }

    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::SeqCst)
    }

    fn locked(&self) -> MutexGuard<'_, ReadyPositions> {
        self.notified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{END, MAX_NOTIFIED_LANES, ReadyNotices, ReadyPositions};

    #[test]
    fn positions_round_trip_through_a_notification() {
        let mut ready = ReadyPositions::default();
        assert_eq!(ReadyPositions::decode(&ready.encode()), ready);
        for (lane, position) in [(7, (100, 3)), (7, (99, 9)), (7, (99, 10)), (i32::MAX, END)] {
            ready.add(lane, position);
        }
        assert_eq!(ready.encode(), "of 7:99:9 2147483647:32767:9223372036854775807");
        assert_eq!(ReadyPositions::decode(&ready.encode()), ready);
        assert_eq!(ReadyPositions::decode(&ReadyPositions::any().encode()), ReadyPositions::any());
    }

    #[test]
    fn unknown_and_long_notifications_mean_any_job() {
        for text in ["", "of 1", "of 1:2:x", "of 1:2:3:4", "later"] {
            assert_eq!(ReadyPositions::decode(text), ReadyPositions::any(), "{text}");
        }
        let mut ready = ReadyPositions::default();
        (0..=MAX_NOTIFIED_LANES).for_each(|lane| ready.add(i32::try_from(lane).unwrap(), (1, 1)));
        assert_eq!(ReadyPositions::decode(&ready.encode()), ReadyPositions::any());
    }

    #[test]
    fn notices_are_merged_until_they_are_taken() {
        let notices = ReadyNotices::default();
        for text in ["of 1:5:5", "of 1:4:9 2:1:1", "of"] {
            notices.add(ReadyPositions::decode(text));
        }
        assert_eq!(notices.take(), ReadyPositions::decode("of 1:4:9 2:1:1"));
        assert_eq!(notices.take(), ReadyPositions::default());
        notices.set_listening(true);
        assert!(notices.is_listening() && notices.take().any);
    }
}
