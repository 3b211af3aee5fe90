//! Compares every entry of an index with the record of the job that it names.

use std::fmt;

use agenix_protocol::time::Timestamp;
use agenix_rules::job::{Job, JobState};

use super::Inconsistencies;
use crate::store::redb::{
    engine::Table,
    schema::{Result, decode, ended_key, ready_key},
    txn::tables::Tables,
};

pub(super) fn check(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    action_jobs(tables, found)?;
    beside("inputs", &tables.inputs, tables, found)?;
    beside("results", &tables.results, tables, found)?;
    ready(tables, found)?;
    due("waiting", &tables.waiting, tables, found)?;
    due("leases", &tables.leases, tables, found)?;
    held(tables, found)?;
    ended(tables, found)
}

/// Compares an entry with the record of its job. `stands` describes the entry, and `differs`
/// returns the difference of the record, if there is one.
fn compare(
    tables: &Tables<'_>,
    id: &str,
    stands: fmt::Arguments<'_>,
    found: &mut Inconsistencies,
    differs: impl FnOnce(&Job) -> Option<String>,
) -> Result<()> {
    let why = match tables.jobs.get(id)?.map(|record| decode::<Job>(record.value())) {
        None => Some("there is no such job".to_owned()),
        Some(Ok(job)) => differs(&job),
        // The check of the jobs reports unreadable records.
        Some(Err(_)) => None,
    };
    if let Some(why) = why {
        report!(found, "{stands}, but {why}");
    }
    Ok(())
}

fn state_of(job: &Job) -> String {
    format!("its record says it is {}", job.state.as_str())
}

fn action_jobs(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.action_jobs.for_each(|(action_id, index), id| {
        let stands = format_args!("action_jobs: {id} is listed as input {index} of {action_id}");
        compare(tables, id, stands, found, |job| {
            let is_so = job.action_id.as_str() == action_id && job.index == index;
            (!is_so).then(|| format!("its record says input {} of {}", job.index, job.action_id))
        })
    })
}

/// Checks that every row of a table that extends jobs belongs to a job.
fn beside(
    name: &str,
    table: &Table<'_, &'static str, &'static str>,
    tables: &Tables<'_>,
    found: &mut Inconsistencies,
) -> Result<()> {
    table.for_each(|id, _| {
        if tables.jobs.get(id)?.is_none() {
            report!(found, "{name}: {id} is listed there, but there is no such job");
        }
        Ok(())
    })
}

fn ready(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.ready.for_each(|(lane, rank, seq), id| {
        let stands = format_args!("ready: {id} is listed in lane {lane} at rank {rank}, place {seq}");
        compare(tables, id, stands, found, |job| {
            if job.state != JobState::Available {
                return Some(state_of(job));
            }
            let own = ready_key(job);
            (own != (lane, rank, seq))
                .then(|| format!("its record says lane {}, rank {}, place {}", own.0, own.1, own.2))
        })
    })
}

/// Checks a table of times: active jobs and available ones have leases, the others wait.
fn due(
    name: &str,
    table: &Table<'_, (u64, &'static str), ()>,
    tables: &Tables<'_>,
    found: &mut Inconsistencies,
) -> Result<()> {
    table.for_each(|(at, id), ()| {
        compare(tables, id, format_args!("{name}: {id} is listed at {at}"), found, |job| {
            if matches!(job.state, JobState::Active | JobState::Available) != (name == "leases") {
                return Some(state_of(job));
            }
            match job.due_at {
                Some(Timestamp(due)) => (due != at).then(|| format!("its record says {due}")),
                None => Some("its record says no time".to_owned()),
            }
        })
    })
}

fn held(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.held.for_each(|(holder, id), ()| {
        compare(tables, id, format_args!("held: {id} is listed under {holder}"), found, |job| {
            if job.is_held_by(holder) {
                return None;
            }
            let other = job.holder.as_ref().filter(|_| job.state == JobState::Active);
            Some(other.map_or_else(|| state_of(job), |other| format!("its record says that {other} has it")))
        })
    })
}

fn ended(tables: &Tables<'_>, found: &mut Inconsistencies) -> Result<()> {
    tables.ended.for_each(|(status, at, id), ()| {
        let stands = format_args!("ended: {id} is listed under status {status} at {at}");
        compare(tables, id, stands, found, |job| match ended_key(job) {
            None => Some(state_of(job)),
            Some(end) if end == (status, at) => None,
            Some((status, at)) => Some(format!("its record says status {status} at {at}")),
        })
    })
}
