//! Compares the running jobs and reservations of budgets with the jobs.

use std::collections::BTreeMap;

use agenix_rules::{
    budget::{RunBound, Usage},
    job::{self, Job, JobState},
};

use super::Inconsistencies;
use crate::store::{
    DocumentKind,
    redb::{queries::records::behind, schema::Result, txn::tables::Tables},
};

/// Running jobs and their reservations, by the name of their budget.
#[derive(Default)]
pub(super) struct CountedRuns(BTreeMap<String, (u64, RunBound)>);

impl CountedRuns {
    pub(super) fn add(&mut self, job: &Job) {
        let Some(budget) = job::budget_of(job).filter(|_| job.state == JobState::Active) else { return };
        let (running, reserved) = self.0.entry(budget.name.clone()).or_default();
        *running += 1;
        reserved.cpu_ms = reserved.cpu_ms.saturating_add(budget.bound.cpu_ms);
        reserved.output_bytes = reserved.output_bytes.saturating_add(budget.bound.output_bytes);
    }

    pub(super) fn check(mut self, tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
        let kind = DocumentKind::Budget.as_str();
        for entry in tables.documents.range((kind, "")..(behind(kind).as_str(), ""))? {
            let (place, json) = entry?;
            let (_, name) = place.value();
            let counted = self.0.remove(name).unwrap_or_default();
            match serde_json::from_str::<Usage>(json.value()) {
                Err(error) => report!(found, "notes: budget {name} cannot be read: {error}"),
                Ok(usage) if (usage.running(), usage.reserved()) != counted => report!(
                    found,
                    "notes: budget {name} counts {} running jobs with {:?}, but should count {} with {:?}",
                    usage.running(),
                    usage.reserved(),
                    counted.0,
                    counted.1
                ),
                Ok(_) => {}
            }
        }
        for (name, (running, _)) in self.0 {
            report!(found, "notes: budget {name} is missing, and {running} jobs of it run");
        }
        Ok(())
    }
}
