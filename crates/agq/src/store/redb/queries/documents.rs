//! Reads of documents, and of counts by queue.

use redb::Error;

use crate::store::{
    DocumentKind, QueueCounts,
    redb::{
        engine::Snapshot,
        queries::records::behind,
        schema::{
            codec::decode,
            tables::{NOTES, QUEUE_COUNTS},
        },
    },
};

pub(crate) fn queue_counts(read: &Snapshot<'_>) -> Result<QueueCounts, Error> {
    let mut all = QueueCounts::new();
    for entry in read.table(&QUEUE_COUNTS).iter()? {
        let (queue, counts) = entry?;
        all.insert(queue.value().to_owned(), decode(counts.value())?);
    }
    Ok(all)
}

pub(crate) fn document(read: &Snapshot<'_>, kind: DocumentKind, id: &str) -> Result<Option<String>, Error> {
    Ok(read.table(&NOTES).get((kind.as_str(), id))?.map(|note| note.value().to_owned()))
}

pub(crate) fn has_documents(read: &Snapshot<'_>, kind: DocumentKind) -> Result<bool, Error> {
    let kind = kind.as_str();
    Ok(read.table(&NOTES).range((kind, "")..(behind(kind).as_str(), ""))?.next().transpose()?.is_some())
}

pub(crate) fn documents(read: &Snapshot<'_>, kind: DocumentKind) -> Result<Vec<(String, String)>, Error> {
    let mut all = Vec::new();
    let kind = kind.as_str();
    for entry in read.table(&NOTES).range((kind, "")..(behind(kind).as_str(), ""))? {
        let (place, note) = entry?;
        all.push((place.value().1.to_owned(), note.value().to_owned()));
    }
    Ok(all)
}
