//! Deduplication of submitted jobs: finds the jobs whose ids are taken, or that duplicate an
//! existing job.

use std::collections::{HashMap, HashSet};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{
    job::{Job, NewJob, OnConflict, UniqueOutcome},
    rejection::Rejection,
};

use super::{Duplicate, RuleResult, decisions::accepted};

#[derive(Debug, Default)]
pub(super) struct DedupResult {
    /// Jobs that are not added, because an existing job stands for them.
    pub(super) stands: Vec<Duplicate>,
    /// Existing jobs that are cancelled, because submitted jobs replace them.
    pub(super) replaced: Vec<Job>,
}

impl DedupResult {
    pub(super) fn adds(&self, job_id: &JobId) -> bool {
        !self.stands.iter().any(|stand| stand.job_id == *job_id)
    }
}

/// Deduplicates `jobs`, which are to be added at `now`. `job_of` finds a job by id; `first_of`
/// finds the latest job that became the first of a kind.
pub(super) fn deduplicate<E>(
    jobs: &[NewJob],
    now: Timestamp,
    mut job_of: impl FnMut(&JobId) -> Result<Option<Job>, E>,
    mut first_of: impl FnMut(&str) -> Result<Option<JobId>, E>,
) -> Result<RuleResult<DedupResult>, E> {
    let mut admitted = DedupResult::default();
    let mut named: HashSet<&JobId> = HashSet::new();
    let mut firsts: HashMap<&str, &JobId> = HashMap::new();
    for (job, own) in jobs.iter().filter_map(|job| Some((job, job.own.as_ref()?))) {
        if own.is_named && (!named.insert(&job.job_id) || job_of(&job.job_id)?.is_some()) {
            return Ok(Err(Rejection::JobExists(job.job_id.clone())));
        }
        let Some(unique) = &own.unique else { continue };
        if let Some(first) = firsts.get(unique.key.as_str()) {
            // A job of the same submission cannot be replaced.
            if unique.on_conflict != OnConflict::Ignore {
                return Ok(Err(Rejection::DuplicateJob((*first).clone())));
            }
            admitted.stands.push(Duplicate { job_id: job.job_id.clone(), by: (*first).clone() });
            continue;
        }
        let first = first_of(&unique.key)?.map(|first| job_of(&first)).transpose()?.flatten();
        match accepted!(unique.against(first.as_ref(), now)) {
            UniqueOutcome::Stand(by) => {
                admitted.stands.push(Duplicate { job_id: job.job_id.clone(), by });
                continue;
            }
            UniqueOutcome::Replaced => admitted.replaced.extend(first),
            UniqueOutcome::Nobody => {}
        }
        firsts.insert(&unique.key, &job.job_id);
    }
    Ok(Ok(admitted))
}

/// Returns the kind of a job that had ended and is to run again, which it must have to itself.
pub(super) fn revived<'j>(before: &Job, next: &'j Job) -> Option<&'j str> {
    let is_revived = before.is_ended() && !next.is_ended();
    next.ojs.as_ref()?.unique.as_deref().filter(|_| is_revived)
}

/// Checks that the job may run again beside `first`, the latest first job of its kind.
pub(super) fn check_only(job_id: &JobId, first: Option<&Job>) -> Result<(), Rejection> {
    match first.filter(|first| first.job_id != *job_id && !first.is_ended()) {
        Some(first) => Err(Rejection::DuplicateJob(first.job_id.clone())),
        None => Ok(()),
    }
}
