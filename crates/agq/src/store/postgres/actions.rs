//! Writes on plans and actions, in a transaction.

use std::collections::HashMap;

use agenix_protocol::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action},
    capability::Needs,
    job::{Job, NewJob, Place, Terms},
    plan,
    rejection::Rejection,
};
use sqlx::{Error, Row, query};

use super::{batch::Batch, codec::encode, events, known::LaneKey, numbers};
use crate::store::{ActionRule, Added, MoreJobs, NewAction, Ruled, StoredPlan};

/// The inputs of an action that are kept, with their places, from one place on.
const INPUTS: &str = "SELECT place, json FROM (SELECT job_id, place FROM agq.jobs WHERE action_id = $1 AND place >= $2 \
     UNION ALL SELECT job_id, place FROM agq.ended WHERE action_id = $1 AND place >= $2) AS j JOIN agq.inputs USING (job_id)";
const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT FROM agq.jobs WHERE action_id = $1) \
     AND NOT EXISTS (SELECT FROM agq.ended WHERE action_id = $1)";

impl Batch<'_> {
    pub(super) fn add_plan(&mut self, plan: &StoredPlan) -> Result<bool, Error> {
        let sql =
            "INSERT INTO agq.plans (plan_id, json, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let sql =
            query(sql).bind(plan.plan_id.as_str()).bind(&plan.json).bind(numbers::wide(plan.created_at.0));
        Ok(self.session.run(sql)? > 0)
    }

    pub(super) fn delete_plan(&mut self, plan_id: &PlanId) -> Result<Ruled<bool>, Error> {
        // Whoever is about to add jobs holds it; whoever comes later does not find it.
        let lock = "SELECT FROM agq.plans WHERE plan_id = $1 FOR UPDATE";
        let is_there = self.session.row(query(lock).bind(plan_id.as_str()))?.is_some();
        let load = "SELECT count(*) FROM agq.jobs WHERE plan_id = $1";
        let load = self.session.row(query(load).bind(plan_id.as_str()))?.ok_or(Error::RowNotFound)?;
        if let Err(rejection) = plan::check_unused(numbers::count(load.try_get(0)?)) {
            return Ok(Err(rejection));
        }
        self.session.run(query("DELETE FROM agq.plans WHERE plan_id = $1").bind(plan_id.as_str()))?;
        Ok(Ok(is_there))
    }

    pub(super) fn add_action(&mut self, new: &NewAction) -> Result<Ruled<Added>, Error> {
        if let Some(known) = self.action(&new.action.action_id)? {
            return Ok(Ok(if self.is_same(&known, new)? { Added::Same } else { Added::Differs }));
        }
        if !self.holds_plan(&new.action.plan_id)? {
            // It was deleted since the command looked.
            return Ok(Err(Rejection::PlanNotFound(new.action.plan_id.clone())));
        }
        let made = "INSERT INTO agq.actions (action_id, record) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let made = query(made).bind(new.action.action_id.as_str()).bind(encode(&new.action)?);
        if self.session.run(made)? == 0 {
            // Another node was quicker.
            let known = self.action(&new.action.action_id)?.ok_or(Error::RowNotFound)?;
            return Ok(Ok(if self.is_same(&known, new)? { Added::Same } else { Added::Differs }));
        }
        self.append(&new.action, &new.needs, &new.terms, &new.jobs, new.action.created_at)?;
        Ok(Ok(Added::New))
    }

    pub(super) fn add_jobs(&mut self, more: &MoreJobs) -> Result<Ruled<u64>, Error> {
        let Some(action) = self.action(&more.action_id)? else {
            return Ok(Err(Rejection::ActionNotFound(more.action_id.clone())));
        };
        let known = match self.known_from(&action, more.at, &more.jobs)? {
            Ok(known) => known,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if known == more.jobs.len() && known > 0 {
            return Ok(Ok(action.total_jobs));
        }
        if let Err(rejection) = action::check_open(&action) {
            return Ok(Err(rejection));
        }
        if !self.holds_plan(&action.plan_id)? {
            return Ok(Err(Rejection::PlanNotFound(action.plan_id.clone())));
        }
        self.append(&action, &more.needs, &more.terms, &more.jobs[known..], more.now).map(Ok)
    }

    /// Whether a plan is there, which then stays until this is committed.
    fn holds_plan(&self, plan_id: &PlanId) -> Result<bool, Error> {
        let sql = "SELECT FROM agq.plans WHERE plan_id = $1 FOR KEY SHARE";
        Ok(self.session.row(query(sql).bind(plan_id.as_str()))?.is_some())
    }

    /// How many of the jobs are there already, of jobs that begin at a place of the action.
    fn known_from(&self, action: &Action, at: Option<u64>, jobs: &[NewJob]) -> Result<Ruled<usize>, Error> {
        let Some(at) = at else { return Ok(Ok(0)) };
        if let Err(rejection) = action::check_place(action, at) {
            return Ok(Err(rejection));
        }
        if at == action.total_jobs {
            return Ok(Ok(0));
        }
        let inputs = self.inputs_from(&action.action_id, at)?;
        let mut known = 0;
        for (index, job) in (at..action.total_jobs).zip(jobs) {
            if let Err(rejection) = action::check_known(index, has_input(&inputs, action, index, &job.input))
            {
                return Ok(Err(rejection));
            }
            known += 1;
        }
        Ok(Ok(known))
    }

    /// Puts jobs at the end of an action; how many it has then.
    fn append(
        &mut self,
        action: &Action,
        needs: &Needs,
        terms: &Terms,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<u64, Error> {
        if !jobs.is_empty() {
            let key = LaneKey { queue: action.queue.clone(), needs: needs.clone() };
            let lane = self.known.number(self.session, &key)?;
            let turns = "SELECT nextval('agq.turns') FROM generate_series(1, $1)";
            let turns = self.session.rows(query(turns).bind(numbers::limit(jobs.len())))?;
            for ((index, NewJob { job_id, .. }), turn) in (action.total_jobs..).zip(jobs).zip(turns) {
                let place = Place { lane, seq: numbers::count(turn.try_get(0)?) };
                self.put_job(None, &Job::new(job_id.clone(), action, index, place, terms, now));
            }
            let ids: Vec<&str> = jobs.iter().map(|job| job.job_id.as_str()).collect();
            let inputs: Vec<&str> = jobs.iter().map(|job| &*job.input).collect();
            let sql = "INSERT INTO agq.inputs (job_id, json) SELECT * FROM unnest($1::text[], $2::text[])";
            self.session.run(query(sql).bind(ids).bind(inputs))?;
            self.events.push(events::created(action, jobs.len()));
        }
        self.touch(&action.action_id);
        let total_jobs = action.total_jobs + jobs.len() as u64;
        self.put_action(&Action { total_jobs, ..action.clone() })?;
        self.write()?;
        Ok(total_jobs)
    }

    fn put_action(&self, action: &Action) -> Result<(), Error> {
        let sql = "UPDATE agq.actions SET record = $2 WHERE action_id = $1";
        self.session.run(query(sql).bind(action.action_id.as_str()).bind(encode(action)?)).map(drop)
    }

    pub(super) fn decide_action(
        &mut self,
        action_id: &ActionId,
        rule: &ActionRule,
    ) -> Result<Ruled<()>, Error> {
        match rule(self.action(action_id)?.as_ref()) {
            Err(rejection) => return Ok(Err(rejection)),
            Ok(None) => {}
            Ok(Some(action)) => {
                if !action.is_open && action.total_jobs > 0 && self.has_no_jobs(action_id)? {
                    // Its jobs were forgotten while it was open.
                    self.remove_action(action_id)?;
                    return Ok(Ok(()));
                }
                self.put_action(&action)?;
                self.touch(action_id);
            }
        }
        Ok(Ok(()))
    }

    /// Whether no job of an action is kept.
    pub(super) fn has_no_jobs(&self, action_id: &ActionId) -> Result<bool, Error> {
        let row = self.session.row(query(IS_EMPTY).bind(action_id.as_str()))?.ok_or(Error::RowNotFound)?;
        row.try_get(0)
    }

    /// Forgets an action of which no job is left.
    pub(super) fn remove_action(&self, action_id: &ActionId) -> Result<(), Error> {
        self.session.run(query("DELETE FROM agq.actions WHERE action_id = $1").bind(action_id.as_str()))?;
        self.session
            .run(query("DELETE FROM agq.tallies WHERE action_id = $1").bind(action_id.as_str()))
            .map(drop)
    }

    /// Whether the action that is there came from the same submission.
    fn is_same(&self, known: &Action, new: &NewAction) -> Result<bool, Error> {
        let count = new.jobs.len() as u64;
        // An open action may have grown since.
        let fits = known.total_jobs == count || (known.wishes.open && known.total_jobs > count);
        if !action::is_same(known, &new.action) || !fits {
            return Ok(false);
        }
        let inputs = self.inputs_from(&known.action_id, 0)?;
        Ok((0u64..).zip(&new.jobs).all(|(index, job)| has_input(&inputs, known, index, &job.input)))
    }

    fn inputs_from(&self, action_id: &ActionId, place: u64) -> Result<HashMap<u64, String>, Error> {
        let rows = self.session.rows(query(INPUTS).bind(action_id.as_str()).bind(numbers::wide(place)))?;
        rows.iter().map(|row| Ok((numbers::count(row.try_get(0)?), row.try_get(1)?))).collect()
    }
}

fn has_input(inputs: &HashMap<u64, String>, action: &Action, index: u64, input: &str) -> bool {
    // Where its job was forgotten since, it was there, and nobody can say more.
    inputs.get(&index).map_or(index < action.total_jobs, |known| known == input)
}
