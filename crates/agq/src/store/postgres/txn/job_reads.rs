//! Jobs that a transaction locks by their ids.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use agenix_protocol::ids::{ActionId, JobId};
use agenix_rules::job::Job;
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::postgres::{
    codec::decode,
    connection::{Param, PreparedStatement},
    txn::PgTxn,
};

/// Defines the pair of statements that lock jobs that have not ended, and ended jobs.
macro_rules! locking {
    ($live:literal, $ended:literal, $ids:literal) => {
        (
            PreparedStatement {
                name: $live,
                sql: concat!(
                    "SELECT record, (SELECT true FROM agq.notes AS n WHERE n.kind = 'halt' AND n.id = j.action_id) AS is_armed \
                     FROM agq.jobs AS j WHERE job_id = ANY (",
                    $ids,
                    ") ORDER BY job_id FOR UPDATE"
                ),
            },
            PreparedStatement {
                name: $ended,
                sql: concat!(
                    "SELECT record, NULL::boolean AS is_armed FROM agq.ended WHERE job_id = ANY (",
                    $ids,
                    ") ORDER BY job_id FOR UPDATE"
                ),
            },
        )
    };
}

/// Statements that lock the jobs with the ids `$1`.
pub(crate) const BY_ID: (PreparedStatement, PreparedStatement) =
    locking!("agq_live", "agq_ended", "$1::text[]");
/// Statements that lock the jobs with the ids `$1`, and those of the kinds `$2` that new jobs are
/// compared with.
pub(crate) const BY_ID_OR_KIND: (PreparedStatement, PreparedStatement) = locking!(
    "agq_live_of_kinds",
    "agq_ended_of_kinds",
    "$1::text[] || ARRAY(SELECT unnest(string_to_array(json, ' ')) FROM agq.notes WHERE kind = 'unique' AND id = ANY ($2::text[]))"
);
const LIVE: &PreparedStatement = &BY_ID.0;
const ENDED: &PreparedStatement = &BY_ID.1;

/// Locked jobs, and those of their actions whose halt policies are not met yet.
#[derive(Default)]
pub(crate) struct JobReads {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) armed: BTreeSet<ActionId>,
}

impl JobReads {
    pub(crate) fn add(&mut self, rows: &[PgRow]) -> Result<()> {
        for row in rows {
            let job: Job = decode(&row.try_get::<Vec<u8>, _>(0)?)?;
            if row.try_get::<Option<bool>, _>(1)?.is_some() {
                self.armed.insert(job.action_id.clone());
            }
            self.jobs.insert(job.job_id.clone(), job);
        }
        Ok(())
    }
}

impl PgTxn<'_> {
    /// Locks those of `ids` that exist until the end of the transaction, and returns them.
    pub(crate) fn jobs(&self, ids: &BTreeSet<&str>) -> Result<BTreeMap<JobId, Job>> {
        let mut found = JobReads::default();
        self.lock(ids, &[LIVE, ENDED, LIVE], &mut found)?;
        Ok(found.jobs)
    }

    /// Locks and returns the jobs of decisions.
    pub(crate) fn decided_jobs(&mut self, ids: &BTreeSet<&str>) -> Result<JobReads> {
        let (mut found, rest): (_, &[&PreparedStatement]) = match self.reads.jobs.take() {
            Some(found) => (found, &[ENDED, LIVE]),
            None => (JobReads::default(), &[LIVE, ENDED, LIVE]),
        };
        self.lock(ids, rest, &mut found)?;
        Ok(found)
    }

    /// Locks the jobs that are not found yet. A job that is in neither table may have moved from
    /// the second to the first between the two queries.
    fn lock(
        &self,
        ids: &BTreeSet<&str>,
        statements: &[&PreparedStatement],
        found: &mut JobReads,
    ) -> Result<()> {
        for statement in statements {
            let known: HashSet<&str> = found.jobs.keys().map(JobId::as_str).collect();
            let missing: Vec<&str> = ids.iter().copied().filter(|id| !known.contains(id)).collect();
            if missing.is_empty() {
                break;
            }
            found.add(&self.session.rows(statement.query(vec![Param::texts(missing)]))?)?;
        }
        Ok(())
    }
}
