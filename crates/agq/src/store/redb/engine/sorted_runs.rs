//! Rows of one table in memory, in the order of their keys.

use std::{fmt, ops::Bound};

use smallvec::SmallVec;

use crate::store::redb::engine::raw_key::RawKey;

/// Maximum number of rows of a run.
const MAX_RUN_ROWS: usize = 64;

/// Value of a key in memory. `None` is a tombstone: the key was removed.
pub(crate) type Versioned = Option<Box<[u8]>>;
type Run = Vec<(RawKey, Versioned)>;
/// Index of a run, and index of a row in it.
type RunPosition = (usize, usize);

/// A sorted map of rows, as a list of short sorted vectors.
///
/// Nearly every new row is the last of all, or follows the row that was inserted before it. Such a
/// row is appended without a search in a tree, and without moving other rows.
#[derive(Default)]
pub(crate) struct SortedRuns {
    /// None of the runs is empty. The rows of one batch usually fit into one run.
    runs: SmallVec<[Run; 1]>,
    len: usize,
}

impl SortedRuns {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, key: &RawKey) -> Option<&Versioned> {
        self.place(key).ok().map(|(run, at)| &self.runs[run][at].1)
    }

    /// Sets the value of a key, and returns the previous value.
    pub(crate) fn insert(&mut self, key: RawKey, value: Versioned) -> Option<Versioned> {
        match self.place(&key) {
            Ok((run, at)) => Some(std::mem::replace(&mut self.runs[run][at].1, value)),
            Err(place) => {
                self.insert_at(place, (key, value));
                self.len += 1;
                None
            }
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&RawKey, &Versioned)> {
        self.runs.iter().flatten().map(|(key, value)| (key, value))
    }

    /// Returns the rows between two bounds. The start must not be greater than the end.
    pub(crate) fn range<'r>(
        &'r self,
        (start, end): (Bound<&RawKey>, Bound<&RawKey>),
    ) -> impl DoubleEndedIterator<Item = (&'r RawKey, &'r Versioned)> + use<'r> {
        let (first, from) = match start {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => self.place(key).unwrap_or_else(|place| place),
            Bound::Excluded(key) => self.place(key).map_or_else(|place| place, |(run, at)| (run, at + 1)),
        };
        let (last, to) = match end {
            Bound::Unbounded => (self.runs.len(), 0),
            Bound::Excluded(key) => self.place(key).unwrap_or_else(|place| place),
            Bound::Included(key) => self.place(key).map_or_else(|place| place, |(run, at)| (run, at + 1)),
        };
        let run = |number: usize| self.runs.get(number).map_or(&[][..], Vec::as_slice);
        let (head, tail) = if first == last {
            (&run(first)[from..to], &[][..])
        } else {
            (&run(first)[from..], &run(last)[..to])
        };
        let between = self.runs.get(first + 1..last).unwrap_or_default();
        head.iter().chain(between.iter().flatten()).chain(tail).map(|(key, value)| (key, value))
    }

    /// Adds newer rows, which replace rows with the same keys.
    pub(crate) fn absorb(&mut self, newer: Self) {
        for (key, slot) in newer.runs.into_iter().flatten() {
            self.insert(key, slot);
        }
    }

    /// Returns the position of a key, or the position at which the key has to be inserted. The end
    /// of a run with room is preferred to the beginning of the next run.
    fn place(&self, key: &RawKey) -> Result<RunPosition, RunPosition> {
        let Some(last) = self.runs.len().checked_sub(1) else { return Err((0, 0)) };
        let is_behind = |run: &Run| run.last().is_some_and(|(greatest, _)| greatest < key);
        if is_behind(&self.runs[last]) {
            return Err((last, self.runs[last].len()));
        }
        let is_in_last = self.runs[last].first().is_some_and(|(least, _)| least <= key);
        let run = if is_in_last { last } else { self.runs.partition_point(is_behind) };
        match self.runs[run].binary_search_by(|(other, _)| other.cmp(key)) {
            Ok(at) => Ok((run, at)),
            Err(0) if run > 0 && self.runs[run - 1].len() < MAX_RUN_ROWS => {
                Err((run - 1, self.runs[run - 1].len()))
            }
            Err(at) => Err((run, at)),
        }
    }

    /// Inserts a row. A full run is split in the middle. A row before or behind all rows of a full
    /// run starts a run of its own, because more rows are likely to follow there.
    fn insert_at(&mut self, (mut run, mut at): RunPosition, row: (RawKey, Versioned)) {
        if self.runs.is_empty() {
            self.runs.push(Run::new());
        } else if self.runs[run].len() == MAX_RUN_ROWS {
            let split = if at == 0 || at == MAX_RUN_ROWS { at } else { MAX_RUN_ROWS / 2 };
            let mut behind = Run::with_capacity(MAX_RUN_ROWS);
            behind.extend(self.runs[run].drain(split..));
            self.runs.insert(run + 1, behind);
            if at > split || at == MAX_RUN_ROWS {
                (run, at) = (run + 1, at - split);
            }
        }
        self.runs[run].insert(at, row);
    }
}

