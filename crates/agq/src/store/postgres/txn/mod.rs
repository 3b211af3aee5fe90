//! Write transaction: collects the changes of jobs and counts, and writes them in a few statements.

pub(crate) mod actions;
pub(crate) mod blobs;
pub(crate) mod budgets;
pub(crate) mod bulk_insert;
pub(crate) mod candidates;
pub(crate) mod checks;
pub(crate) mod documents;
pub(crate) mod halts;
pub(crate) mod held_rows;
pub(crate) mod jobs;
pub(crate) mod quantities;
pub(crate) mod retention;
pub(crate) mod unused_lanes;
pub(crate) mod workers;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId},
};
use agenix_rules::{
    action::Action,
    job::{Job, JobState},
};
use sqlx::{Result, Row, query};

use crate::store::{
    BatchEvents, Totals,
    postgres::{
        cluster::{BusMessage, events},
        codec::decode,
        connection::DatabaseSession,
        lane_cache::LaneCache,
        ready_positions::{ReadyPositions, position_of},
        sql_types,
        txn::{
            blobs::BlobUses,
            budgets::HeldBudgets,
            bulk_insert::{Deltas, JobRows},
            documents::HeldLimits,
            quantities::HeldQuantities,
        },
    },
};

/// Write transaction of a writer.
///
/// The transaction buffers changes of jobs, counts and results, and `write` sends them to the
/// database. A method that reads rows by other indexes must call `write` first; otherwise it does
/// not see the buffered changes.
pub(super) struct PgTxn<'b> {
    pub(super) session: &'b DatabaseSession,
    pub(super) lanes: &'b mut LaneCache,
    pub(super) arrived: BatchEvents,
    /// Notices that are sent after the commit.
    pub(super) events: Vec<BusMessage>,
    pub(super) touched: Vec<ActionId>,
    /// Shard of the counts that this transaction writes.
    shard: i16,
    /// True if a client of any node subscribes to changes.
    has_subscribers: bool,
    job_writes: BTreeMap<JobId, JobWrite>,
    /// Inputs of new jobs: ids and texts.
    inputs: (Vec<String>, Vec<String>),
    results: BTreeMap<JobId, String>,
    pub(super) blobs: BlobUses,
    pub(super) deltas: Deltas,
    pub(super) limits: HeldLimits,
    pub(super) budgets: HeldBudgets,
    pub(super) quantities: HeldQuantities,
    /// True if the transaction locked ready jobs, which other nodes passed over, and left them.
    pub(super) has_left: bool,
    /// Jobs that other nodes may claim: those that have become ready, and those that were locked
    /// and left.
    pub(super) ready: ReadyPositions,
    /// Number of written rows of new and ended jobs, for the growth of the tables.
    pub(super) grown_by: usize,
}

/// Change of a job since the latest `write`.
struct JobWrite {
    before: Option<Job>,
    after: Job,
}

impl<'b> PgTxn<'b> {
    pub(super) fn open(
        session: &'b DatabaseSession,
        lanes: &'b mut LaneCache,
        shard: i16,
        has_subscribers: bool,
    ) -> Self {
        Self {
            session,
            lanes,
            arrived: BatchEvents::default(),
            events: Vec::new(),
            touched: Vec::new(),
            shard,
            has_subscribers,
            job_writes: BTreeMap::new(),
            inputs: Default::default(),
            results: BTreeMap::new(),
            blobs: BlobUses::default(),
            deltas: Deltas::default(),
            limits: HeldLimits::default(),
            budgets: HeldBudgets::default(),
            quantities: HeldQuantities::default(),
            has_left: false,
            ready: ReadyPositions::default(),
            grown_by: 0,
        }
    }

    pub(super) fn put_job(&mut self, before: Option<&Job>, job: &Job) {
        let was_ready = before.is_some_and(|before| before.state == JobState::Available);
        if job.state == JobState::Available {
            self.arrived.jobs |= !was_ready;
            self.ready.add(sql_types::lane(job.lane), position_of(job));
        }
        self.count(before.map(Job::status), job.status());
        if before.is_none_or(|before| before.state != job.state) {
            before.into_iter().for_each(|before| self.deltas.in_lane(before, -1));
            self.deltas.in_lane(job, 1);
        }
        self.limits.note(before, job);
        self.budgets.note(before, job);
        self.count_quantities(before, job);
        self.arrived.jobs |= self.limits.has_room() || self.budgets.has_room;
        match before {
            None => self.deltas.tally(&job.action_id).jobs[Status::Pending as usize] += 1,
            Some(before) if before.status() != job.status() => {
                let tally = self.deltas.tally(&job.action_id);
                tally.jobs[before.status() as usize] -= 1;
                tally.jobs[job.status() as usize] += 1;
                tally.last_ended_at = tally.last_ended_at.max(job.ended_at);
            }
            Some(_) => {}
        }
        let starts = job.starts_since(before);
        if starts != 0 {
            self.deltas.tally(&job.action_id).started += starts;
        }
        if let Some(before) = before {
            self.events.extend(events::moved(before, job));
        }
        self.arrived.record_job(before, job, self.has_subscribers);
        match self.job_writes.get_mut(&job.job_id) {
            Some(known) => known.after = job.clone(),
            None => {
                let both = JobWrite { before: before.cloned(), after: job.clone() };
                self.job_writes.insert(job.job_id.clone(), both);
            }
        }
    }

    /// Records that any job may have become claimable.
    pub(super) fn any_ready(&mut self) {
        self.ready.any = true;
        self.lanes.forget_positions();
    }

    /// Lets claims look for the jobs that have become ready in this transaction.
    pub(super) fn add_own_ready(&mut self) {
        self.ready.first.iter().for_each(|(lane, position)| self.lanes.add_ready(*lane, *position));
    }

