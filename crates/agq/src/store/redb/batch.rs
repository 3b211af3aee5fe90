//! One write transaction: its tables, and what is written once at its end however often it changed.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId},
};
use agenix_rules::{
    action::{Action, PRIORITIES, Tally},
    job::{Job, State},
};
use redb::{Error, WriteTransaction};

use super::{
    codec::{decode, encode},
    known_keys::KnownKeys,
    lanes::Lanes,
    logged::{Logged, Note, Redo, Replayed, take_note},
    tables::{
        ACTION_JOBS, ACTIONS, BY_SCORE, ENDED, EXPIRIES, HELD, INPUTS, JOBS, KEY_NUMBERS, LANE_LENGTHS,
        LANES, LEASES, LIST_ITEMS, META, PAUSED, PLAN_LOADS, PLANS, READY, REGISTRATIONS, RESULTS, SCORES,
        TALLIES, TOTALS, WAITING, WORKERS,
    },
};
use crate::store::{Arrived, News, Totals};

type Bytes = &'static [u8];
type Text = &'static str;

pub(super) struct Batch<'t> {
    pub(super) plans: Logged<'t, Text, Bytes>,
    pub(super) actions: Logged<'t, Text, Bytes>,
    pub(super) action_jobs: Logged<'t, (Text, u64), Text>,
    pub(super) jobs: Logged<'t, Text, Bytes>,
    pub(super) inputs: Logged<'t, Text, Text>,
    pub(super) results: Logged<'t, Text, Text>,
    pub(super) ready: Logged<'t, (u32, u8, u64), Text>,
    pub(super) ended: Logged<'t, (u8, u64, Text), ()>,
    pub(super) workers: Logged<'t, Text, Bytes>,
    pub(super) registrations: Logged<'t, Text, Text>,
    pub(super) paused: Logged<'t, Text, ()>,
    pub(super) keys: KnownKeys<'t>,
    pub(super) key_numbers: Logged<'t, u64, Bytes>,
    pub(super) expiries: Logged<'t, (u64, Bytes), ()>,
    pub(super) list_items: Logged<'t, (Bytes, i64), Bytes>,
    pub(super) scores: Logged<'t, (Bytes, Bytes), u64>,
    pub(super) by_score: Logged<'t, (Bytes, u64, Bytes), ()>,
    pub(super) lanes: &'t mut Lanes,
    pub(super) arrived: Arrived,
    /// Whether someone wants to know what changed.
    is_heard: bool,
    pub(super) tallies: Logged<'t, Text, Bytes>,
    plan_loads: Logged<'t, Text, u64>,
    totals: Logged<'t, Text, Bytes>,
    waiting: Logged<'t, (u64, Text), ()>,
    leases: Logged<'t, (u64, Text), ()>,
    held: Logged<'t, (Text, Text), ()>,
    lane_keys: Logged<'t, u32, Bytes>,
    lane_lengths: Logged<'t, u32, (u64, u64)>,
    meta: Logged<'t, Text, u64>,
    changed_tallies: BTreeMap<ActionId, Tally>,
    changed_loads: BTreeMap<PlanId, i64>,
    changed_totals: Option<Totals>,
}

