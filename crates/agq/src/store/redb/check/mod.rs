//! Consistency check of a database: compares the tables with each other, and names every
//! contradiction. Nothing is repaired.
//!
//! `jobs` reads the records of jobs and looks them up in the indexes, `indexes` does the reverse,
//! `counts` compares stored counts, and `keys` checks users' keys. Tables are read row by row:
//! memory holds one count for each action, plan and lane.

mod counts;
mod indexes;
mod jobs;
mod keys;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use agenix_rules::{job::Job, worker::Worker};
use redb::Error;
use serde::de::DeserializeOwned;

use crate::store::{
    StoredPlan,
    redb::{
        engine::{Snapshot, Table},
        schema::{
            codec::decode,
            index_keys::LaneKey,
            tables::{
                ACTION_JOBS, ACTIONS, ENDED, FORMAT, HELD, INPUTS, JOBS, LANES, LEASES, META, PLANS, READY,
                REGISTRATIONS, WAITING, WORKERS,
            },
        },
    },
};

const MOST: usize = 1000;

/// Returns the inconsistencies, one a line, or nothing if the database is sound. An error means
/// that it cannot be read at all.
pub(crate) fn inconsistencies(read: &Snapshot<'_>) -> Result<Vec<String>, Error> {
    let (tables, mut found) = (RecordTables::open(read)?, Inconsistencies::default());
    let last_seq = last_seq(read, &mut found)?;
    let queues = queues(read, &mut found)?;
    let counted = jobs::check(&tables, &queues, last_seq, &mut found)?;
    indexes::check(read, &tables, &mut found)?;
    counts::check(read, &tables, &queues, counted, &mut found)?;
    own_ids::<StoredPlan>("plans", &tables.plans, |plan| plan.plan_id.as_str(), &mut found)?;
    workers(read, &mut found)?;
    keys::check(read, &mut found)?;
    Ok(found.told())
}

#[derive(Default)]
struct Inconsistencies {
    lines: Vec<String>,
    has_more: bool,
}

impl Inconsistencies {
    fn report(&mut self, line: fmt::Arguments<'_>) {
        if self.lines.len() < MOST {
            self.lines.push(line.to_string());
        } else {
            self.has_more = true;
        }
    }

    fn told(mut self) -> Vec<String> {
        if self.has_more {
            self.lines.push(format!("there are more than these {MOST}"));
        }
        self.lines
    }
}

type Bytes = &'static [u8];
type Text = &'static str;

/// Tables that several checks use.
struct RecordTables<'v> {
    plans: Table<'v, Text, Bytes>,
    actions: Table<'v, Text, Bytes>,
    action_jobs: Table<'v, (Text, u64), Text>,
    jobs: Table<'v, Text, Bytes>,
    inputs: Table<'v, Text, Text>,
    ready: Table<'v, (u32, u8, u64), Text>,
    waiting: Table<'v, (u64, Text), ()>,
    leases: Table<'v, (u64, Text), ()>,
    held: Table<'v, (Text, Text), ()>,
    ended: Table<'v, (u8, u64, Text), ()>,
}

impl<'v> RecordTables<'v> {
    fn open(read: &'v Snapshot<'v>) -> Result<Self, Error> {
        Ok(Self {
            plans: read.table(&PLANS),
            actions: read.table(&ACTIONS),
            action_jobs: read.table(&ACTION_JOBS),
            jobs: read.table(&JOBS),
            inputs: read.table(&INPUTS),
            ready: read.table(&READY),
            waiting: read.table(&WAITING),
            leases: read.table(&LEASES),
            held: read.table(&HELD),
            ended: read.table(&ENDED),
        })
    }
}

/// Returns the last sequence number that was assigned.
fn last_seq(read: &Snapshot<'_>, found: &mut Inconsistencies) -> Result<u64, Error> {
    let meta = read.table(&META);
    match meta.get("format")?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(other) => found.report(format_args!("meta: format is {other}, but should be {FORMAT}")),
        None => found.report(format_args!("meta: there is no format")),
    }
    Ok(meta.get("next_seq")?.map_or(0, |seq| seq.value()))
}

fn queues(read: &Snapshot<'_>, found: &mut Inconsistencies) -> Result<BTreeMap<u32, String>, Error> {
    let (mut queues, mut numbers) = (BTreeMap::new(), HashMap::new());
    for entry in read.table(&LANES).iter()? {
        let (number, key) = entry?;
        let number = number.value();
        let Ok(key) = decode::<LaneKey>(key.value()) else {
            found.report(format_args!("lanes: lane {number} has a record that cannot be read"));
            continue;
        };
        queues.insert(number, key.queue.clone());
        if let Some(same) = numbers.insert(key, number) {
            found.report(format_args!("lanes: lanes {same} and {number} have the same queue and needs"));
        }
    }
    Ok(queues)
}

/// Checks that every record can be read, and is stored under its own id.
fn own_ids<T: DeserializeOwned>(
    name: &str,
    table: &Table<'_, Text, Bytes>,
    id_of: fn(&T) -> &str,
    found: &mut Inconsistencies,
) -> Result<(), Error> {
    for entry in table.iter()? {
        let (key, record) = entry?;
        let id = key.value();
        match decode::<T>(record.value()) {
            Err(_) => found.report(format_args!("{name}: {id} has a record that cannot be read")),
            Ok(record) if id_of(&record) != id => {
                found.report(format_args!("{name}: {id} has the record of {}", id_of(&record)));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Checks that every worker has a registration, and every registration a worker.
fn workers(read: &Snapshot<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    let (workers, registrations) = (read.table(&WORKERS), read.table(&REGISTRATIONS));
    own_ids::<Worker>("workers", &workers, |worker| worker.worker_id.as_str(), found)?;
    for entry in workers.iter()? {
        let (key, _) = entry?;
        let id = key.value();
        if registrations.get(id)?.is_none() {
            found.report(format_args!("registrations: {id} has no registration"));
        }
    }
    for entry in registrations.iter()? {
        let (key, _) = entry?;
        let id = key.value();
        if workers.get(id)?.is_none() {
            found.report(format_args!("registrations: {id} has a registration, but there is no such worker"));
        }
    }
    Ok(())
}

/// Returns status and time in the index of ended jobs.
fn end_of(job: &Job) -> Option<(u8, u64)> {
    job.ended_at.filter(|_| job.is_ended()).map(|at| (job.status() as u8, at.0))
}

#[cfg(test)]
mod tests;
