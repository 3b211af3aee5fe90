//! Checks before jobs are added to an action.

use std::collections::BTreeSet;

use agenix_rules::job::NewJob;

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
