//! Plans and actions in a write transaction.

use std::collections::HashMap;

use agenix_protocol::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action},
    capability::Needs,
    job::{JobParams, NewJob, QueuePosition},
    owner::Owner,
    plan,
    rejection::Rejection,
};
use sqlx::{Error, Result, Row, query};

use crate::store::{
    ActionRule, AddOutcome, AppendJobs, DocumentChange, DocumentKind, LaneKey, NewAction, NewPlan,
    RuleResult, StoredPlan,
    decisions::{self, accepted},
    empty_actions,
    postgres::{
        cluster::events,
        codec::encode,
        sql_types,
        txn::{
            PgTxn,
            made_actions::MadeActions,
            opening::{Opening, lanes_of},
        },
    },
    types::Ruled,
};

const INPUTS: &str = "SELECT place, json FROM (SELECT place, (SELECT json FROM agq.inputs AS i WHERE i.job_id = j.job_id) AS json \
     FROM (SELECT job_id, place FROM agq.jobs WHERE action_id = $1 AND place >= $2 AND place < $3 \
     UNION ALL SELECT job_id, place FROM agq.ended WHERE action_id = $1 AND place >= $2 AND place < $3) AS j) AS known WHERE json IS NOT NULL";
pub(crate) const REMOVE: &str = "WITH t AS (DELETE FROM agq.tallies WHERE action_id = ANY ($1)), \
     n AS (DELETE FROM agq.notes WHERE kind IN ('halt', 'halted') AND id = ANY ($1)) \
     DELETE FROM agq.actions WHERE action_id = ANY ($1)";
const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT FROM agq.jobs WHERE action_id = $1) \
     AND NOT EXISTS (SELECT FROM agq.ended WHERE action_id = $1)";

