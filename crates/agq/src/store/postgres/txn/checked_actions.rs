//! Actions with jobs that must be unique, or whose ids may be taken, in a write transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use agenix_protocol::ids::{JobId, PlanId};
use agenix_rules::{
    job::{self, Job, NewJob, RuleOutcome},
    rejection::Rejection,
};
use sqlx::{Error, Result, Row, postgres::PgRow};

use crate::store::{
    AddOutcome, DocumentKind, Duplicate, NewAction, RuleResult,
    decisions::accepted,
    dedup::{DedupResult, deduplicate},
    postgres::{
        connection::{Param, PreparedStatement, RoundTrip},
        sql_types,
        txn::{PgTxn, checks::Checks, made_actions::MadeActions},
    },
};

/// Statement that reads which of the actions `$1` exist, locks the plans `$2` against deletion, and
/// takes `$3` turns.
const CHECK: PreparedStatement = PreparedStatement {
    name: "agq_check_actions",
    sql: "WITH held AS (SELECT plan_id FROM agq.plans WHERE plan_id = ANY ($2::text[]) ORDER BY plan_id FOR KEY SHARE) \
         SELECT ARRAY(SELECT action_id FROM agq.actions WHERE action_id = ANY ($1::text[])), \
         ARRAY(SELECT plan_id FROM held), ARRAY(SELECT nextval('agq.turns') FROM generate_series(1, $3::bigint))",
};

/// Jobs that decide whether others are added, and those among them that new jobs are compared with,
/// by their kinds. No other transaction changes these jobs until this transaction ends.
pub(crate) struct CheckedJobs {
    pub(crate) compared: HashMap<String, Vec<JobId>>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
}

/// Ids of actions and plans that exist, and turns for the jobs of new actions.
pub(crate) struct CheckReads {
    actions: HashSet<String>,
    plans: HashSet<String>,
    turns: Vec<u64>,
}

impl CheckReads {
    /// Adds the statement that reads what decides about `actions`, and returns its place.
    pub(crate) fn call(actions: &[&NewAction], round_trip: &mut RoundTrip) -> usize {
        let plans: BTreeSet<&str> = actions.iter().flat_map(|new| new.plans()).map(PlanId::as_str).collect();
        let jobs = actions.iter().map(|new| new.jobs.len()).sum();
        let params = vec![
            Param::texts(actions.iter().map(|new| new.action.action_id.as_str())),
            Param::texts(plans),
            Param::Wide(sql_types::limit(jobs)),
        ];
        round_trip.call(&CHECK, params)
    }

    pub(crate) fn from_rows(rows: &[PgRow]) -> Result<Self> {
        let row = rows.first().ok_or(Error::RowNotFound)?;
        let ids = |column| Ok::<_, Error>(row.try_get::<Vec<String>, _>(column)?.into_iter().collect());
        let turns: Vec<i64> = row.try_get(2)?;
        let mut turns: Vec<u64> = turns.into_iter().map(sql_types::count).collect();
        turns.sort_unstable();
        Ok(Self { actions: ids(0)?, plans: ids(1)?, turns })
    }
}

/// Decision about an action.
enum Admission {
    /// An action with this id exists.
    Exists,
    /// The action is added with its remaining jobs.
    Adds(Box<NewAction>, Vec<Duplicate>),
    /// Existing jobs stand for all jobs of the action, so no job is added.
    Stands(Vec<Duplicate>),
}

