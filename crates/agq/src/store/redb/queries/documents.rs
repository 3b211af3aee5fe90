//! Reads of documents, and of counts by queue.

use std::collections::HashSet;

use agenix_protocol::time::Timestamp;
use agenix_rules::limit::Limit;
use redb::Error;

use crate::store::{
    DocumentKind, QueueCounts, UnusedRecords,
    redb::{
        engine::Snapshot,
        queries::records::behind,
        schema::{DOCUMENTS, LANES, LaneKey, QUEUE_COUNTS, Result, decode},
    },
};

pub(crate) fn queue_counts(read: &Snapshot<'_>) -> Result<QueueCounts> {
    let mut all = QueueCounts::new();
    read.table(&QUEUE_COUNTS).for_each(|queue, counts| {
        all.insert(queue.to_owned(), decode(counts)?);
        Ok::<_, Error>(())
    })?;
    Ok(all)
}

pub(crate) fn documents(read: &Snapshot<'_>, kind: DocumentKind) -> Result<Vec<(String, String)>> {
    documents_after(read, kind, "", usize::MAX)
}

/// No document has an empty id.
pub(crate) fn documents_after(
    read: &Snapshot<'_>,
    kind: DocumentKind,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, String)>> {
    let mut page = Vec::new();
    let (kind, first) = (kind.as_str(), format!("{after}\0"));
    let first = if after.is_empty() { "" } else { first.as_str() };
    for entry in read.table(&DOCUMENTS).range((kind, first)..(behind(kind).as_str(), ""))?.take(limit) {
        let (place, document) = entry?;
        page.push((place.value().1.to_owned(), document.value().to_owned()));
    }
    Ok(page)
}

/// Returns unused limits, each with its text as its version. Lanes are removed with their last job.
pub(crate) fn unused(read: &Snapshot<'_>, now: Timestamp) -> Result<UnusedRecords> {
    let mut used = HashSet::new();
    read.table(&LANES).for_each(|_, key| {
        used.extend(decode::<LaneKey>(key)?.needs.limit);
        Ok::<_, Error>(())
    })?;
    let is_idle = |limit: &str| serde_json::from_str(limit).is_ok_and(|limit: Limit| limit.is_idle(now));
    let mut limits = documents(read, DocumentKind::Limit)?;
    limits.retain(|(key, limit)| !used.contains(key) && is_idle(limit));
    Ok(UnusedRecords { lanes: Vec::new(), limits })
}
