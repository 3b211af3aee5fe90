//! Deduplication of submitted jobs: finds the jobs whose ids are taken, or that duplicate an
//! existing job.

use std::collections::{HashMap, HashSet};

use agenix_protocol::{
    ids::{BadId, JobId},
    time::Timestamp,
};
use agenix_rules::{
    job::{Job, NewJob, OnConflict, UniqueOutcome},
    rejection::Rejection,
};

use super::{Duplicate, RuleResult, decisions::accepted};

/// Maximum number of jobs with a unique key that a new job is compared with.
const MAX_COMPARED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct DedupResult {
    /// Jobs that are not added, because an existing job stands for them.
    pub(super) stands: Vec<Duplicate>,
    /// Existing jobs that are cancelled, because submitted jobs replace them.
    pub(super) replaced: Vec<Job>,
    /// Unique keys of the jobs that are added, and their new documents.
    pub(super) documents: Vec<(String, String)>,
}

impl DedupResult {
    pub(super) fn adds(&self, job_id: &JobId) -> bool {
        !self.stands.iter().any(|stand| stand.job_id == *job_id)
    }
}

/// Returns the ids in the document of a unique key: the newest job with the key, and earlier ones
/// that had not ended when a later one was added, the newest first.
pub(super) fn ids_in(document: &str) -> Result<Vec<JobId>, BadId> {
    document.split(' ').map(JobId::new).collect()
}

fn document<'j>(newest: &'j JobId, earlier: impl Iterator<Item = &'j JobId>) -> String {
    let ids = std::iter::once(newest).chain(earlier).take(MAX_COMPARED);
    ids.map(JobId::as_str).collect::<Vec<_>>().join(" ")
}

/// Returns the document of a unique key without a job that is removed; `None` if the document has
/// no other job.
pub(super) fn without(document: &str, job_id: &JobId) -> Option<String> {
    let rest: Vec<&str> = document.split(' ').filter(|id| *id != job_id.as_str()).collect();
    (!rest.is_empty()).then(|| rest.join(" "))
}

/// Deduplicates `jobs`, which are to be added at `now`. `job_of` finds a job by id; `compared_with`
/// returns the ids in the document of a unique key.
pub(super) fn deduplicate<E>(
    jobs: &[NewJob],
    now: Timestamp,
    mut job_of: impl FnMut(&JobId) -> Result<Option<Job>, E>,
    mut compared_with: impl FnMut(&str) -> Result<Vec<JobId>, E>,
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
        let mut earlier: Vec<Job> = Vec::new();
        for job_id in compared_with(&unique.key)? {
            earlier.extend(job_of(&job_id)?);
        }
        match accepted!(unique.against(&earlier, now)) {
            UniqueOutcome::Stand(by) => {
                admitted.stands.push(Duplicate { job_id: job.job_id.clone(), by });
                continue;
            }
            UniqueOutcome::Replaced(replaced) => {
                earlier.retain(|one| replaced.iter().all(|other| other.job_id != one.job_id));
                admitted.replaced.extend(replaced);
            }
            UniqueOutcome::Nobody => {}
        }
        let beside = earlier.iter().filter(|one| !one.is_ended()).map(|one| &one.job_id);
        admitted.documents.push((unique.key.clone(), document(&job.job_id, beside)));
        firsts.insert(&unique.key, &job.job_id);
    }
    Ok(Ok(admitted))
}

/// Returns the kind of a job that had ended and is to run again. No other job of the kind may run
/// beside this job.
pub(super) fn revived<'j>(before: &Job, next: &'j Job) -> Option<&'j str> {
    let is_revived = before.is_ended() && !next.is_ended();
    next.ojs.as_ref()?.unique.as_deref().filter(|_| is_revived)
}

/// Checks that the job may run again beside the jobs of its kind that a new job is compared with.
pub(super) fn check_only(job_id: &JobId, compared: &[Job]) -> Result<(), Rejection> {
    match compared.iter().find(|other| other.job_id != *job_id && !other.is_ended()) {
        Some(other) => Err(Rejection::DuplicateJob(other.job_id.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::ids::JobId;

    use super::{MAX_COMPARED, document, ids_in, without};

    #[test]
    fn document_of_a_unique_key_names_a_bounded_number_of_jobs() {
        let ids: Vec<JobId> = (0..=MAX_COMPARED).map(|n| format!("j{n}").parse().unwrap()).collect();
        let written = document(&ids[0], ids[1..].iter());
        assert_eq!(ids_in(&written).unwrap(), &ids[..MAX_COMPARED]);
        assert_eq!(ids_in("j0").unwrap(), &ids[..1], "as earlier versions have written it");
        assert!(ids_in("").is_err());
    }

    #[test]
    fn document_of_a_unique_key_loses_a_removed_job() {
        let without = |document: &str| without(document, &"a-1".parse().unwrap());
        assert_eq!(without("a-2 a-1 a-10").as_deref(), Some("a-2 a-10"));
        assert_eq!((without("a-1"), without("a-10").as_deref()), (None, Some("a-10")));
    }
}
