//! Actions with jobs that must be unique, or whose ids may be taken, in a write transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use agenix_protocol::ids::{JobId, PlanId};
use agenix_rules::{
    job::{self, Job, JobState, NewJob, RuleOutcome},
    rejection::Rejection,
};
use sqlx::{Error, Result, Row, postgres::PgRow};

use crate::store::{
    AddOutcome, Duplicate, NewAction, RuleResult,
    decisions::accepted,
    dedup::{DedupResult, deduplicate},
    postgres::{
        connection::{Param, RoundTrip, Statement},
        txn::{PgTxn, checks::Checks},
    },
};

const ACTIONS: Statement = Statement {
    name: "agq_hold_actions",
    sql: "SELECT action_id FROM agq.actions WHERE action_id = ANY ($1::text[]) ORDER BY action_id FOR UPDATE",
};
/// Statement that locks plans against deletion.
const PLANS: Statement = Statement {
    name: "agq_hold_plans",
    sql: "SELECT plan_id FROM agq.plans WHERE plan_id = ANY ($1::text[]) ORDER BY plan_id FOR KEY SHARE",
};

/// Jobs that decide whether others are added, and those among them that are the first of a kind.
/// No other transaction changes them until this one ends.
pub(crate) struct CheckedJobs {
    pub(crate) firsts: HashMap<String, JobId>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
}

/// Stored records that decide whether actions are added.
struct CheckReads {
    actions: HashSet<String>,
    plans: HashSet<String>,
    checked: CheckedJobs,
}

/// Decision about an action.
enum Admission {
    /// An action with this id exists.
    Exists,
    /// The action is added with its remaining jobs.
    Adds(Box<NewAction>, Vec<Duplicate>),
    /// Existing jobs stand for all jobs of the action, so nothing is added.
    Stands(Vec<Duplicate>),
}