    /// Returns the latest state of a job that this transaction has buffered.
    pub(super) fn changed_job(&self, job_id: &JobId) -> Option<&Job> {
        self.job_writes.get(job_id).map(|known| &known.after)
    }

    pub(super) fn put_results(&mut self, job_id: &JobId, json: &str) {
        self.results.insert(job_id.clone(), json.to_owned());
    }

    /// Updates the totals for a job that moves from one status to another.
    fn count(&mut self, from: Option<Status>, to: Status) {
        if from == Some(to) {
            return;
        }
        let totals = &mut self.deltas.totals;
        if let Some(from) = from {
            totals.now[from as usize] -= 1;
        }
        totals.now[to as usize] += 1;
        // A job that becomes pending again was submitted once.
        if from.is_none() || to != Status::Pending {
            totals.ever[to as usize] += 1;
        }
    }

    /// Adds an action to the change events, although no job of it changed.
    pub(super) fn touch(&mut self, action_id: &ActionId) {
        self.touched.push(action_id.clone());
    }

    /// Writes the buffered changes if a ready job is among them, which a claim could take.
    pub(super) fn write_claimable(&mut self) -> Result<()> {
        let was_ready =
            |one: &JobWrite| one.before.as_ref().is_some_and(|job| job.state == JobState::Available);
        if self.job_writes.values().any(was_ready) { self.write() } else { Ok(()) }
    }

    /// Writes the new jobs, so that claims find them.
    pub(super) fn write_new(&mut self) -> Result<()> {
        let mut new = JobRows::default();
        for (_, JobWrite { after, .. }) in self.job_writes.extract_if(.., |_, one| one.before.is_none()) {
            new.push(&after)?;
        }
        self.grown_by += new.len();
        new.insert(self.session, std::mem::take(&mut self.inputs))
    }

    /// Writes all buffered changes. Later reads see them.
    pub(super) fn write(&mut self) -> Result<()> {
        self.limits.write(self.session, self.on_locked_limits())?;
        self.budgets.write(self.session)?;
        self.write_new()?;
        let [mut changed, mut ended, mut revived, mut amended] = <[JobRows; 4]>::default();
        for (_, JobWrite { before, after }) in std::mem::take(&mut self.job_writes) {
            let rows = match (before.is_some_and(|before| before.is_ended()), after.is_ended()) {
                (false, false) => &mut changed,
                (false, true) => &mut ended,
                (true, false) => &mut revived,
                (true, true) => &mut amended,
            };
            rows.push(&after)?;
        }
        self.grown_by += ended.len();
        revived.revive(self.session)?;
        amended.amend(self.session)?;
        let results = std::mem::take(&mut self.results);
        let deltas = std::mem::take(&mut self.deltas);
        self.touched.extend(deltas.actions());
        deltas.write_with(self.session, self.shard, changed, ended, &results)?;
        self.blobs.write(self.session)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        let row = self.session.row(query(crate::store::postgres::queries::TOTALS))?;
        row.as_ref().map_or(Ok(Totals::default()), crate::store::postgres::queries::totals_of)
    }

    /// Locks those of `ids` that exist until the end of the transaction, and returns them.
    pub(super) fn actions(&self, ids: &BTreeSet<&str>) -> Result<Vec<Action>> {
        let sql = "SELECT record FROM agq.actions WHERE action_id = ANY ($1) ORDER BY action_id FOR UPDATE";
        let rows = self.session.rows(query(sql).bind(ids.iter().copied().collect::<Vec<_>>()))?;
        rows.iter().map(|row| decode(row.try_get(0)?)).collect()
    }

    /// Locks and returns an action. No other transaction writes the action until this one ends.
    pub(super) fn action(&self, action_id: &ActionId) -> Result<Option<Action>> {
        let sql = "SELECT record FROM agq.actions WHERE action_id = $1 FOR UPDATE";
        let row = self.session.row(query(sql).bind(action_id.as_str()))?;
        row.map(|row| decode(row.try_get(0)?)).transpose()
    }

    /// Locks those of `ids` that exist until the end of the transaction, and returns them.
    pub(super) fn jobs(&self, ids: &[&str]) -> Result<BTreeMap<JobId, Job>> {
        self.jobs_and_armed(ids).map(|(jobs, _)| jobs)
    }

    /// Locks and returns jobs, and returns those actions whose halt policies are not met yet.
    pub(super) fn jobs_and_armed(&self, ids: &[&str]) -> Result<(BTreeMap<JobId, Job>, BTreeSet<ActionId>)> {
        let live = "SELECT record, (SELECT true FROM agq.notes AS n WHERE n.kind = 'halt' AND n.id = j.action_id) \
             FROM agq.jobs AS j WHERE job_id = ANY ($1) ORDER BY job_id FOR UPDATE";
        let ended =
            "SELECT record, NULL::boolean FROM agq.ended WHERE job_id = ANY ($1) ORDER BY job_id FOR UPDATE";
        let (mut found, mut armed) = (BTreeMap::<JobId, Job>::new(), BTreeSet::new());
        // A job that is in neither table may have moved from the second to the first between the
        // two queries.
        for sql in [live, ended, live] {
            let known: HashSet<&str> = found.keys().map(JobId::as_str).collect();
            let missing: Vec<&str> = ids.iter().copied().filter(|id| !known.contains(id)).collect();
            if missing.is_empty() {
                break;
            }
            for row in self.session.rows(query(sql).bind(missing))? {
                let job: Job = decode(row.try_get(0)?)?;
                if row.try_get::<Option<bool>, _>(1)?.is_some() {
                    armed.insert(job.action_id.clone());
                }
                found.insert(job.job_id.clone(), job);
            }
        }
        Ok((found, armed))
    }
}
