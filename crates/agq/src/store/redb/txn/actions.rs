//! Changes of plans and actions in a write transaction.

use std::borrow::Cow;

use agenix_protocol::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action, JobCounts},
    capability::Needs,
    job::{self, JobParams, NewJob, QueuePosition, RuleOutcome},
    owner::Owner,
    plan,
    rejection::Rejection,
};
use redb::Error;

use crate::store::{
    ActionRule, AddOutcome, AppendJobs, DocumentChange, DocumentKind, LaneKey, NewAction, NewPlan,
    RuleResult, StoredPlan,
    decisions::{self, accepted},
    dedup::deduplicate,
    empty_actions,
    redb::{
        schema::{Result, encode},
        txn::WriteTxn,
    },
    types::Ruled,
};

impl WriteTxn<'_> {
    pub(crate) fn add_plan(&mut self, new: &NewPlan) -> Result<RuleResult<bool>> {
        let plan_id = new.record.plan_id.as_str();
        if self.tables.plans.get(plan_id)?.is_some() {
            return Ok(Ok(false));
        }
        accepted!(self.charge_submission(new.charge.as_ref(), 0, 1)?);
        self.tables.plans.insert(plan_id, encode(&new.record)?.as_slice());
        self.change_document(DocumentKind::Approval, plan_id, &new.approval);
        Ok(Ok(true))
    }

    pub(crate) fn delete_plan(
        &mut self,
        plan_id: &PlanId,
        only_of: Option<&Owner>,
    ) -> Result<RuleResult<bool>> {
        let id = plan_id.as_str();
        let Some(plan) = self.tables.plans.record::<StoredPlan>(id)? else { return Ok(Ok(false)) };
        if only_of.is_some() && plan.owner.as_ref() != only_of {
            return Ok(Ok(false));
        }
        accepted!(plan::check_unused(self.open_job_count(plan_id)?));
        self.tables.plans.remove(id);
        if self.tables.documents.get((DocumentKind::Approval.as_str(), id))?.is_some() {
            self.change_document(DocumentKind::Approval, id, &DocumentChange::Remove);
        }
        Ok(Ok(true))
    }

    pub(crate) fn add_action(&mut self, new: &NewAction) -> Result<RuleResult<AddOutcome>> {
        if let Some(known) = self.action(&new.action.action_id)? {
            return Ok(Ok(if self.is_same(&known, new)? { AddOutcome::Same } else { AddOutcome::Differs }));
        }
        for plan_id in new.plans() {
            if self.tables.plans.get(plan_id.as_str())?.is_none() {
                // The plan was deleted after the command had checked it.
                return Ok(Err(Rejection::PlanNotFound(plan_id.clone())));
            }
        }
        accepted!(self.check_blobs(&new.blobs())?);
        let now = new.action.created_at;
        let admitted =
            accepted!(deduplicate(&new.jobs, now, |job_id| self.job(job_id), |key| self.compared_with(key))?);
        let is_whole = admitted.stands.is_empty();
        let jobs: Cow<'_, [NewJob]> = if is_whole {
            Cow::Borrowed(&new.jobs)
        } else {
            new.jobs.iter().filter(|job| admitted.adds(&job.job_id)).cloned().collect()
        };
        if !jobs.is_empty() {
            accepted!(self.charge_submission(new.charge.as_ref(), jobs.len(), 0)?);
        }
        for before in &admitted.replaced {
            if let Ok(RuleOutcome::Changed(job)) = job::cancelled(before, now) {
                self.put_job(Some(before), &job)?;
            }
        }
        if is_whole || !jobs.is_empty() {
            // A new action has no jobs yet, so there is no need to read its counts.
            self.put_job_counts(&new.action.action_id, JobCounts::default());
            self.arm(&new.action);
            self.append(&new.action, &new.needs, &new.terms, &jobs, now)?;
            for (kind, id, json) in &new.documents {
                self.put_document(*kind, id, json);
            }
            for (key, json) in &admitted.documents {
                self.put_document(DocumentKind::Unique, key, json);
            }
            for (job_id, blobs) in new.input_blobs.iter().filter(|(job_id, _)| admitted.adds(job_id)) {
                self.set_input_blobs(job_id, blobs)?;
            }
        }
        Ok(Ok(if is_whole { AddOutcome::New } else { AddOutcome::Stands(admitted.stands) }))
    }

    pub(crate) fn add_jobs(&mut self, more: &AppendJobs) -> Result<RuleResult<u64>> {
        let Some(action) = self.action(&more.action_id)? else {
            return Ok(Err(Rejection::ActionNotFound(more.action_id.clone())));
        };
        let has_input = |index, input: &str| self.has_input(&action, index, input);
        let known = accepted!(decisions::count_known(&action, more.at, &more.jobs, has_input)?);
        if known == more.jobs.len() && known > 0 {
            return Ok(Ok(action.total_jobs));
        }
        accepted!(action::check_open(&action));
        if self.tables.plans.get(action.plan_id.as_str())?.is_none() {
            return Ok(Err(Rejection::PlanNotFound(action.plan_id.clone())));
        }
        let jobs = &more.jobs[known..];
        accepted!(self.charge_submission(more.charge.as_ref(), jobs.len(), 0)?);
        self.append(&action, &more.needs, &more.terms, jobs, more.now).map(Ok)
    }

    fn append(
        &mut self,
        action: &Action,
        needs: &Needs,
        terms: &JobParams,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<u64> {
        let common = || LaneKey { queue: action.queue.clone(), needs: needs.clone() };
        let mut lane = None;
        for (index, new) in (action.total_jobs..).zip(jobs) {
            let NewJob { job_id, input, own } = new;
            let lane = match own {
                None => *lane.get_or_insert_with(|| self.cache.lanes.number(common())),
                Some(own) => {
                    let key = LaneKey { queue: own.queue.clone(), needs: own.needs.clone() };
                    self.cache.lanes.number(key)
                }
            };
            let place = QueuePosition { lane, seq: self.cache.lanes.take_seq() };
            self.tables.action_jobs.insert((action.action_id.as_str(), index), job_id.as_str());
            self.tables.inputs.insert(job_id.as_str(), &**input);
            self.put_job(None, &new.job(action, index, place, terms, now))?;
            self.set_own_limit(new, now)?;
        }
        let count = jobs.len() as u64;
        let counts = self.counts(&action.action_id)?.with_new(count);
        self.put_job_counts(&action.action_id, counts);
        let total_jobs = action.total_jobs + count;
        self.put_action(&Action { total_jobs, ..action.clone() })?;
        Ok(total_jobs)
    }

    pub(crate) fn decide_action(&mut self, action_id: &ActionId, rule: &ActionRule) -> Ruled<(), Error> {
        let Some(action) = accepted!(rule(self.action(action_id)?.as_ref())) else { return Ok(Ok(())) };
        if !action.is_open && action.total_jobs > 0 && self.has_no_jobs(action_id)? {
            // Retention has removed all jobs of the action while the action was open.
            self.remove_action(action_id);
            return Ok(Ok(()));
        }
        if empty_actions::is_empty(&action) {
            self.put_document(DocumentKind::EmptyAction, &empty_actions::mark_of(&action), "{}");
        }
        self.put_action(&action)?;
        let counts = self.counts(action_id)?;
        self.put_job_counts(action_id, counts);
        Ok(Ok(()))
    }

    /// Returns true if no job of the action is kept.
    pub(super) fn has_no_jobs(&self, action_id: &ActionId) -> Result<bool> {
        let id = action_id.as_str();
        Ok(self.tables.action_jobs.range((id, 0)..=(id, u64::MAX))?.next().is_none())
    }

    fn is_same(&self, known: &Action, new: &NewAction) -> Result<bool> {
        if !decisions::may_be_same(known, new) {
            return Ok(false);
        }
        if new.may_leave_out() {
            // The hash of all submitted inputs is equal.
            return Ok(true);
        }
        for (index, job) in (0u64..).zip(&new.jobs) {
            if !self.has_input(known, index, &job.input)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_input(&self, action: &Action, index: u64, input: &str) -> Result<bool> {
        let Some(job_id) = self.tables.action_jobs.get((action.action_id.as_str(), index))? else {
            // Retention has removed the job, so its input cannot be compared.
            return Ok(index < action.total_jobs);
        };
        Ok(self.tables.inputs.get(job_id.value())?.is_some_and(|known| known.value() == input))
    }
}
