//! One write transaction: its tables, and what is written once at its end however often it changed.

use std::collections::HashMap;

use agenix_protocol::ids::{ActionId, JobId};
use agenix_rules::{
    action::Tally,
    job::{Job, State},
};
use redb::{Error, ReadableTable, Table, WriteTransaction};

use super::{
    codec::{decode, encode},
    lanes::Lanes,
    tables::{
        ACTION_JOBS, ACTIONS, BY_SCORE, Entry, HELD, INPUTS, JOBS, KEYS, LANE_LENGTHS, LANES, LEASES,
        LIST_ITEMS, META, PLANS, READY, RESULTS, SCORES, TALLIES, WAITING, WORKERS,
    },
};
use crate::store::Arrived;

type Bytes = &'static [u8];
type Text = &'static str;

pub(super) struct Batch<'t> {
    pub(super) plans: Table<'t, Text, Bytes>,
    pub(super) actions: Table<'t, Text, Bytes>,
    pub(super) action_jobs: Table<'t, (Text, u64), Text>,
    pub(super) jobs: Table<'t, Text, Bytes>,
    pub(super) inputs: Table<'t, Text, Text>,
    pub(super) results: Table<'t, Text, Text>,
    pub(super) ready: Table<'t, (u32, u64), Text>,
    pub(super) workers: Table<'t, Text, Bytes>,
    pub(super) keys: Table<'t, Bytes, Entry>,
    pub(super) list_items: Table<'t, (Bytes, i64), Bytes>,
    pub(super) scores: Table<'t, (Bytes, Bytes), u64>,
    pub(super) by_score: Table<'t, (Bytes, u64, Bytes), ()>,
    pub(super) lanes: &'t mut Lanes,
    pub(super) arrived: Arrived,
    tallies: Table<'t, Text, Bytes>,
    waiting: Table<'t, (u64, Text), ()>,
    leases: Table<'t, (u64, Text), ()>,
    held: Table<'t, (Text, Text), ()>,
    lane_keys: Table<'t, u32, Bytes>,
    lane_lengths: Table<'t, u32, u64>,
    meta: Table<'t, Text, u64>,
    changed_tallies: HashMap<ActionId, Tally>,
}

impl<'t> Batch<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, lanes: &'t mut Lanes) -> Result<Self, Error> {
        Ok(Self {
            plans: transaction.open_table(PLANS)?,
            actions: transaction.open_table(ACTIONS)?,
            action_jobs: transaction.open_table(ACTION_JOBS)?,
            jobs: transaction.open_table(JOBS)?,
            inputs: transaction.open_table(INPUTS)?,
            results: transaction.open_table(RESULTS)?,
            ready: transaction.open_table(READY)?,
            workers: transaction.open_table(WORKERS)?,
            keys: transaction.open_table(KEYS)?,
            list_items: transaction.open_table(LIST_ITEMS)?,
            scores: transaction.open_table(SCORES)?,
            by_score: transaction.open_table(BY_SCORE)?,
            tallies: transaction.open_table(TALLIES)?,
            waiting: transaction.open_table(WAITING)?,
            leases: transaction.open_table(LEASES)?,
            held: transaction.open_table(HELD)?,
            lane_keys: transaction.open_table(LANES)?,
            lane_lengths: transaction.open_table(LANE_LENGTHS)?,
            meta: transaction.open_table(META)?,
            lanes,
            arrived: Arrived::default(),
            changed_tallies: HashMap::new(),
        })
    }

    /// Writes what was collected, and says what arrived.
    pub(super) fn close(mut self) -> Result<Arrived, Error> {
        for (action_id, tally) in &self.changed_tallies {
            self.tallies.insert(action_id.as_str(), encode(tally)?.as_slice())?;
        }
        self.lanes.save(&mut self.lane_keys, &mut self.lane_lengths, &mut self.meta)?;
        Ok(self.arrived)
    }

    pub(super) fn job(&self, job_id: &JobId) -> Result<Option<Job>, Error> {
        self.jobs.get(job_id.as_str())?.map(|record| decode(record.value())).transpose()
    }

    /// Writes a job and moves every index along.
    pub(super) fn put_job(&mut self, before: Option<&Job>, job: &Job) -> Result<(), Error> {
        if let Some(before) = before {
            self.unindex(before, job)?;
        }
        self.index(before, job)?;
        self.jobs.insert(job.job_id.as_str(), encode(job)?.as_slice())?;
        let Some(before) = before else { return Ok(()) };
        if before.status() != job.status() {
            let tally = self.tally(&job.action_id)?.moved(before.status(), job.status(), job.ended_at);
            self.put_tally(&job.action_id, tally);
        }
        Ok(())
    }

    fn tally(&self, action_id: &ActionId) -> Result<Tally, Error> {
        if let Some(tally) = self.changed_tallies.get(action_id) {
            return Ok(*tally);
        }
        let stored = self.tallies.get(action_id.as_str())?;
        stored.map_or(Ok(Tally::default()), |record| decode(record.value()))
    }

    pub(super) fn put_tally(&mut self, action_id: &ActionId, tally: Tally) {
        self.changed_tallies.insert(action_id.clone(), tally);
    }

    fn unindex(&mut self, before: &Job, job: &Job) -> Result<(), Error> {
        let id = before.job_id.as_str();
        if before.state == State::Available && job.state != State::Available {
            self.ready.remove((before.lane, before.seq))?;
            self.lanes.resize(before.lane, -1);
        }
        if let Some(due) = before.due_at
            && (before.due_at, before.state) != (job.due_at, job.state)
        {
            self.due_table(before.state).remove((due.0, id))?;
        }
        if before.state == State::Active
            && job.state != State::Active
            && let Some(holder) = &before.holder
        {
            self.held.remove((holder.as_str(), id))?;
        }
        Ok(())
    }

    fn index(&mut self, before: Option<&Job>, job: &Job) -> Result<(), Error> {
        let id = job.job_id.as_str();
        let was = before.map(|before| before.state);
        if job.state == State::Available && was != Some(State::Available) {
            self.ready.insert((job.lane, job.seq), id)?;
            self.lanes.resize(job.lane, 1);
            self.arrived.jobs = true;
        }
        if let Some(due) = job.due_at
            && before.map(|b| (b.due_at, b.state)) != Some((job.due_at, job.state))
        {
            self.due_table(job.state).insert((due.0, id), ())?;
        }
        if job.state == State::Active
            && was != Some(State::Active)
            && let Some(holder) = &job.holder
        {
            self.held.insert((holder.as_str(), id), ())?;
        }
        Ok(())
    }

    fn due_table(&mut self, state: State) -> &mut Table<'t, (u64, Text), ()> {
        if state == State::Active { &mut self.leases } else { &mut self.waiting }
    }
}
