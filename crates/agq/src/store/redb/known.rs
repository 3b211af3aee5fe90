//! What the writer knows by heart: it would be asked for at every write.

use redb::Error;

use super::{lanes::Lanes, note_reads, reads, tables::KEY_NUMBERS, view::View};
use crate::store::{QueueCounts, Totals};

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) lanes: Lanes,
    /// The number of the newest of the users' keys.
    pub(super) last_key: u64,
    pub(super) totals: Totals,
    pub(super) queue_counts: QueueCounts,
}

impl Known {
    pub(super) fn load(view: &View<'_>) -> Result<Self, Error> {
        let numbers = view.table(&KEY_NUMBERS);
        let last = numbers.range_back::<u64>(..)?.next().transpose()?;
        Ok(Self {
            lanes: Lanes::load(view)?,
            last_key: last.map_or(0, |(number, _)| number.value()),
            totals: reads::totals(view)?,
            queue_counts: note_reads::queue_counts(view)?,
        })
    }
}