impl FromIterator<(RawKey, Versioned)> for SortedRuns {
    fn from_iter<I: IntoIterator<Item = (RawKey, Versioned)>>(rows: I) -> Self {
        let mut all = Self::default();
        for (key, slot) in rows {
            all.insert(key, slot);
        }
        all
    }
}

impl PartialEq for SortedRuns {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SortedRuns {}

impl fmt::Debug for SortedRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ops::Bound};

    use proptest::prelude::*;

    use super::{MAX_RUN_ROWS, RawKey, SortedRuns, Versioned};

    /// First key, number of keys, direction, and true if the keys are inserted.
    type Stretch = (u32, u32, bool, bool);

    fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
        proptest::collection::vec((0_u32..2000, 1_u32..150, any::<bool>(), any::<bool>()), 1..24)
    }

    fn bound(of: (u8, u32)) -> Bound<RawKey> {
        match of {
            (0, _) => Bound::Unbounded,
            (1, key) => Bound::Included(RawKey::of::<u32>(&key)),
            (_, key) => Bound::Excluded(RawKey::of::<u32>(&key)),
        }
    }

    /// Returns true if all rows are sorted, and no run is empty or too long.
    fn is_sound(rows: &SortedRuns) -> bool {
        let keys: Vec<_> = rows.iter().map(|(key, _)| key).collect();
        rows.runs.iter().all(|run| (1..=MAX_RUN_ROWS).contains(&run.len()))
            && keys.is_sorted_by(|one, other| one < other)
            && keys.len() == rows.len()
            && rows.is_empty() == keys.is_empty()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sorted_runs_behave_like_a_btreemap(
            stretches in stretches(),
            start in (0_u8..3, 0_u32..2000),
            end in (0_u8..3, 0_u32..2000),
        ) {
            let (mut rows, mut model) = (SortedRuns::default(), BTreeMap::<RawKey, Versioned>::new());
            for (round, (from, count, is_up, is_in)) in stretches.into_iter().enumerate() {
                let mut stretch = SortedRuns::default();
                for n in 0..count {
                    let key = RawKey::of::<u32>(&if is_up { from + n } else { from + count - n });
                    let slot: Versioned = is_in.then(|| round.to_le_bytes().into());
                    if round % 3 == 0 {
                        stretch.insert(key.clone(), slot.clone());
                        model.insert(key, slot);
                    } else {
                        prop_assert_eq!(rows.insert(key.clone(), slot.clone()), model.insert(key, slot));
                    }
                }
                rows.absorb(stretch);
                prop_assert!(is_sound(&rows));
            }
            prop_assert!(rows.iter().eq(model.iter()));
            prop_assert!((0..2200).map(|key| RawKey::of::<u32>(&key)).all(|key| rows.get(&key) == model.get(&key)));
            let (first, last) = if start.1 < end.1 { (start, end) } else { (end, start) };
            prop_assume!(first.0 != 2 || last.0 != 2 || first.1 != last.1);
            let bounds = (bound(first), bound(last));
            let found = rows.range((bounds.0.as_ref(), bounds.1.as_ref()));
            prop_assert!(found.eq(model.range(bounds.clone())));
            let back = rows.range((bounds.0.as_ref(), bounds.1.as_ref())).rev();
            prop_assert!(back.eq(model.range(bounds).rev()));
        }
    }

    #[test]
    fn sorted_runs_are_filled_by_rows_in_order() {
        let many = u32::try_from(8 * MAX_RUN_ROWS).unwrap();
        let up = (0..many).chain(3 * many..4 * many);
        let between = (many..2 * many).chain((2 * many..3 * many).rev());
        let rows: SortedRuns = up.chain(between).map(|key| (RawKey::of::<u32>(&key), None)).collect();
        assert_eq!(rows.len(), 4 * many as usize);
        assert!(rows.runs.len() <= 4 * 8 + 2, "{} runs", rows.runs.len());
    }
}