impl PgTxn<'_> {
    pub(crate) fn add_plan(&mut self, new: &NewPlan) -> Result<RuleResult<bool>> {
        let NewPlan { record, charge, approval } = new;
        if charge.is_some() {
            let sql = "SELECT FROM agq.plans WHERE plan_id = $1";
            if self.session.row(query(sql).bind(record.plan_id.as_str()))?.is_some() {
                return Ok(Ok(false));
            }
            accepted!(self.charge_submission(charge.as_ref(), 0, 1)?);
        }
        let is_new = self.insert_plan(record)?;
        if is_new {
            self.change_document(DocumentKind::Approval, record.plan_id.as_str(), approval)?;
        } else if charge.is_some() {
            // Another node has added the plan after the query. The retry finds the plan, and
            // charges nothing.
            return Err(Error::RowNotFound);
        }
        Ok(Ok(is_new))
    }

    fn insert_plan(&self, plan: &StoredPlan) -> Result<bool> {
        let sql = "INSERT INTO agq.plans (plan_id, json, created_at, owner, envelope) \
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let sql =
            query(sql).bind(plan.plan_id.as_str()).bind(&plan.json).bind(sql_types::wide(plan.created_at.0));
        let sql = sql.bind(plan.owner.as_ref().map(Owner::as_str)).bind(plan.order.as_deref());
        Ok(self.session.run(sql)? > 0)
    }

    pub(crate) fn delete_plan(
        &mut self,
        plan_id: &PlanId,
        only_of: Option<&Owner>,
    ) -> Result<RuleResult<bool>> {
        // A transaction that is about to add jobs has locked the plan; a later transaction does not
        // find the plan.
        let lock = "SELECT owner FROM agq.plans WHERE plan_id = $1 FOR UPDATE";
        let Some(row) = self.session.row(query(lock).bind(plan_id.as_str()))? else { return Ok(Ok(false)) };
        let owner = row.try_get::<Option<String>, _>(0)?;
        if only_of.is_some_and(|only_of| owner.as_deref() != Some(only_of.as_str())) {
            return Ok(Ok(false));
        }
        let load = "SELECT count(*) FROM agq.jobs WHERE plan_id = $1";
        let load = self.session.row(query(load).bind(plan_id.as_str()))?.ok_or(Error::RowNotFound)?;
        accepted!(plan::check_unused(sql_types::count(load.try_get(0)?)));
        self.change_document(DocumentKind::Approval, plan_id.as_str(), &DocumentChange::Remove)?;
        self.session.run(query("DELETE FROM agq.plans WHERE plan_id = $1").bind(plan_id.as_str()))?;
        Ok(Ok(true))
    }

    /// Adds actions, each whole or not at all.
    pub(crate) fn add_actions(&mut self, actions: &[&NewAction]) -> Result<Vec<RuleResult<AddOutcome>>> {
        let MadeActions { ids: made, mut turns } = match self.reads.made.take() {
            Some(made) => made,
            None => self.make_actions(actions)?,
        };
        let mut is_new = vec![false; actions.len()];
        for (at, new) in actions.iter().enumerate() {
            // Of equal ids in one batch, the first is the new action.
            is_new[at] = made.contains(new.action.action_id.as_str())
                && !actions[..at].iter().any(|other| other.action.action_id == new.action.action_id);
            if is_new[at] {
                let own = turns.drain(..new.jobs.len());
                self.buffer_jobs(&new.action, &new.needs, &new.terms, &new.jobs, own, new.action.created_at)?;
                for (kind, id, json) in &new.documents {
                    self.documents.put(*kind, id.clone(), json.clone());
                }
                self.set_input_blobs(new);
            }
        }
        self.arm(actions.iter().zip(&is_new).filter(|(_, is_new)| **is_new).map(|(new, _)| &new.action));
        if is_new.contains(&false) {
            // The same action may be in this transaction, with inputs to compare.
            self.write_new()?;
        }
        let outcome = |(new, is_new): (&&NewAction, bool)| {
            if is_new { Ok(Ok(AddOutcome::New)) } else { self.why_not_made(new) }
        };
        actions.iter().zip(is_new).map(outcome).collect()
    }

    /// Inserts actions, and holds the lanes of their jobs.
    fn make_actions(&mut self, actions: &[&NewAction]) -> Result<MadeActions> {
        let lanes = lanes_of(self.session, self.lanes, actions)?;
        let mut opening = Opening::default();
        opening.make_actions(actions)?;
        opening.lock_lanes(lanes);
        let reads = opening.send(self.session).map_err(|failure| failure.error)?;
        self.reads.locked_lanes.extend(reads.locked_lanes);
        reads.made.ok_or(Error::RowNotFound)
    }

    /// Returns why an action was not inserted: it exists, or its plan does not.
    pub(crate) fn why_not_made(&self, new: &NewAction) -> Result<RuleResult<AddOutcome>> {
        if let Some(known) = self.action(&new.action.action_id)? {
            return Ok(Ok(if self.is_same(&known, new)? { AddOutcome::Same } else { AddOutcome::Differs }));
        }
        if self.locks_plan(&new.action.plan_id)? {
            // The action was there a moment ago, so the transaction is retried.
            return Err(Error::RowNotFound);
        }
        // The plan was deleted after the command checked it.
        Ok(Err(Rejection::PlanNotFound(new.action.plan_id.clone())))
    }

    pub(crate) fn add_jobs(&mut self, more: &AppendJobs) -> Result<RuleResult<u64>> {
        let Some(action) = self.action(&more.action_id)? else {
            return Ok(Err(Rejection::ActionNotFound(more.action_id.clone())));
        };
        let known = accepted!(self.count_known(&action, more.at, &more.jobs)?);
        if known == more.jobs.len() && known > 0 {
            return Ok(Ok(action.total_jobs));
        }
        accepted!(action::check_open(&action));
        if !self.locks_plan(&action.plan_id)? {
            return Ok(Err(Rejection::PlanNotFound(action.plan_id.clone())));
        }
        let jobs = &more.jobs[known..];
        accepted!(self.charge_submission(more.charge.as_ref(), jobs.len(), 0)?);
        self.append(&action, &more.needs, &more.terms, jobs, more.now).map(Ok)
    }

    /// Locks a plan against deletion, and returns true if it exists.
    fn locks_plan(&self, plan_id: &PlanId) -> Result<bool> {
        let sql = "SELECT FROM agq.plans WHERE plan_id = $1 FOR KEY SHARE";
        Ok(self.session.row(query(sql).bind(plan_id.as_str()))?.is_some())
    }

    fn count_known(&self, action: &Action, at: Option<u64>, jobs: &[NewJob]) -> Ruled<usize, Error> {
        let inputs = match at.filter(|at| *at < action.total_jobs) {
            Some(at) => self.inputs_from(&action.action_id, at, jobs.len())?,
            None => HashMap::new(),
        };
        decisions::count_known(action, at, jobs, |index, input| Ok(has_input(&inputs, action, index, input)))
    }

    fn append(
        &mut self,
        action: &Action,
        needs: &Needs,
        terms: &JobParams,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<u64> {
        let turns = "SELECT nextval('agq.turns') FROM generate_series(1, $1)";
        let turns = self.session.rows(query(turns).bind(sql_types::limit(jobs.len())))?;
        let turns = turns.iter().map(|row| row.try_get(0).map(sql_types::count));
        let turns = turns.collect::<Result<Vec<u64>>>()?;
        self.lock_changed_limits(jobs.iter())?;
        self.buffer_jobs(action, needs, terms, jobs, turns.into_iter(), now)?;
        let total_jobs = action.total_jobs + jobs.len() as u64;
        self.put_action(&Action { total_jobs, ..action.clone() })?;
        self.write()?;
        Ok(total_jobs)
    }

    /// Buffers jobs at the end of an action, each with its turn.
    fn buffer_jobs(
        &mut self,
        action: &Action,
        needs: &Needs,
        terms: &JobParams,
        jobs: &[NewJob],
        turns: impl Iterator<Item = u64>,
        now: Timestamp,
    ) -> Result<()> {
        self.touch(&action.action_id);
        if jobs.is_empty() {
            return Ok(());
        }
        let key = LaneKey { queue: action.queue.clone(), needs: needs.clone() };
        // The lane of the action is created only if a job needs it.
        let mut common = None;
        for ((index, new), seq) in (action.total_jobs..).zip(jobs).zip(turns) {
            let lane = match (&new.own, common) {
                (None, Some(lane)) => lane,
                (None, None) => *common.insert(self.lanes.number(self.session, &key)?),
                (Some(own), _) => {
                    let key = LaneKey { queue: own.queue.clone(), needs: own.needs.clone() };
                    self.lanes.number(self.session, &key)?
                }
            };
            let job = new.job(action, index, QueuePosition { lane, seq }, terms, now);
            self.inputs.0.push(job.job_id.to_string());
            self.inputs.1.push(new.input.to_string());
            self.put_job(None, &job);
        }
        self.set_own_limits(jobs, now);
        self.events.push(events::created(action, jobs.len()));
        Ok(())
    }

    pub(crate) fn put_action(&self, action: &Action) -> Result<()> {
        let sql = "UPDATE agq.actions SET record = $2 WHERE action_id = $1";
        self.session.run(query(sql).bind(action.action_id.as_str()).bind(encode(action)?)).map(drop)
    }

    pub(crate) fn decide_action(&mut self, action_id: &ActionId, rule: &ActionRule) -> Ruled<(), Error> {
        let Some(action) = accepted!(rule(self.action(action_id)?.as_ref())) else { return Ok(Ok(())) };
        if !action.is_open && action.total_jobs > 0 && self.has_no_jobs(action_id)? {
            // All jobs were removed while the action was open.
            self.session.run(query(REMOVE).bind(vec![action_id.as_str()]))?;
            return Ok(Ok(()));
        }
        if empty_actions::is_empty(&action) {
            let mark = empty_actions::mark_of(&action);
            self.documents.put(DocumentKind::EmptyAction, mark, "{}".to_owned());
        }
        self.put_action(&action)?;
        self.touch(action_id);
        Ok(Ok(()))
    }

    pub(crate) fn has_no_jobs(&self, action_id: &ActionId) -> Result<bool> {
        let row = self.session.row(query(IS_EMPTY).bind(action_id.as_str()))?.ok_or(Error::RowNotFound)?;
        row.try_get(0)
    }

    fn is_same(&self, known: &Action, new: &NewAction) -> Result<bool> {
        if !decisions::may_be_same(known, new) {
            return Ok(false);
        }
        if new.may_leave_out() {
            // The hash of all submitted inputs is equal.
            return Ok(true);
        }
        let inputs = self.inputs_from(&known.action_id, 0, new.jobs.len())?;
        Ok((0u64..).zip(&new.jobs).all(|(index, job)| has_input(&inputs, known, index, &job.input)))
    }

    fn inputs_from(&self, action_id: &ActionId, place: u64, count: usize) -> Result<HashMap<u64, String>> {
        let behind = place.saturating_add(count as u64);
        let sql = query(INPUTS).bind(action_id.as_str()).bind(sql_types::wide(place));
        let rows = self.session.rows(sql.bind(sql_types::wide(behind)))?;
        rows.iter().map(|row| Ok((sql_types::count(row.try_get(0)?), row.try_get(1)?))).collect()
    }
}

fn has_input(inputs: &HashMap<u64, String>, action: &Action, index: u64, input: &str) -> bool {
    // The job of an existing index may be removed. The input of a removed job cannot be compared,
    // and counts as equal.
    inputs.get(&index).map_or(index < action.total_jobs, |known| known == input)
}
