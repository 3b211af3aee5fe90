//! Decisions on jobs in a write transaction.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::ids::JobId;
use agenix_rules::job::{self, Job, JobState, RuleOutcome};
use sqlx::Error;

use crate::store::{
    DocumentKind, JobChange, JobRule, ReportedResults, RuleResult,
    dedup::{check_only, revived},
    postgres::{
        sql_types,
        txn::{PgTxn, job_reads::JobReads, locked_rows::put},
    },
};

/// Rule that decides about one job.
pub(crate) struct JobDecision {
    pub(crate) job_id: JobId,
    pub(crate) results: Option<ReportedResults>,
    pub(crate) rule: JobRule,
}

impl PgTxn<'_> {
    /// Applies every rule, in order, to the current record of its job.
    pub(crate) fn decide(
        &mut self,
        decisions: &[&JobDecision],
    ) -> Result<Vec<RuleResult<Option<JobChange>>>, Error> {
        let ids = decisions.iter().map(|decision| decision.job_id.as_str()).collect();
        let JobReads { mut jobs, armed } = self.decided_jobs(&ids)?;
        let of_claimed = jobs.values().filter(|job| job.state == JobState::Active);
        self.lanes.know(self.session, of_claimed.map(|job| sql_types::lane(job.lane)).collect())?;
        let mut changes = Vec::with_capacity(decisions.len());
        let mut ended = BTreeMap::new();
        for decision in decisions {
            let change = self.decide_one(decision, &mut jobs)?;
            if let Ok(Some(JobChange { after, .. })) = &change
                && let Some(ended_at) = after.ended_at.filter(|_| armed.contains(&after.action_id))
            {
                ended.insert(after.action_id.clone(), ended_at);
            }
            changes.push(change);
        }
        if let Some(checked) = &mut self.checked {
            checked.jobs.append(&mut jobs);
        }
        self.halt_met(&ended)?;
        Ok(changes)
    }

    fn decide_one(
        &mut self,
        decision: &JobDecision,
        jobs: &mut BTreeMap<JobId, Job>,
    ) -> Result<RuleResult<Option<JobChange>>, Error> {
        let before = jobs.get(&decision.job_id);
        let mut next = match (decision.rule)(before) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(RuleOutcome::Unchanged) => return Ok(Ok(None)),
            Ok(RuleOutcome::Changed(next)) => next,
        };
        let Some(before) = before.cloned() else { return Ok(Ok(None)) };
        if let Some(kind) = revived(&before, &next) {
            let mut compared: Vec<Job> = Vec::new();
            for other in self.compared_with(kind)? {
                compared.extend(self.job_now(&other, jobs)?);
            }
            if let Err(rejection) = check_only(&decision.job_id, &compared) {
                return Ok(Err(rejection));
            }
            if let Some(checked) = &mut self.checked {
                checked.compared.insert(kind.to_owned(), vec![decision.job_id.clone()]);
            }
            let document = (vec![kind.to_owned()], vec![decision.job_id.to_string()]);
            put(self.session, DocumentKind::Unique, document)?;
        }
        if let Some(results) = &decision.results
            && let Err(rejection) = self.check_blobs(&results.blobs)?
        {
            return Ok(Err(rejection));
        }
        if let Some(results) = &decision.results {
            job::charged(&before, &mut next, &results.json);
            if let Some(needs) = results.needs_of_retry(&next) {
                next.lane = self.lanes.with_needs(self.session, before.lane, needs)?;
                self.lock_lanes(std::iter::once(sql_types::lane(next.lane)))?;
            }
        }
        self.put_job(Some(&before), &next);
        if let Some(results) = &decision.results {
            self.put_results(&decision.job_id, &results.json);
            self.set_blobs(&next, results);
        }
        jobs.insert(decision.job_id.clone(), (*next).clone());
        Ok(Ok(Some(JobChange { before, after: *next })))
    }

    /// Returns the present state of a job. `changed` has the present states of some jobs.
    fn job_now(&self, job_id: &JobId, changed: &BTreeMap<JobId, Job>) -> Result<Option<Job>, Error> {
        match changed.get(job_id).or_else(|| self.changed_job(job_id)) {
            Some(job) => Ok(Some(job.clone())),
            None => Ok(self.jobs(&BTreeSet::from([job_id.as_str()]))?.remove(job_id)),
        }
    }
}
