//! The lanes in the writer's memory: few, asked at every claim, written along with the batch that changed them.

use std::collections::{BTreeSet, HashMap, HashSet};

use agenix_rules::capability::Needs;

use redb::{Database, Error, ReadableDatabase, ReadableTable, Table, TableError};
use serde::{Deserialize, Serialize};

use super::{
    codec::{decode, encode},
    tables::{LANE_LENGTHS, LANES, META, PAUSED},
};

/// What makes a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct LaneKey {
    pub(super) queue: String,
    pub(super) needs: Needs,
}

/// Every lane there ever was, by number.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    keys: Vec<LaneKey>,
    numbers: HashMap<LaneKey, u32>,
    lengths: Vec<u64>,
    changed: BTreeSet<u32>,
    /// The lanes that have ready jobs.
    filled: BTreeSet<u32>,
    /// Queues that give no jobs.
    paused: HashSet<String>,
    next_seq: u64,
    /// What of it is stored.
    saved_seq: u64,
}

impl Lanes {
    pub(super) fn load(database: &Database) -> Result<Self, Error> {
        let read = database.begin_read()?;
        let mut lanes = Self::default();
        let keys = match read.open_table(LANES) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(lanes),
            table => table?,
        };
        let lengths = read.open_table(LANE_LENGTHS)?;
        for entry in keys.iter()? {
            let (number, key) = entry?;
            let length = lengths.get(number.value())?.map_or(0, |length| length.value());
            lanes.push(decode(key.value())?, length);
        }
        for entry in read.open_table(PAUSED)?.iter()? {
            lanes.paused.insert(entry?.0.value().to_owned());
        }
        lanes.next_seq = read.open_table(META)?.get("next_seq")?.map_or(0, |seq| seq.value());
        lanes.saved_seq = lanes.next_seq;
        Ok(lanes)
    }

    fn push(&mut self, key: LaneKey, length: u64) -> u32 {
        let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        self.numbers.insert(key.clone(), number);
        self.keys.push(key);
        self.lengths.push(length);
        if length > 0 {
            self.filled.insert(number);
        }
        number
    }

    /// The number of a lane, which is made where it is new.
    pub(super) fn number(&mut self, key: LaneKey) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let number = self.push(key, 0);
        self.changed.insert(number);
        number
    }

    /// The lanes that have ready jobs.
    pub(super) fn with_jobs(&self) -> impl Iterator<Item = (u32, &LaneKey)> {
        self.filled.iter().filter_map(|number| Some((*number, self.keys.get(*number as usize)?)))
    }

    /// Whether a queue gives no jobs.
    pub(super) fn is_paused(&self, queue: &str) -> bool {
        self.paused.contains(queue)
    }

    pub(super) fn set_paused(&mut self, queue: &str, paused: bool) {
        if paused {
            self.paused.insert(queue.to_owned());
        } else {
            self.paused.remove(queue);
        }
    }

    /// A job came into a lane, or left it.
    pub(super) fn resize(&mut self, lane: u32, by: i64) {
        if let Some(length) = self.lengths.get_mut(lane as usize) {
            *length = length.saturating_add_signed(by);
            if *length == 0 {
                self.filled.remove(&lane);
            } else {
                self.filled.insert(lane);
            }
            self.changed.insert(lane);
        }
    }

    /// The next place in the order of all jobs.
    pub(super) fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Writes what changed.
    pub(super) fn save(
        &mut self,
        keys: &mut Table<'_, u32, &'static [u8]>,
        lengths: &mut Table<'_, u32, u64>,
        meta: &mut Table<'_, &'static str, u64>,
    ) -> Result<(), Error> {
        for number in std::mem::take(&mut self.changed) {
            let at = number as usize;
            if keys.get(number)?.is_none() {
                keys.insert(number, encode(&self.keys[at])?.as_slice())?;
            }
            lengths.insert(number, self.lengths[at])?;
        }
        // Jobs that wait for a time take a turn too, and change no lane.
        if self.next_seq != self.saved_seq {
            meta.insert("next_seq", self.next_seq)?;
            self.saved_seq = self.next_seq;
        }
        Ok(())
    }
}
