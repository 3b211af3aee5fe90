//! Checks before jobs are added to an action.

use std::collections::BTreeSet;

use agenix_rules::job::NewJob;

use crate::store::NewAction;

/// Ids that new jobs claim, and kinds of which they are to be the only jobs.
#[derive(Default)]
pub(crate) struct Checks<'n> {
    pub(crate) ids: BTreeSet<&'n str>,
    pub(crate) kinds: BTreeSet<&'n str>,
}

impl<'n> Checks<'n> {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.kinds.is_empty()
    }

    pub(crate) fn add(&mut self, jobs: &'n [NewJob]) {
        for (job, own) in jobs.iter().filter_map(|job| Some((job, job.own.as_ref()?))) {
            if own.is_named {
                self.ids.insert(job.job_id.as_str());
            }
            self.kinds.extend(own.unique.as_ref().map(|unique| unique.key.as_str()));
        }
    }
}

/// Returns true if existing records decide whether all jobs may be added.
pub(crate) fn is_checked(new: &NewAction) -> bool {
    if !new.input_blobs.is_empty() || new.charge.is_some() {
        return true;
    }
    new.jobs
        .iter()
        .filter_map(|job| job.own.as_ref())
        .any(|own| own.is_named || own.unique.is_some() || own.plan_id != new.action.plan_id)
}
