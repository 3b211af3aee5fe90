//! Reads of notes and of what is counted by queue.

use redb::Error;

use crate::store::{
    NoteKind, QueueCounts,
    redb::{
        engine::snapshot::View,
        queries::records::behind,
        schema::{
            codec::decode,
            tables::{NOTES, QUEUE_COUNTS},
        },
    },
};

/// How many jobs of each queue are in which state.
pub(crate) fn queue_counts(read: &View<'_>) -> Result<QueueCounts, Error> {
    let mut all = QueueCounts::new();
    for entry in read.table(&QUEUE_COUNTS).iter()? {
        let (queue, counts) = entry?;
        all.insert(queue.value().to_owned(), decode(counts.value())?);
    }
    Ok(all)
}

pub(crate) fn note(read: &View<'_>, kind: NoteKind, id: &str) -> Result<Option<String>, Error> {
    Ok(read.table(&NOTES).get((kind.as_str(), id))?.map(|note| note.value().to_owned()))
}

pub(crate) fn has_notes(read: &View<'_>, kind: NoteKind) -> Result<bool, Error> {
    let kind = kind.as_str();
    Ok(read.table(&NOTES).range((kind, "")..(behind(kind).as_str(), ""))?.next().transpose()?.is_some())
}

pub(crate) fn notes(read: &View<'_>, kind: NoteKind) -> Result<Vec<(String, String)>, Error> {
    let mut all = Vec::new();
    let kind = kind.as_str();
    for entry in read.table(&NOTES).range((kind, "")..(behind(kind).as_str(), ""))? {
        let (place, note) = entry?;
        all.push((place.value().1.to_owned(), note.value().to_owned()));
    }
    Ok(all)
}
