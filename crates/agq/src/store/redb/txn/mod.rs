//! Write transactions: the changes of one batch, which become visible together. Counts that change
//! often are written once, when the transaction is closed.

pub(crate) mod actions;
pub(crate) mod blobs;
pub(crate) mod budgets;
pub(crate) mod documents;
pub(crate) mod halts;
pub(crate) mod jobs;
pub(crate) mod key_cache;
pub(crate) mod lanes;
pub(crate) mod list_readahead;
pub(crate) mod quantities;
pub(crate) mod retention;
pub(crate) mod tables;
pub(crate) mod workers;
pub(crate) mod writer_cache;

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId},
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::{Job, JobState},
};

use crate::store::{
    BatchEvents, ChangeEvent, Totals,
    redb::{
        engine::{Memtable, Snapshot, Table},
        schema::{Result, encode, ended_key, ready_key},
        txn::{tables::Tables, writer_cache::WriterCache},
    },
};

type Text = &'static str;

pub(super) struct WriteTxn<'t> {
    pub(super) tables: Tables<'t>,
    pub(super) cache: &'t mut WriterCache,
    pub(super) arrived: BatchEvents,
    has_subscribers: bool,
    /// Queues whose counts have changed.
    changed_counts: BTreeSet<String>,
    changed_job_counts: BTreeMap<ActionId, JobCounts>,
    changed_loads: BTreeMap<PlanId, i64>,
    has_new_totals: bool,
    /// Number of jobs of halted actions that claims have cancelled.
    pub(super) withdrawn: usize,
}

/// Outcome of a write transaction: changes for the engine, and events for the change notifier.
pub(super) struct CommittedTxn {
    pub(super) changes: Memtable,
    pub(super) arrived: BatchEvents,
}

impl<'t> WriteTxn<'t> {
    pub(super) fn open(
        snapshot: &'t Snapshot<'t>,
        cache: &'t mut WriterCache,
        has_subscribers: bool,
    ) -> Self {
        Self {
            tables: Tables::open(snapshot),
            cache,
            arrived: BatchEvents::default(),
            has_subscribers,
            changed_counts: BTreeSet::new(),
            changed_job_counts: BTreeMap::new(),
            changed_loads: BTreeMap::new(),
            has_new_totals: false,
            withdrawn: 0,
        }
    }

    pub(super) fn close(mut self) -> Result<CommittedTxn> {
        for (action_id, counts) in &self.changed_job_counts {
            self.tables.job_counts.insert(action_id.as_str(), encode(counts)?.as_slice());
            if self.has_subscribers
                && let Some(action) = self.tables.actions.record(action_id.as_str())?
            {
                self.arrived.record(ChangeEvent::Action(Box::new(action), *counts));
            }
        }
        for (plan_id, by) in &self.changed_loads {
            let load = self.tables.plan_loads.get(plan_id.as_str())?.map_or(0, |load| load.value());
            match load.saturating_add_signed(*by) {
                0 => self.tables.plan_loads.remove(plan_id.as_str()),
                load => self.tables.plan_loads.insert(plan_id.as_str(), load),
            }
        }
        self.close_counts()?;
        if self.has_new_totals {
            self.tables.totals.insert("totals", encode(&self.cache.totals)?.as_slice());
        }
        self.cache.lanes.save(
            &mut self.tables.lane_keys,
            &mut self.tables.lane_lengths,
            &mut self.tables.meta,
        )?;
        Ok(CommittedTxn { changes: self.tables.take_changes(), arrived: self.arrived })
    }

    fn close_counts(&mut self) -> Result<()> {
        for queue in &self.changed_counts {
            match self.cache.queue_counts.get(queue) {
                Some([0, 0, 0, 0, 0, 0, 0, 0]) | None => {
                    self.cache.queue_counts.remove(queue);
                    self.tables.queue_counts.remove(queue.as_str());
                }
                Some(counts) => self.tables.queue_counts.insert(queue.as_str(), encode(counts)?.as_slice()),
            }
        }
        Ok(())
    }

    pub(super) fn count_in_queue(&mut self, job: &Job, by: i64) {
        let WriterCache { lanes, queue_counts, .. } = &mut *self.cache;
        let Some(queue) = lanes.queue_of(job.lane) else { return };
        if !self.changed_counts.contains(queue) {
            self.changed_counts.insert(queue.to_owned());
        }
        let counts = match queue_counts.get_mut(queue) {
            Some(counts) => counts,
            None => queue_counts.entry(queue.to_owned()).or_default(),
        };
        let count = &mut counts[job.state as usize];
        *count = count.saturating_add_signed(by);
    }

    pub(super) fn job(&self, job_id: &JobId) -> Result<Option<Job>> {
        self.tables.jobs.record(job_id.as_str())
    }