impl PgTxn<'_> {
    /// Keeps the jobs that decide about new jobs, which the first round trip has locked. Returns
    /// the limits that jobs may leave.
    pub(crate) fn keep_checked_jobs(&mut self) -> Vec<String> {
        let Some(firsts) = self.reads.firsts.take() else { return Vec::new() };
        let jobs = self.reads.jobs.as_ref().map(|reads| reads.jobs.clone()).unwrap_or_default();
        let active = jobs.values().filter(|job| job.state == JobState::Active);
        let limits = active.filter_map(|job| job.ojs.as_ref()?.limit.clone()).collect();
        self.checked = Some(CheckedJobs { firsts, jobs });
        limits
    }

    /// Adds actions with jobs that must be unique, or whose ids may be taken. Actions of which none
    /// depends on another one are checked together.
    pub(crate) fn add_checked(&mut self, actions: &[&NewAction]) -> Result<Vec<RuleResult<AddOutcome>>> {
        let mut outcomes = Vec::with_capacity(actions.len());
        let mut rest = actions;
        while !rest.is_empty() {
            let (independent, later) = rest.split_at(count_independent(rest));
            outcomes.extend(self.add_independent(independent)?);
            rest = later;
        }
        Ok(outcomes)
    }

    fn add_independent(&mut self, actions: &[&NewAction]) -> Result<Vec<RuleResult<AddOutcome>>> {
        let reads = self.read_for_checks(actions)?;
        let mut admissions = Vec::with_capacity(actions.len());
        for new in actions {
            admissions.push(self.admit(new, &reads)?);
        }
        let added: Vec<&NewAction> = admissions.iter().filter_map(added_by).collect();
        let mut added = if added.is_empty() { Vec::new() } else { self.add_actions(&added)? }.into_iter();
        let mut outcomes = Vec::with_capacity(actions.len());
        for (new, admission) in actions.iter().zip(admissions) {
            outcomes.push(match admission {
                Err(rejection) => Err(rejection),
                Ok(Admission::Exists) => self.why_not_made(new)?,
                Ok(Admission::Stands(stands)) => Ok(with_stands(AddOutcome::New, stands)),
                Ok(Admission::Adds(_, stands)) => {
                    let added = added.next().ok_or(Error::RowNotFound)?;
                    if new.booking.is_some() && !matches!(added, Ok(AddOutcome::New)) {
                        // Another node has added the action since the look. The retry finds it, and
                        // books nothing.
                        return Err(Error::RowNotFound);
                    }
                    added.map(|added| with_stands(added, stands))
                }
            });
        }
        Ok(outcomes)
    }

    /// Reads and locks the records that decide about `actions`.
    fn read_for_checks(&mut self, actions: &[&NewAction]) -> Result<CheckReads> {
        let checked = match self.checked.take() {
            Some(checked) => checked,
            None => self.checked_jobs(actions)?,
        };
        let ids = actions.iter().map(|new| new.action.action_id.as_str());
        let plans: BTreeSet<&str> = actions.iter().flat_map(|new| new.plans()).map(PlanId::as_str).collect();
        let mut round_trip = RoundTrip::default();
        round_trip.call(&ACTIONS, vec![Param::texts(ids)]);
        round_trip.call(&PLANS, vec![Param::texts(plans)]);
        let answers = self.session.send(round_trip).map_err(|failure| failure.error)?;
        let [actions, plans] = &*answers else { return Err(Error::RowNotFound) };
        Ok(CheckReads { actions: ids_in(actions)?, plans: ids_in(plans)?, checked })
    }

    /// Reads the jobs that decide about `actions`, after changes of this transaction.
    fn checked_jobs(&mut self, actions: &[&NewAction]) -> Result<CheckedJobs> {
        self.write()?;
        let mut checks = Checks::default();
        actions.iter().for_each(|new| checks.add(&new.jobs));
        let firsts = self.firsts(&checks.kinds)?;
        let ids = checks.ids.into_iter().chain(firsts.values().map(JobId::as_str)).collect();
        let jobs = self.jobs(&ids)?;
        Ok(CheckedJobs { firsts, jobs })
    }

    /// Decides about an action, books its jobs, and cancels the jobs that they replace.
    fn admit(&mut self, new: &NewAction, reads: &CheckReads) -> Result<RuleResult<Admission>> {
        if reads.actions.contains(new.action.action_id.as_str()) {
            return Ok(Ok(Admission::Exists));
        }
        if let Some(missing) = new.plans().into_iter().find(|plan_id| !reads.plans.contains(plan_id.as_str()))
        {
            return Ok(Err(Rejection::PlanNotFound(missing.clone())));
        }
        accepted!(self.check_blobs(&new.blobs())?);
        let now = new.action.created_at;
        let job_of = |job_id: &JobId| {
            let job = self.changed_job(job_id).or_else(|| reads.checked.jobs.get(job_id));
            Ok::<_, Error>(job.cloned())
        };
        let DedupResult { stands, replaced } =
            accepted!(deduplicate(&new.jobs, now, job_of, |key| Ok(reads.checked.firsts.get(key).cloned()))?);
        let is_added = |job_id: &JobId| stands.iter().all(|stand| stand.job_id != *job_id);
        let jobs: Vec<NewJob> = new.jobs.iter().filter(|job| is_added(&job.job_id)).cloned().collect();
        if jobs.is_empty() && !new.jobs.is_empty() {
            return Ok(Ok(Admission::Stands(stands)));
        }
        if !jobs.is_empty() {
            accepted!(self.book(new.booking.as_ref(), jobs.len(), 0)?);
        }
        for before in &replaced {
            if let Ok(RuleOutcome::Changed(job)) = job::cancelled(before, now) {
                self.put_job(Some(before), &job);
            }
        }
        let input_blobs = new.input_blobs.iter().filter(|(job_id, _)| is_added(job_id)).cloned().collect();
        let rest = NewAction {
            action: new.action.clone(),
            needs: new.needs.clone(),
            terms: new.terms.clone(),
            jobs,
            documents: new.documents.clone(),
            input_blobs,
            booking: None,
        };
        Ok(Ok(Admission::Adds(Box::new(rest), stands)))
    }
}

/// Returns the number of `actions`, from the first on, of which none depends on an earlier one: no
/// id and no kind of a job occurs in two of them.
fn count_independent(actions: &[&NewAction]) -> usize {
    let (mut ids, mut kinds) = (HashSet::new(), HashSet::new());
    for (at, new) in actions.iter().enumerate() {
        let mut checks = Checks::default();
        checks.add(&new.jobs);
        let action_id = std::iter::once(new.action.action_id.as_str());
        let own: BTreeSet<&str> = action_id.chain(new.jobs.iter().map(|job| job.job_id.as_str())).collect();
        if own.iter().any(|id| ids.contains(id)) || checks.kinds.iter().any(|kind| kinds.contains(kind)) {
            return at;
        }
        ids.extend(own);
        kinds.extend(checks.kinds);
    }
    actions.len()
}

fn added_by(admission: &RuleResult<Admission>) -> Option<&NewAction> {
    match admission {
        Ok(Admission::Adds(new, _)) => Some(new),
        _ => None,
    }
}

fn with_stands(added: AddOutcome, stands: Vec<Duplicate>) -> AddOutcome {
    match added {
        AddOutcome::New if !stands.is_empty() => AddOutcome::Stands(stands),
        other => other,
    }
}

fn ids_in(rows: &[PgRow]) -> Result<HashSet<String>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}
