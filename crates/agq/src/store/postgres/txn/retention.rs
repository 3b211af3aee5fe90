//! Removes ended jobs that need not be kept, in steps that never occupy the writer for long.

use std::collections::BTreeSet;

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId},
    time::Timestamp,
};
use agenix_rules::job::Job;
use sqlx::{Result, Row, query};

use crate::store::{
    DocumentKind, Retention, empty_actions,
    postgres::{
        codec::readable,
        sql_types,
        txn::{PgTxn, actions::REMOVE},
    },
};

/// Statuses of ended jobs other than dead ones.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];
const BEFORE: &str = "SELECT record FROM agq.ended WHERE status = $1 AND ended_at < $2 \
     ORDER BY ended_at, job_id LIMIT $3 FOR UPDATE SKIP LOCKED";
/// Query for the oldest ended jobs. The query takes the first jobs of each status from the index,
/// which is in order of time only within a status, and then the oldest of them. The rows are locked
/// after that, by their places in the table, because a sort under the locks would read every ended
/// job.
pub(crate) const OLDEST: &str = "SELECT record FROM agq.ended WHERE ctid = ANY (ARRAY(\
     SELECT o.place FROM unnest($1::smallint[]) AS s (status) CROSS JOIN LATERAL (\
         SELECT e.ctid AS place, e.ended_at, e.job_id FROM agq.ended AS e WHERE e.status = s.status \
         ORDER BY e.ended_at, e.job_id LIMIT $2) AS o ORDER BY o.ended_at, o.job_id LIMIT $2)) \
     ORDER BY ended_at, job_id FOR UPDATE SKIP LOCKED";
const FORGET_MARKS: &str = "DELETE FROM agq.notes WHERE kind = $1 AND id IN (SELECT id FROM agq.notes \
     WHERE kind = $1 AND id < $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id";
const WITHOUT_JOBS: &str = "SELECT action_id FROM unnest($1::text[]) AS a (action_id) \
     WHERE NOT EXISTS (SELECT FROM agq.jobs AS j WHERE j.action_id = a.action_id) \
     AND NOT EXISTS (SELECT FROM agq.ended AS e WHERE e.action_id = a.action_id)";

impl PgTxn<'_> {
    pub(crate) fn prune(&mut self, keep: Retention, limit: usize) -> Result<usize> {
        self.remove_marked_actions(keep.ended_since, limit)?;
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

    pub(crate) fn forget_job(&mut self, job_id: &JobId, status: Status) -> Result<bool> {
        let job = self.jobs(&BTreeSet::from([job_id.as_str()]))?.remove(job_id);
        let gone: Vec<Job> = job.into_iter().filter(|job| job.is_ended() && job.status() == status).collect();
        self.remove(&gone)?;
        Ok(!gone.is_empty())
    }

    fn remove(&mut self, gone: &[Job]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = gone.iter().map(|job| job.job_id.as_str()).collect();
        let sql = "WITH i AS (DELETE FROM agq.inputs WHERE job_id = ANY ($1)), \
             r AS (DELETE FROM agq.results WHERE job_id = ANY ($1)) DELETE FROM agq.ended WHERE job_id = ANY ($1)";
        self.session.run(query(sql).bind(&ids))?;
        self.blobs.release(self.session, &[DocumentKind::JobBlobs, DocumentKind::JobInputs], &ids)?;
        self.remove_empty_actions(gone)?;
        self.forget_compared(gone)?;
        for job in gone {
            self.deltas.in_lane(job, -1);
            self.deltas.totals.now[job.status() as usize] -= 1;
        }
        self.write()
    }

    /// Removes closed actions without jobs that were submitted before a time.
    fn remove_marked_actions(&self, before: Timestamp, limit: usize) -> Result<()> {
        let sql = query(FORGET_MARKS).bind(DocumentKind::EmptyAction.as_str());
        let sql = sql.bind(empty_actions::marks_from(before)).bind(sql_types::limit(limit));
        let rows = self.session.rows(sql)?;
        let marks = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        if marks.is_empty() {
            return Ok(());
        }
        let ids: Vec<ActionId> = marks.iter().filter_map(|mark| empty_actions::marked_action(mark)).collect();
        let mut marked = self.actions(&ids.iter().map(ActionId::as_str).collect())?;
        marked.retain(empty_actions::is_empty);
        let empty: Vec<String> = marked.into_iter().map(|action| action.action_id.to_string()).collect();
        self.session.run(query(REMOVE).bind(empty)).map(drop)
    }

    /// Removes those actions of removed jobs that are closed and have no other job.
    fn remove_empty_actions(&self, gone: &[Job]) -> Result<()> {
        let ids: BTreeSet<&str> = gone.iter().map(|job| job.action_id.as_str()).collect();
        let closed = self.actions(&ids)?.into_iter().filter(|action| !action.is_open);
        let closed: Vec<String> = closed.map(|action| action.action_id.to_string()).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let rows = self.session.rows(query(WITHOUT_JOBS).bind(closed))?;
        let empty = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        if empty.is_empty() {
            return Ok(());
        }
        self.session.run(query(REMOVE).bind(empty)).map(drop)
    }

    fn ended_before(&self, status: Status, before: Timestamp, limit: usize) -> Result<Vec<Job>> {
        let sql = query(BEFORE).bind(sql_types::status(status)).bind(sql_types::wide(before.0));
        let rows = self.session.rows(sql.bind(sql_types::limit(limit)))?;
        Ok(readable(&rows))
    }

    /// Returns the jobs that ended first, whatever their status.
    fn oldest_ended(&self, limit: usize) -> Result<Vec<Job>> {
        let sql = query(OLDEST).bind(ENDED.map(sql_types::status).to_vec()).bind(sql_types::limit(limit));
        let jobs: Vec<Job> = readable(&self.session.rows(sql)?);
        // A job may have moved to another status between the query and the lock.
        Ok(jobs.into_iter().filter(|job| ENDED.contains(&job.status())).collect())
    }
}