    pub(super) fn put_job(&mut self, before: Option<&Job>, job: &Job) -> Result<()> {
        if let Some(before) = before {
            self.unindex(before, job);
        }
        self.index(before, job);
        self.tables.jobs.insert(job.job_id.as_str(), encode(job)?.as_slice());
        self.count(before.map(Job::status), job.status());
        if before.is_none_or(|before| before.state != job.state) {
            before.into_iter().for_each(|before| self.count_in_queue(before, -1));
            self.count_in_queue(job, 1);
        }
        self.leave_limit(before, job)?;
        self.count_quantities(before, job);
        self.charge_run(before, job)?;
        let load = i64::from(!job.is_ended()) - i64::from(before.is_some_and(|before| !before.is_ended()));
        if load != 0 {
            *self.changed_loads.entry(job.plan_id.clone()).or_default() += load;
        }
        self.arrived.record_job(before, job, self.has_subscribers);
        let Some(before) = before else {
            self.cache.lanes.adjust_total(job.lane, 1);
            return Ok(());
        };
        if before.lane != job.lane {
            self.cache.lanes.adjust_total(before.lane, -1);
            self.cache.lanes.adjust_total(job.lane, 1);
        }
        let starts = job.starts_since(Some(before));
        if before.status() != job.status() {
            let counts = self.counts(&job.action_id)?.moved(before.status(), job.status(), job.ended_at);
            self.put_job_counts(&job.action_id, counts.with_started(starts));
            if let Some(ended_at) = job.ended_at.filter(|_| job.is_ended()) {
                self.halt_if_met(&job.action_id, ended_at)?;
            }
        } else if starts != 0 {
            let counts = self.counts(&job.action_id)?.with_started(starts);
            self.put_job_counts(&job.action_id, counts);
        }
        Ok(())
    }

    fn count(&mut self, from: Option<Status>, to: Status) {
        if from == Some(to) {
            return;
        }
        let totals = self.totals_mut();
        if let Some(from) = from {
            totals.now[from as usize] = totals.now[from as usize].saturating_sub(1);
        }
        totals.now[to as usize] += 1;
        // A job that becomes pending again was counted when it was submitted.
        if from.is_none() || to != Status::Pending {
            totals.ever[to as usize] += 1;
        }
    }

    pub(super) fn totals_mut(&mut self) -> &mut Totals {
        self.has_new_totals = true;
        &mut self.cache.totals
    }

    /// Returns the number of jobs of a plan that have not ended.
    pub(super) fn open_job_count(&self, plan_id: &PlanId) -> Result<u64> {
        let load = self.tables.plan_loads.get(plan_id.as_str())?.map_or(0, |load| load.value());
        Ok(load.saturating_add_signed(self.changed_loads.get(plan_id).copied().unwrap_or_default()))
    }

    pub(super) fn action(&self, action_id: &ActionId) -> Result<Option<Action>> {
        self.tables.actions.record(action_id.as_str())
    }

    pub(super) fn put_action(&mut self, action: &Action) -> Result<()> {
        self.tables.actions.insert(action.action_id.as_str(), encode(action)?.as_slice());
        Ok(())
    }

    /// Removes an action that has no jobs left.
    pub(super) fn remove_action(&mut self, action_id: &ActionId) {
        self.changed_job_counts.remove(action_id);
        self.tables.job_counts.remove(action_id.as_str());
        self.tables.actions.remove(action_id.as_str());
        self.forget_halt(action_id.as_str());
    }

    pub(super) fn counts(&self, action_id: &ActionId) -> Result<JobCounts> {
        match self.changed_job_counts.get(action_id) {
            Some(counts) => Ok(*counts),
            None => Ok(self.tables.job_counts.record(action_id.as_str())?.unwrap_or_default()),
        }
    }

    pub(super) fn put_job_counts(&mut self, action_id: &ActionId, counts: JobCounts) {
        self.changed_job_counts.insert(action_id.clone(), counts);
    }

    fn unindex(&mut self, before: &Job, job: &Job) {
        let id = before.job_id.as_str();
        if before.state == JobState::Available && job.state != JobState::Available {
            let (lane, rank, seq) = ready_key(before);
            self.tables.ready.remove((lane, rank, seq));
            self.cache.lanes.remove_ready(lane, (rank, seq));
        }
        if let Some(due) = before.due_at
            && (before.due_at, before.state) != (job.due_at, job.state)
        {
            self.due_table(before.state).remove((due.0, id));
        }
        if let Some((status, at)) = ended_key(before) {
            self.tables.ended.remove((status, at, id));
        }
        if before.state == JobState::Active
            && job.state != JobState::Active
            && let Some(holder) = &before.holder
        {
            self.tables.held.remove((holder.as_str(), id));
        }
    }

    fn index(&mut self, before: Option<&Job>, job: &Job) {
        let id = job.job_id.as_str();
        let was = before.map(|before| before.state);
        if job.state == JobState::Available && was != Some(JobState::Available) {
            let (lane, rank, seq) = ready_key(job);
            self.tables.ready.insert((lane, rank, seq), id);
            self.cache.lanes.add_ready(lane, (rank, seq), &job.job_id);
            self.arrived.jobs = true;
        }
        if let Some(due) = job.due_at
            && before.map(|b| (b.due_at, b.state)) != Some((job.due_at, job.state))
        {
            self.due_table(job.state).insert((due.0, id), ());
        }
        if let Some((status, at)) = ended_key(job) {
            self.tables.ended.insert((status, at, id), ());
        }
        if job.state == JobState::Active
            && was != Some(JobState::Active)
            && let Some(holder) = &job.holder
        {
            self.tables.held.insert((holder.as_str(), id), ());
        }
    }

    fn due_table(&mut self, state: JobState) -> &mut Table<'t, (u64, Text), ()> {
        if matches!(state, JobState::Active | JobState::Available) {
            &mut self.tables.leases
        } else {
            &mut self.tables.waiting
        }
    }
}
