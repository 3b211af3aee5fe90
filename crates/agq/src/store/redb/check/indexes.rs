//! Compares every entry of an index with the record of the job that it names.

use std::fmt;

use agenix_protocol::time::Timestamp;
use agenix_rules::job::{Job, JobState};
use redb::Error;

use super::{Inconsistencies, RecordTables, Text, end_of};
use crate::store::redb::{
    engine::{Snapshot, Table},
    schema::{codec::decode, index_keys::ready_key, tables::RESULTS},
};

pub(super) fn check(
    read: &Snapshot<'_>,
    tables: &RecordTables<'_>,
    found: &mut Inconsistencies,
) -> Result<(), Error> {
    action_jobs(tables, found)?;
    beside("inputs", &tables.inputs, tables, found)?;
    beside("results", &read.table(&RESULTS), tables, found)?;
    ready(tables, found)?;
    due("waiting", &tables.waiting, tables, found)?;
    due("leases", &tables.leases, tables, found)?;
    held(tables, found)?;
    ended(tables, found)
}

/// Compares an entry with the record of its job. `stands` describes the entry, and `differs`
/// returns what the record says instead.
fn compare(
    tables: &RecordTables<'_>,
    id: &str,
    stands: fmt::Arguments<'_>,
    found: &mut Inconsistencies,
    differs: impl FnOnce(&Job) -> Option<String>,
) -> Result<(), Error> {
    let why = match tables.jobs.get(id)?.map(|record| decode::<Job>(record.value())) {
        None => Some("there is no such job".to_owned()),
        Some(Ok(job)) => differs(&job),
        // The check of the jobs reports unreadable records.
        Some(Err(_)) => None,
    };
    if let Some(why) = why {
        found.report(format_args!("{stands}, but {why}"));
    }
    Ok(())
}

fn state_of(job: &Job) -> String {
    format!("its record says it is {}", job.state.as_str())
}

fn action_jobs(tables: &RecordTables<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    for entry in tables.action_jobs.iter()? {
        let (place, id) = entry?;
        let ((action_id, index), id) = (place.value(), id.value());
        let stands = format_args!("action_jobs: {id} is listed as input {index} of {action_id}");
        compare(tables, id, stands, found, |job| {
            let is_so = job.action_id.as_str() == action_id && job.index == index;
            (!is_so).then(|| format!("its record says input {} of {}", job.index, job.action_id))
        })?;
    }
    Ok(())
}

/// Checks that every row of a table that extends jobs belongs to a job.
fn beside(
    name: &str,
    table: &Table<'_, Text, Text>,
    tables: &RecordTables<'_>,
    found: &mut Inconsistencies,
) -> Result<(), Error> {
    for entry in table.iter()? {
        let (key, _) = entry?;
        let id = key.value();
        if tables.jobs.get(id)?.is_none() {
            found.report(format_args!("{name}: {id} is listed there, but there is no such job"));
        }
    }
    Ok(())
}

fn ready(tables: &RecordTables<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    for entry in tables.ready.iter()? {
        let (place, id) = entry?;
        let (place, id) = (place.value(), id.value());
        let (lane, rank, seq) = place;
        let stands = format_args!("ready: {id} is listed in lane {lane} at rank {rank}, place {seq}");
        compare(tables, id, stands, found, |job| {
            if job.state != JobState::Available {
                return Some(state_of(job));
            }
            let (lane, rank, seq) = ready_key(job);
            let is_so = (lane, rank, seq) == place;
            (!is_so).then(|| format!("its record says lane {lane}, rank {rank}, place {seq}"))
        })?;
    }
    Ok(())
}

/// Checks the two tables of times. Active jobs and available jobs with an expiry are in the leases,
/// all others in the waiting jobs.
fn due(
    name: &str,
    table: &Table<'_, (u64, Text), ()>,
    tables: &RecordTables<'_>,
    found: &mut Inconsistencies,
) -> Result<(), Error> {
    for entry in table.iter()? {
        let (place, _) = entry?;
        let (at, id) = place.value();
        compare(tables, id, format_args!("{name}: {id} is listed at {at}"), found, |job| {
            if matches!(job.state, JobState::Active | JobState::Available) != (name == "leases") {
                return Some(state_of(job));
            }
            match job.due_at {
                Some(Timestamp(due)) => (due != at).then(|| format!("its record says {due}")),
                None => Some("its record says no time".to_owned()),
            }
        })?;
    }
    Ok(())
}

fn held(tables: &RecordTables<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    for entry in tables.held.iter()? {
        let (place, _) = entry?;
        let (holder, id) = place.value();
        compare(tables, id, format_args!("held: {id} is listed under {holder}"), found, |job| {
            if job.is_held_by(holder) {
                return None;
            }
            let other = job.holder.as_ref().filter(|_| job.state == JobState::Active);
            Some(other.map_or_else(|| state_of(job), |other| format!("its record says that {other} has it")))
        })?;
    }
    Ok(())
}

fn ended(tables: &RecordTables<'_>, found: &mut Inconsistencies) -> Result<(), Error> {
    for entry in tables.ended.iter()? {
        let (place, _) = entry?;
        let (status, at, id) = place.value();
        let stands = format_args!("ended: {id} is listed under status {status} at {at}");
        compare(tables, id, stands, found, |job| match end_of(job) {
            None => Some(state_of(job)),
            Some(end) if end == (status, at) => None,
            Some((status, at)) => Some(format!("its record says status {status} at {at}")),
        })?;
    }
    Ok(())
}
