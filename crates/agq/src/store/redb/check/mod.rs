//! Consistency check of a database: compares the tables with each other, and names every
//! inconsistency. Nothing is repaired.
//!
//! `jobs` reads the records of jobs and looks them up in the indexes, `indexes` does the reverse,
//! `counts` compares stored counts, and `keys` checks users' keys. Tables are read row by row:
//! memory holds one count for each action, plan and lane.

macro_rules! report {
    ($found:expr, $($line:tt)+) => {
        $found.report(format_args!($($line)+))
    };
}

pub(crate) mod blobs;
mod budgets;
mod counts;
mod indexes;
mod jobs;
mod keys;
mod limits;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use agenix_rules::worker::Worker;
use redb::Error;
use serde::de::DeserializeOwned;

use crate::store::{
    StoredPlan,
    redb::{
        engine::{Snapshot, Table},
        schema::{FORMAT, LaneKey, Result, decode},
        txn::tables::Tables,
    },
};

const MAX_LINES: usize = 1000;

/// Returns the inconsistencies, one a line, or nothing if the database is consistent. Fails if the
/// database cannot be read at all.
pub(crate) fn inconsistencies(read: &Snapshot<'_>) -> Result<Vec<String>> {
    let (tables, mut found) = (Tables::open(read), Inconsistencies::default());
    let last_seq = last_seq(&tables, &mut found)?;
    let queues = queues(&tables, &mut found)?;
    let counted = jobs::check(&tables, &queues, last_seq, &mut found)?;
    indexes::check(&tables, &mut found)?;
    counts::check(&tables, &queues, counted, &mut found)?;
    own_ids::<StoredPlan>("plans", &tables.plans, |plan| plan.plan_id.as_str(), &mut found)?;
    workers(&tables, &mut found)?;
    keys::check(&tables, &mut found)?;
    blobs::check(read, &mut found)?;
    Ok(found.into_lines())
}

#[derive(Default)]
struct Inconsistencies {
    lines: Vec<String>,
    has_more: bool,
}

impl Inconsistencies {
    fn report(&mut self, line: fmt::Arguments<'_>) {
        if self.lines.len() < MAX_LINES {
            self.lines.push(line.to_string());
        } else {
            self.has_more = true;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        if self.has_more {
            self.lines.push(format!("there are more than these {MAX_LINES}"));
        }
        self.lines
    }
}

/// Returns the last sequence number that was assigned.
fn last_seq(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<u64> {
    match tables.meta.get("format")?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(other) => report!(found, "meta: format is {other}, but should be {FORMAT}"),
        None => report!(found, "meta: there is no format"),
    }
    Ok(tables.meta.get("next_seq")?.map_or(0, |seq| seq.value()))
}

fn queues(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<BTreeMap<u32, String>> {
    let (mut queues, mut numbers) = (BTreeMap::new(), HashMap::new());
    tables.lane_keys.for_each(|number, key| {
        let Ok(key) = decode::<LaneKey>(key) else {
            report!(found, "lanes: lane {number} has a record that cannot be read");
            return Ok(());
        };
        queues.insert(number, key.queue.clone());
        if let Some(same) = numbers.insert(key, number) {
            report!(found, "lanes: lanes {same} and {number} have the same queue and needs");
        }
        Ok::<_, Error>(())
    })?;
    Ok(queues)
}

/// Checks that every record can be read, and is stored under its own id.
fn own_ids<T: DeserializeOwned>(
    name: &str,
    table: &Table<'_, &'static str, &'static [u8]>,
    id_of: fn(&T) -> &str,
    found: &mut Inconsistencies,
) -> Result<()> {
    table.for_each(|id, record| {
        own_record(name, id, record, id_of, found);
        Ok(())
    })
}

/// Returns a record if it can be read, and is stored under its own id.
fn own_record<T: DeserializeOwned>(
    name: &str,
    id: &str,
    record: &[u8],
    id_of: fn(&T) -> &str,
    found: &mut Inconsistencies,
) -> Option<T> {
    let Ok(record) = decode::<T>(record) else {
        report!(found, "{name}: {id} has a record that cannot be read");
        return None;
    };
    if id_of(&record) != id {
        report!(found, "{name}: {id} has the record of {}", id_of(&record));
        return None;
    }
    Some(record)
}

/// Checks that every worker has a registration, and every registration a worker.
fn workers(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    own_ids::<Worker>("workers", &tables.workers, |worker| worker.worker_id.as_str(), found)?;
    tables.workers.for_each(|id, _| {
        if tables.registrations.get(id)?.is_none() {
            report!(found, "registrations: {id} has no registration");
        }
        Ok::<_, Error>(())
    })?;
    tables.registrations.for_each(|id, _| {
        if tables.workers.get(id)?.is_none() {
            report!(found, "registrations: {id} has a registration, but there is no such worker");
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
