//! Write transaction: collects the changes of jobs and counts, and writes them in a few statements.

pub(crate) mod actions;
pub(crate) mod blobs;
pub(crate) mod budgets;
pub(crate) mod bulk_insert;
pub(crate) mod candidates;
pub(crate) mod checked_actions;
pub(crate) mod checks;
pub(crate) mod claim_batch;
pub(crate) mod claim_reads;
pub(crate) mod claim_texts;
pub(crate) mod claims;
pub(crate) mod documents;
pub(crate) mod halts;
pub(crate) mod job_reads;
pub(crate) mod jobs;
pub(crate) mod lane_reads;
pub(crate) mod locked_lanes;
pub(crate) mod locked_names;
pub(crate) mod locked_rows;
pub(crate) mod made_actions;
pub(crate) mod opening;
pub(crate) mod quantities;
pub(crate) mod ready_jobs;
pub(crate) mod retention;
pub(crate) mod unused_lanes;
pub(crate) mod workers;

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId},
};
use agenix_rules::{
    action::Action,
    job::{self, Job, JobState},
};
use sqlx::{Error, Result, Row, query};

use crate::store::{
    BatchEvents, Totals,
    claim_index::Constraint,
    postgres::{
        cluster::{BusMessage, events},
        codec::{decode, or_skip},
        connection::{DatabaseSession, RoundTrip, RoundTripFailure, is_disconnect},
        lane_cache::LaneCache,
        ready_positions::{END, ReadyPositions, position_of},
        sql_types,
        txn::{
            blobs::BlobUses,
            budgets::LockedBudgets,
            bulk_insert::{Deltas, JobRows, add_limit_ends, put_results},
            checked_actions::CheckedJobs,
            claim_texts::{ClaimTexts, ClaimedJobs},
            documents::LockedLimits,
            locked_rows::DocumentWrites,
            made_actions::ActionRows,
            opening::OpeningReads,
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
    new_actions: ActionRows,
    documents: DocumentWrites,
    results: BTreeMap<JobId, String>,
    pub(super) blobs: BlobUses,
    pub(super) deltas: Deltas,
    pub(super) limits: LockedLimits,
    pub(super) budgets: LockedBudgets,
    pub(super) quantities: HeldQuantities,
    /// True if the transaction locked ready jobs, which other nodes passed over, and left them.
    pub(super) has_left: bool,
    /// Jobs that other nodes may claim: those that have become ready, and those that were locked
    /// and left.
    pub(super) ready: ReadyPositions,
    /// Number of written rows of new and ended jobs, for the growth of the tables.
    pub(super) grown_by: usize,
    /// Results of the first round trip that are not used yet.
    reads: OpeningReads,
    /// Jobs that decide about the new jobs of the batch, with the changes of this transaction.
    checked: Option<CheckedJobs>,
    claimed: ClaimedJobs,
}

/// Failure of the last statements of a transaction.
pub(super) struct CommitFailure {
    pub(super) error: Error,
    pub(super) may_be_committed: bool,
}

impl From<Error> for CommitFailure {
    fn from(error: Error) -> Self {
        Self { error, may_be_committed: false }
    }
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
        reads: OpeningReads,
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
            new_actions: ActionRows::default(),
            documents: DocumentWrites::default(),
            results: BTreeMap::new(),
            blobs: BlobUses::default(),
            deltas: Deltas::default(),
            limits: LockedLimits::default(),
            budgets: LockedBudgets::default(),
            quantities: HeldQuantities::default(),
            has_left: false,
            ready: ReadyPositions::default(),
            grown_by: 0,
            reads,
            checked: None,
            claimed: ClaimedJobs::default(),
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
        self.unblock(before, job);
        self.count_quantities(before, job);
        self.arrived.jobs |= self.limits.has_room() || self.budgets.has_room;
        match before {
            None => self.deltas.counts(&job.action_id).jobs[Status::Pending as usize] += 1,
            Some(before) if before.status() != job.status() => {
                let counts = self.deltas.counts(&job.action_id);
                counts.jobs[before.status() as usize] -= 1;
                counts.jobs[job.status() as usize] += 1;
                counts.last_ended_at = counts.last_ended_at.max(job.ended_at);
            }
            Some(_) => {}
        }
        let starts = job.starts_since(before);
        if starts != 0 {
            self.deltas.counts(&job.action_id).started += starts;
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

    /// Makes claims check the lanes again that a change of a job may open: the lanes of the limit
    /// and the budget that the job leaves, and the lane of which the job is no longer the first
    /// one.
    fn unblock(&mut self, before: Option<&Job>, job: &Job) {
        let Some(before) = before.filter(|before| before.state != job.state) else { return };
        let lane = sql_types::lane(before.lane);
        match before.state {
            JobState::Available => self.lanes.unblock(lane),
            JobState::Active => {
                let limit = before.ojs.as_ref().and_then(|ojs| ojs.limit.as_deref());
                let budget = job::budget_of(before).map(|budget| &*budget.name);
                let bounds = [(Constraint::Limit, limit), (Constraint::Budget, budget)];
                for (constraint, name) in bounds {
                    let Some(name) = name else { continue };
                    self.lanes.unblock_all_of(constraint, name);
                    // Other nodes learn that the bounds of the lane have room.
                    self.ready.add(lane, END);
                }
            }
            _ => {}
        }
    }

    /// Records that any job may have become claimable.
    pub(super) fn any_ready(&mut self) {
        self.ready.any = true;
        self.lanes.forget_positions();
    }

    /// Makes claims check for jobs that have become ready in this transaction.
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

    /// Writes the new actions and jobs, so that statements find them.
    pub(super) fn write_new(&mut self) -> Result<()> {
        let mut round_trip = RoundTrip::default();
        self.push_new(&mut round_trip)?;
        self.send(round_trip)
    }

    /// Writes all buffered changes. Later reads see the written rows.
    pub(super) fn write(&mut self) -> Result<()> {
        self.take_bounds()?;
        let mut round_trip = RoundTrip::default();
        self.push_changes(&mut round_trip)?;
        self.send(round_trip)?;
        self.blobs.write(self.session)
    }

    /// Writes all buffered changes, commits, and returns the texts of the claimed jobs.
    pub(super) fn commit(&mut self) -> Result<ClaimTexts, CommitFailure> {
        self.take_bounds()?;
        if !self.blobs.is_empty() {
            self.write()?;
        }
        let mut round_trip = RoundTrip::default();
        self.push_changes(&mut round_trip)?;
        let texts = std::mem::take(&mut self.claimed).read(&mut round_trip);
        round_trip.plain("COMMIT");
        let before_commit = round_trip.len() - 1;
        let answers = self.session.send(round_trip).map_err(|failure| {
            let RoundTripFailure { error, succeeded, has_sent_all } = failure;
            let may_be_committed = has_sent_all && (succeeded == before_commit || is_disconnect(&error));
            CommitFailure { error, may_be_committed }
        })?;
        // The writes are committed, so a claim without its texts is answered, too.
        let texts = texts.and_then(|place| answers.get(place)).map(|rows| ClaimTexts::from_rows(rows));
        Ok(texts.and_then(or_skip).unwrap_or_default())
    }

    /// Adds the changes of limits and budgets to the documents to write.
    fn take_bounds(&mut self) -> Result<()> {
        self.limits.take_changed(&mut self.documents);
        self.budgets.write(self.session, &mut self.documents)
    }

    fn send(&self, round_trip: RoundTrip) -> Result<()> {
        if round_trip.is_empty() {
            return Ok(());
        }
        self.session.send(round_trip).map(drop).map_err(|failure| failure.error)
    }

    /// Adds the statements that insert the new actions and jobs. A claim of this transaction may
    /// have ended some of the new jobs.
    fn push_new(&mut self, round_trip: &mut RoundTrip) -> Result<()> {
        std::mem::take(&mut self.new_actions).insert(round_trip);
        let [mut new, mut ended] = <[JobRows; 2]>::default();
        for (_, JobWrite { after, .. }) in self.job_writes.extract_if(.., |_, one| one.before.is_none()) {
            let rows = if after.is_ended() { &mut ended } else { &mut new };
            rows.push(&after)?;
        }
        let count = new.len() + ended.len();
        self.grown_by += count;
        if count > 0 {
            self.lock_lanes(new.lanes().chain(ended.lanes()))?;
            // The read for the claims did not return the new jobs.
            self.reads.claims = None;
        }
        new.insert(round_trip, std::mem::take(&mut self.inputs));
        ended.end(round_trip);
        Ok(())
    }

    /// Adds the statements that write the buffered changes of jobs, results and counts.
    fn push_changes(&mut self, round_trip: &mut RoundTrip) -> Result<()> {
        self.push_new(round_trip)?;
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
        self.lock_lanes(revived.lanes())?;
        revived.revive(round_trip);
        amended.amend(round_trip);
        changed.change(round_trip);
        ended.end(round_trip);
        put_results(round_trip, std::mem::take(&mut self.results));
        std::mem::take(&mut self.documents).push(round_trip);
        let deltas = std::mem::take(&mut self.deltas);
        self.touched.extend(deltas.actions());
        deltas.add(round_trip, self.shard);
        add_limit_ends(round_trip, self.shard, self.limits.take_ends());
        Ok(())
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

    /// Locks and returns an action. No other transaction writes the action until this transaction
    /// ends.
    pub(super) fn action(&self, action_id: &ActionId) -> Result<Option<Action>> {
        let sql = "SELECT record FROM agq.actions WHERE action_id = $1 FOR UPDATE";
        let row = self.session.row(query(sql).bind(action_id.as_str()))?;
        row.map(|row| decode(row.try_get(0)?)).transpose()
    }
}