impl PgTxn<'_> {
    /// Keeps the jobs that decide about new jobs, which the first round trip has locked.
    pub(crate) fn keep_checked_jobs(&mut self) -> Result<()> {
        let Some(compared) = self.reads.compared.take() else { return Ok(()) };
        let mut jobs = self.reads.jobs.as_ref().map(|reads| reads.jobs.clone()).unwrap_or_default();
        // A job may have moved from the ended ones to the others between two statements.
        let missing = compared.values().flatten().filter(|job_id| !jobs.contains_key(*job_id));
        let missing: BTreeSet<&str> = missing.map(JobId::as_str).collect();
        if !missing.is_empty() {
            jobs.append(&mut self.jobs(&missing)?);
        }
        self.checked = Some(CheckedJobs { compared, jobs });
        Ok(())
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
        let checked = match self.checked.take() {
            Some(checked) => checked,
            None => self.checked_jobs(actions)?,
        };
        let reads = match self.reads.checks.take() {
            Some(reads) => reads,
            None => self.check_reads(actions)?,
        };
        let mut admissions = Vec::with_capacity(actions.len());
        for new in actions {
            admissions.push(self.admit(new, &reads, &checked)?);
        }
        let added: Vec<&NewAction> = admissions.iter().filter_map(added_by).collect();
        let mut added =
            if added.is_empty() { Vec::new() } else { self.add_new(&added, reads.turns)? }.into_iter();
        let mut outcomes = Vec::with_capacity(actions.len());
        for (new, admission) in actions.iter().zip(admissions) {
            outcomes.push(match admission {
                Err(rejection) => Err(rejection),
                Ok(Admission::Exists) => self.why_not_made(new)?,
                Ok(Admission::Stands(stands)) => Ok(with_stands(AddOutcome::New, stands)),
                Ok(Admission::Adds(_, stands)) => {
                    added.next().ok_or(Error::RowNotFound)?.map(|added| with_stands(added, stands))
                }
            });
        }
        Ok(outcomes)
    }

    /// Reads which actions and plans of `actions` exist.
    fn check_reads(&self, actions: &[&NewAction]) -> Result<CheckReads> {
        let mut round_trip = RoundTrip::default();
        let place = CheckReads::call(actions, &mut round_trip);
        let answers = self.session.send(round_trip).map_err(|failure| failure.error)?;
        CheckReads::from_rows(answers.get(place).ok_or(Error::RowNotFound)?)
    }

    /// Adds actions that do not exist, which the next write inserts. If another node inserts one of
    /// them first, the insertion fails, and the retry finds that action.
    fn add_new(&mut self, actions: &[&NewAction], turns: Vec<u64>) -> Result<Vec<RuleResult<AddOutcome>>> {
        for new in actions {
            self.new_actions.push(new)?;
        }
        let ids = actions.iter().map(|new| new.action.action_id.to_string()).collect();
        self.reads.made = Some(MadeActions { ids, turns });
        self.add_actions(actions)
    }

    /// Reads the jobs that decide about `actions`, after changes of this transaction.
    fn checked_jobs(&mut self, actions: &[&NewAction]) -> Result<CheckedJobs> {
        self.write()?;
        let mut checks = Checks::default();
        actions.iter().for_each(|new| checks.add(&new.jobs));
        let compared = self.compared(&checks.kinds)?;
        let ids = checks.ids.into_iter().chain(compared.values().flatten().map(JobId::as_str)).collect();
        let jobs = self.jobs(&ids)?;
        Ok(CheckedJobs { compared, jobs })
    }

    /// Decides about an action, charges its jobs, and cancels the jobs that they replace.
    fn admit(
        &mut self,
        new: &NewAction,
        reads: &CheckReads,
        checked: &CheckedJobs,
    ) -> Result<RuleResult<Admission>> {
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
            let job = self.changed_job(job_id).or_else(|| checked.jobs.get(job_id));
            Ok::<_, Error>(job.cloned())
        };
        let compared_with =
            |key: &str| Ok::<_, Error>(checked.compared.get(key).cloned().unwrap_or_default());
        let DedupResult { stands, replaced, documents } =
            accepted!(deduplicate(&new.jobs, now, job_of, compared_with)?);
        let is_added = |job_id: &JobId| stands.iter().all(|stand| stand.job_id != *job_id);
        let jobs: Vec<NewJob> = new.jobs.iter().filter(|job| is_added(&job.job_id)).cloned().collect();
        if jobs.is_empty() && !new.jobs.is_empty() {
            return Ok(Ok(Admission::Stands(stands)));
        }
        if !jobs.is_empty() {
            accepted!(self.charge_submission(new.charge.as_ref(), jobs.len(), 0)?);
        }
        for before in &replaced {
            if let Ok(RuleOutcome::Changed(job)) = job::cancelled(before, now) {
                self.put_job(Some(before), &job);
            }
        }
        let unique = documents.into_iter().map(|(key, json)| (DocumentKind::Unique, key, json));
        let input_blobs = new.input_blobs.iter().filter(|(job_id, _)| is_added(job_id)).cloned().collect();
        let rest = NewAction {
            action: new.action.clone(),
            needs: new.needs.clone(),
            terms: new.terms.clone(),
            jobs,
            documents: new.documents.iter().cloned().chain(unique).collect(),
            input_blobs,
            charge: None,
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