impl<'t> Batch<'t> {
    pub(super) fn open(
        transaction: &'t WriteTransaction,
        lanes: &'t mut Lanes,
        redo: &'t Redo,
        is_heard: bool,
    ) -> Self {
        Self {
            plans: Logged::new(PLANS, transaction, redo),
            actions: Logged::new(ACTIONS, transaction, redo),
            action_jobs: Logged::new(ACTION_JOBS, transaction, redo),
            jobs: Logged::new(JOBS, transaction, redo),
            inputs: Logged::new(INPUTS, transaction, redo),
            results: Logged::new(RESULTS, transaction, redo),
            ready: Logged::new(READY, transaction, redo),
            ended: Logged::new(ENDED, transaction, redo),
            workers: Logged::new(WORKERS, transaction, redo),
            registrations: Logged::new(REGISTRATIONS, transaction, redo),
            paused: Logged::new(PAUSED, transaction, redo),
            keys: KnownKeys::new(transaction, redo),
            key_numbers: Logged::new(KEY_NUMBERS, transaction, redo),
            expiries: Logged::new(EXPIRIES, transaction, redo),
            list_items: Logged::new(LIST_ITEMS, transaction, redo),
            scores: Logged::new(SCORES, transaction, redo),
            by_score: Logged::new(BY_SCORE, transaction, redo),
            tallies: Logged::new(TALLIES, transaction, redo),
            plan_loads: Logged::new(PLAN_LOADS, transaction, redo),
            totals: Logged::new(TOTALS, transaction, redo),
            waiting: Logged::new(WAITING, transaction, redo),
            leases: Logged::new(LEASES, transaction, redo),
            held: Logged::new(HELD, transaction, redo),
            lane_keys: Logged::new(LANES, transaction, redo),
            lane_lengths: Logged::new(LANE_LENGTHS, transaction, redo),
            meta: Logged::new(META, transaction, redo),
            lanes,
            arrived: Arrived::default(),
            is_heard,
            changed_tallies: BTreeMap::new(),
            changed_loads: BTreeMap::new(),
            changed_totals: None,
        }
    }

    /// Every table.
    fn all(&mut self) -> [&mut dyn Replayed; 26] {
        [
            &mut self.plans,
            &mut self.actions,
            &mut self.action_jobs,
            &mut self.jobs,
            &mut self.inputs,
            &mut self.results,
            &mut self.ready,
            &mut self.ended,
            &mut self.workers,
            &mut self.registrations,
            &mut self.paused,
            self.keys.table_mut(),
            &mut self.key_numbers,
            &mut self.expiries,
            &mut self.list_items,
            &mut self.scores,
            &mut self.by_score,
            &mut self.tallies,
            &mut self.plan_loads,
            &mut self.totals,
            &mut self.waiting,
            &mut self.leases,
            &mut self.held,
            &mut self.lane_keys,
            &mut self.lane_lengths,
            &mut self.meta,
        ]
    }

    /// Creates every table, so that no read has to ask whether one exists.
    pub(super) fn create_tables(&mut self) -> Result<(), Error> {
        self.all().into_iter().try_for_each(Replayed::create)
    }

    /// Writes again what a journal noted of earlier batches; whether all of it could be read.
    pub(super) fn replay(&mut self, mut notes: &[u8]) -> Result<bool, Error> {
        let mut tables = self.all();
        while let Some(Note { table, key, value }) = take_note(&mut notes) {
            let Some(table) = tables.iter_mut().find(|known| known.name() == table) else { return Ok(false) };
            table.replay(key, value)?;
        }
        Ok(notes.is_empty())
    }

    /// Writes what was collected, and says what arrived.
    pub(super) fn close(mut self) -> Result<Arrived, Error> {
        for (action_id, tally) in &self.changed_tallies {
            self.tallies.insert(action_id.as_str(), encode(tally)?.as_slice())?;
            let action = self.actions.get(action_id.as_str())?.filter(|_| self.is_heard);
            if let Some(action) = action {
                self.arrived.tell(News::Action(Box::new(decode(action.value())?), *tally));
            }
        }
        for (plan_id, by) in &self.changed_loads {
            let load = self.plan_loads.get(plan_id.as_str())?.map_or(0, |load| load.value());
            match load.saturating_add_signed(*by) {
                0 => drop(self.plan_loads.remove(plan_id.as_str())?),
                load => drop(self.plan_loads.insert(plan_id.as_str(), load)?),
            }
        }
        if let Some(totals) = &self.changed_totals {
            self.totals.insert("totals", encode(totals)?.as_slice())?;
        }
        self.keys.save()?;
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
        self.count(before.map(Job::status), job.status())?;
        let load = i64::from(!job.is_ended()) - i64::from(before.is_some_and(|before| !before.is_ended()));
        if load != 0 {
            *self.changed_loads.entry(job.plan_id.clone()).or_default() += load;
        }
        if self.is_heard {
            self.arrived.tell(News::Job(Box::new(job.clone())));
        }
        let Some(before) = before else {
            self.lanes.keep(job.lane, 1);
            return Ok(());
        };
        if before.status() != job.status() {
            let tally = self.tally(&job.action_id)?.moved(before.status(), job.status(), job.ended_at);
            self.put_tally(&job.action_id, tally);
        }
        Ok(())
    }

