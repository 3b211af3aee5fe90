//! Retention: removes ended jobs in small steps, so that other writes do not wait for long.

use agenix_protocol::{documents::Status, ids::JobId, time::Timestamp};
use agenix_rules::job::Job;

use crate::store::{
    DocumentKind, Retention, empty_actions,
    redb::{
        schema::{Result, codec},
        txn::WriteTxn,
    },
};

/// Statuses of ended jobs other than dead jobs.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

impl WriteTxn<'_> {
    pub(crate) fn prune(&mut self, keep: Retention, limit: usize) -> Result<usize> {
        self.remove_marked_actions(keep.ended_since, limit)?;
        let mut gone = self.ended_before(Status::Dead, keep.dead_since, limit)?;
        for status in ENDED {
            gone.extend(self.ended_before(status, keep.ended_since, limit - gone.len())?);
        }
        let excess = self.cache.totals.kept().saturating_sub(gone.len() as u64).saturating_sub(keep.count);
        if gone.is_empty() && keep.count > 0 && excess > 0 {
            gone = self.oldest_ended(limit.min(usize::try_from(excess).unwrap_or(usize::MAX)))?;
        }
        for job_id in &gone {
            if let Some(job) = self.job(job_id)? {
                self.forget(&job)?;
            }
        }
        Ok(gone.len())
    }

    pub(crate) fn forget_job(&mut self, job_id: &JobId, status: Status) -> Result<bool> {
        let job = self.job(job_id)?.filter(|job| job.is_ended() && job.status() == status);
        job.as_ref().map_or(Ok(()), |job| self.forget(job))?;
        Ok(job.is_some())
    }

    fn forget(&mut self, job: &Job) -> Result<()> {
        self.remove_job(job)?;
        if self.has_no_jobs(&job.action_id)?
            && self.action(&job.action_id)?.is_some_and(|action| !action.is_open)
        {
            self.remove_action(&job.action_id);
        }
        Ok(())
    }

    /// Removes closed actions without jobs that were submitted before a time.
    fn remove_marked_actions(&mut self, before: Timestamp, limit: usize) -> Result<()> {
        let kind = DocumentKind::EmptyAction.as_str();
        let behind = empty_actions::marks_from(before);
        let mut marks = Vec::new();
        for entry in self.tables.documents.range((kind, "")..(kind, behind.as_str()))?.take(limit) {
            let (place, _) = entry?;
            marks.push(place.value().1.to_owned());
        }
        for mark in marks {
            if let Some(action_id) = empty_actions::marked_action(&mark)
                && self.action(&action_id)?.is_some_and(|action| empty_actions::is_empty(&action))
            {
                self.remove_action(&action_id);
            }
            self.tables.documents.remove((kind, mark.as_str()));
        }
        Ok(())
    }

    fn ended_before(&self, status: Status, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        let status = status as u8;
        let range = self.tables.ended.range((status, 0, "")..(status, before.0, ""))?;
        range.take(limit).map(|entry| codec::job_id(entry?.0.value().2)).collect()
    }

    /// Returns the jobs that ended first, whatever their status.
    fn oldest_ended(&self, limit: usize) -> Result<Vec<JobId>> {
        let mut oldest = Vec::new();
        for status in ENDED.map(|status| status as u8) {
            for entry in self.tables.ended.range((status, 0, "")..(status + 1, 0, ""))?.take(limit) {
                let (place, _) = entry?;
                let (_, at, job_id) = place.value();
                oldest.push((at, codec::job_id(job_id)?));
            }
        }
        oldest.sort();
        oldest.truncate(limit);
        Ok(oldest.into_iter().map(|(_, job_id)| job_id).collect())
    }
}
