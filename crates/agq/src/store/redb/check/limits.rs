//! Compares the running jobs of limits with the jobs.

use std::collections::BTreeMap;

use agenix_rules::{
    job::{Job, JobState},
    limit::Limit,
};

use super::Inconsistencies;
use crate::store::{
    DocumentKind,
    redb::{queries::records::behind, schema::Result, txn::tables::Tables},
};

/// Numbers of running jobs, by the key of their limit.
#[derive(Default)]
pub(super) struct CountedStarts(BTreeMap<String, u64>);

impl CountedStarts {
    pub(super) fn add(&mut self, job: &Job) {
        let key = job.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
        if let Some(key) = key.filter(|_| job.state == JobState::Active) {
            *self.0.entry(key.to_owned()).or_default() += 1;
        }
    }

    pub(super) fn check(mut self, tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
        let kind = DocumentKind::Limit.as_str();
        for entry in tables.documents.range((kind, "")..(behind(kind).as_str(), ""))? {
            let (place, json) = entry?;
            let (_, key) = place.value();
            let running = self.0.remove(key).unwrap_or_default();
            match serde_json::from_str::<Limit>(json.value()) {
                Err(error) => report!(found, "notes: limit {key} cannot be read: {error}"),
                Ok(limit) if limit.active != running => report!(
                    found,
                    "notes: limit {key} counts {} running jobs, but should count {running}",
                    limit.active
                ),
                Ok(_) => {}
            }
        }
        for (key, running) in self.0 {
            report!(found, "notes: limit {key} is missing, and {running} jobs under it run");
        }
        Ok(())
    }
}