    /// Counts a job that comes into a status, and out of another.
    fn count(&mut self, from: Option<Status>, to: Status) -> Result<(), Error> {
        if from == Some(to) {
            return Ok(());
        }
        let totals = self.totals_mut()?;
        if let Some(from) = from {
            totals.now[from as usize] = totals.now[from as usize].saturating_sub(1);
        }
        totals.now[to as usize] += 1;
        // A job that waits again was submitted once.
        if from.is_none() || to != Status::Pending {
            totals.ever[to as usize] += 1;
        }
        Ok(())
    }

    pub(super) fn totals_mut(&mut self) -> Result<&mut Totals, Error> {
        if self.changed_totals.is_none() {
            let stored = self.totals.get("totals")?.map(|record| decode(record.value())).transpose()?;
            self.changed_totals = Some(stored.unwrap_or_default());
        }
        Ok(self.changed_totals.get_or_insert_default())
    }

    /// Jobs of a plan that have not ended.
    pub(super) fn load_of(&self, plan_id: &PlanId) -> Result<u64, Error> {
        let load = self.plan_loads.get(plan_id.as_str())?.map_or(0, |load| load.value());
        Ok(load.saturating_add_signed(self.changed_loads.get(plan_id).copied().unwrap_or_default()))
    }

    pub(super) fn action(&self, action_id: &ActionId) -> Result<Option<Action>, Error> {
        self.actions.get(action_id.as_str())?.map(|record| decode(record.value())).transpose()
    }

    pub(super) fn put_action(&mut self, action: &Action) -> Result<(), Error> {
        self.actions.insert(action.action_id.as_str(), encode(action)?.as_slice())?;
        Ok(())
    }

    /// Forgets an action of which no job is left.
    pub(super) fn remove_action(&mut self, action_id: &ActionId) -> Result<(), Error> {
        self.changed_tallies.remove(action_id);
        self.tallies.remove(action_id.as_str())?;
        self.actions.remove(action_id.as_str())?;
        Ok(())
    }

    pub(super) fn tally(&self, action_id: &ActionId) -> Result<Tally, Error> {
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
            self.ready.remove(turn(before))?;
            self.lanes.resize(before.lane, -1);
        }
        if let Some(due) = before.due_at
            && (before.due_at, before.state) != (job.due_at, job.state)
        {
            self.due_table(before.state).remove((due.0, id))?;
        }
        if let Some((status, at)) = ended(before) {
            self.ended.remove((status, at, id))?;
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
            self.ready.insert(turn(job), id)?;
            self.lanes.resize(job.lane, 1);
            self.arrived.jobs = true;
        }
        if let Some(due) = job.due_at
            && before.map(|b| (b.due_at, b.state)) != Some((job.due_at, job.state))
        {
            self.due_table(job.state).insert((due.0, id), ())?;
        }
        if let Some((status, at)) = ended(job) {
            self.ended.insert((status, at, id), ())?;
        }
        if job.state == State::Active
            && was != Some(State::Active)
            && let Some(holder) = &job.holder
        {
            self.held.insert((holder.as_str(), id), ())?;
        }
        Ok(())
    }

    fn due_table(&mut self, state: State) -> &mut Logged<'t, (u64, Text), ()> {
        if state == State::Active { &mut self.leases } else { &mut self.waiting }
    }
}

/// A job's place in the ready index: the higher its priority, the earlier.
pub(super) fn turn(job: &Job) -> (u32, u8, u64) {
    (job.lane, rank(job.priority), job.seq)
}

fn rank(priority: i32) -> u8 {
    u8::try_from(*PRIORITIES.end() - priority).unwrap_or_default()
}

/// A job's place in the index of ended jobs.
fn ended(job: &Job) -> Option<(u8, u64)> {
    job.ended_at.filter(|_| job.is_ended()).map(|at| (job.status() as u8, at.0))
}
