//! Forgets ended jobs that need not be kept, in steps that never keep the writer for long.

use agenix_protocol::{documents::Status, ids::JobId, time::Timestamp};
use agenix_rules::job::Job;
use sqlx::{Error, Row, query};

use super::{batch::Batch, codec::decode, numbers};
use crate::store::Keep;

/// The statuses of ended jobs, the dead apart.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];
const BEFORE: &str = "SELECT record FROM agq.ended WHERE status = $1 AND ended_at < $2 \
     ORDER BY ended_at, job_id LIMIT $3 FOR UPDATE SKIP LOCKED";
const OLDEST: &str = "SELECT record FROM agq.ended WHERE status = ANY ($1) \
     ORDER BY ended_at, job_id LIMIT $2 FOR UPDATE SKIP LOCKED";

impl Batch<'_> {
    pub(super) fn prune(&mut self, keep: Keep, limit: usize) -> Result<usize, Error> {
        let mut gone = self.ended_before(Status::Dead, keep.dead_since, limit)?;
        for status in ENDED {
            gone.extend(self.ended_before(status, keep.ended_since, limit - gone.len())?);
        }
        if gone.is_empty() && keep.count > 0 {
            let excess = self.totals()?.kept().saturating_sub(keep.count);
            if excess > 0 {
                gone = self.oldest_ended(limit.min(usize::try_from(excess).unwrap_or(usize::MAX)))?;
            }
        }
        self.remove(&gone)?;
        Ok(gone.len())
    }

    pub(super) fn forget_job(&mut self, job_id: &JobId, status: Status) -> Result<bool, Error> {
        let job = self.jobs(&[job_id.as_str()])?.remove(job_id);
        let gone: Vec<Job> = job.into_iter().filter(|job| job.is_ended() && job.status() == status).collect();
        self.remove(&gone)?;
        Ok(!gone.is_empty())
    }

    fn remove(&mut self, gone: &[Job]) -> Result<(), Error> {
        if gone.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = gone.iter().map(|job| job.job_id.as_str()).collect();
        let sql = "WITH i AS (DELETE FROM agq.inputs WHERE job_id = ANY ($1)), \
             r AS (DELETE FROM agq.results WHERE job_id = ANY ($1)) DELETE FROM agq.ended WHERE job_id = ANY ($1)";
        self.session.run(query(sql).bind(ids))?;
        let mut actions: Vec<_> = gone.iter().map(|job| &job.action_id).collect();
        actions.sort();
        actions.dedup();
        for action_id in actions {
            if self.action(action_id)?.is_some_and(|action| !action.is_open) && self.has_no_jobs(action_id)? {
                self.remove_action(action_id)?;
            }
        }
        self.forget_firsts(gone)?;
        gone.iter().for_each(|job| self.uncount(job));
        self.write()
    }

    fn ended_before(&self, status: Status, before: Timestamp, limit: usize) -> Result<Vec<Job>, Error> {
        let sql = query(BEFORE).bind(numbers::status(status)).bind(numbers::wide(before.0));
        let rows = self.session.rows(sql.bind(numbers::limit(limit)))?;
        rows.iter().map(|row| decode(row.try_get(0)?)).collect()
    }

    /// The jobs that ended first, whatever their status.
    fn oldest_ended(&self, limit: usize) -> Result<Vec<Job>, Error> {
        let sql = query(OLDEST).bind(ENDED.map(numbers::status).to_vec()).bind(numbers::limit(limit));
        self.session.rows(sql)?.iter().map(|row| decode(row.try_get(0)?)).collect()
    }
}
