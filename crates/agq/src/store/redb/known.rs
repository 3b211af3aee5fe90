//! What the writer knows by heart: it would be asked for at every write.

use std::collections::HashSet;

use redb::Error;

use super::{lanes::Lanes, note_reads, reads, tables::KEY_NUMBERS, view::View};
use crate::store::{NoteKind, QueueCounts, Totals};

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) lanes: Lanes,
    /// The number of the newest of the users' keys.
    pub(super) last_key: u64,
    pub(super) totals: Totals,
    pub(super) queue_counts: QueueCounts,
    /// Ids of the actions whose halt policies are not met yet.
    pub(super) armed: HashSet<String>,
    /// Ids of the halted actions whose jobs nobody may claim.
    pub(super) halted: HashSet<String>,
}

impl Known {
    pub(super) fn load(view: &View<'_>) -> Result<Self, Error> {
        let numbers = view.table(&KEY_NUMBERS);
        let last = numbers.range_back::<u64>(..)?.next().transpose()?;
        let noted = |kind| {
            let notes = note_reads::notes(view, kind)?;
            Ok::<_, Error>(notes.into_iter().map(|(id, _)| id).collect())
        };
        Ok(Self {
            lanes: Lanes::load(view)?,
            last_key: last.map_or(0, |(number, _)| number.value()),
            totals: reads::totals(view)?,
            queue_counts: note_reads::queue_counts(view)?,
            armed: noted(NoteKind::Halt)?,
            halted: noted(NoteKind::Halted)?,
        })
    }
}
