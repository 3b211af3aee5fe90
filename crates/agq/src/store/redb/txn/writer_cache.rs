//! State that the writer caches in memory, because nearly every write needs it.

use std::collections::HashSet;

use redb::Error;

use crate::store::{
    DocumentKind, QueueCounts, Totals,
    redb::{
        engine::Snapshot,
        queries::{documents, records},
        schema::{KEY_NUMBERS, Result},
        txn::{lanes::Lanes, quantities::CachedQuantities},
    },
};

#[derive(Debug, Default)]
pub(crate) struct WriterCache {
    pub(crate) lanes: Lanes,
    /// Highest number of a user's key.
    pub(crate) last_key: u64,
    pub(crate) totals: Totals,
    pub(crate) queue_counts: QueueCounts,
    /// Ids of actions whose halt policies are not met.
    pub(crate) armed: HashSet<String>,
    /// Ids of halted actions, whose jobs no worker may claim.
    pub(crate) halted: HashSet<String>,
    pub(crate) quantities: CachedQuantities,
}

impl WriterCache {
    pub(crate) fn load(snapshot: &Snapshot<'_>) -> Result<Self> {
        let numbers = snapshot.table(&KEY_NUMBERS);
        let last = numbers.range_back::<u64>(..)?.next().transpose()?;
        let noted = |kind| {
            let documents = documents::documents(snapshot, kind)?;
            Ok::<_, Error>(documents.into_iter().map(|(id, _)| id).collect())
        };
        Ok(Self {
            lanes: Lanes::load(snapshot)?,
            last_key: last.map_or(0, |(number, _)| number.value()),
            totals: records::totals(snapshot)?,
            queue_counts: documents::queue_counts(snapshot)?,
            armed: noted(DocumentKind::Halt)?,
            halted: noted(DocumentKind::Halted)?,
            quantities: CachedQuantities::load(snapshot)?,
        })
    }
}
