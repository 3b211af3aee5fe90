//! Reads, each in a transaction of its own that ends with it: a read that is kept open makes the file grow.

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, Tally},
    job::Job,
    rejection::Rejection,
    worker::Worker,
};
use bytes::Bytes;
use redb::{Error, ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::{
    codec::decode,
    lanes::LaneKey,
    records::is_wanted,
    tables::{
        ACTION_JOBS, ACTIONS, BY_SCORE, Entry, HELD, INPUTS, JOBS, KEYS, LANE_LENGTHS, LANES, LEASES, PLANS,
        READY, RESULTS, TALLIES, WAITING, WORKERS, ordered,
    },
};
use crate::store::{Lane, Ruled, StoredJob, StoredPlan};

fn corrupted(error: &impl ToString) -> Error {
    Error::Corrupted(error.to_string())
}

pub(super) fn plan(read: &ReadTransaction, plan_id: &PlanId) -> Result<Option<StoredPlan>, Error> {
    read.open_table(PLANS)?.get(plan_id.as_str())?.map(|record| decode(record.value())).transpose()
}

pub(super) fn plans(read: &ReadTransaction) -> Result<Vec<PlanId>, Error> {
    let table = read.open_table(PLANS)?;
    table.iter()?.map(|entry| PlanId::new(entry?.0.value()).map_err(|error| corrupted(&error))).collect()
}

pub(super) fn action(read: &ReadTransaction, action_id: &ActionId) -> Result<Option<(Action, Tally)>, Error> {
    let Some(action) = read.open_table(ACTIONS)?.get(action_id.as_str())? else { return Ok(None) };
    let tally = read.open_table(TALLIES)?.get(action_id.as_str())?.map(|record| decode(record.value()));
    Ok(Some((decode(action.value())?, tally.transpose()?.unwrap_or_default())))
}

pub(super) fn jobs_of(
    read: &ReadTransaction,
    action_id: &ActionId,
    status: Option<Status>,
) -> Result<Vec<JobId>, Error> {
    let (list, jobs) = (read.open_table(ACTION_JOBS)?, read.open_table(JOBS)?);
    let mut found = Vec::new();
    for entry in list.range((action_id.as_str(), 0)..=(action_id.as_str(), u64::MAX))? {
        let (_, job_id) = entry?;
        let job_id = job_id.value();
        let wanted = status.is_none()
            || jobs
                .get(job_id)?
                .map(|record| decode(record.value()))
                .transpose()?
                .is_some_and(|j| is_wanted(&j, status));
        if wanted {
            found.push(JobId::new(job_id).map_err(|error| corrupted(&error))?);
        }
    }
    Ok(found)
}

pub(super) fn job(read: &ReadTransaction, job_id: &JobId) -> Result<Option<StoredJob>, Error> {
    let id = job_id.as_str();
    let Some(job) = read.open_table(JOBS)?.get(id)? else { return Ok(None) };
    let input = read.open_table(INPUTS)?.get(id)?.map_or_else(String::new, |input| input.value().to_owned());
    let results = read.open_table(RESULTS)?.get(id)?.map(|results| results.value().to_owned());
    Ok(Some(StoredJob { job: decode(job.value())?, input, results }))
}

pub(super) fn held_by(read: &ReadTransaction, holder: &str) -> Result<Vec<JobId>, Error> {
    let table = read.open_table(HELD)?;
    let mut found = Vec::new();
    for entry in table.range((holder, "")..)? {
        let (place, _) = entry?;
        let (of, job_id) = place.value();
        if of != holder {
            break;
        }
        found.push(JobId::new(job_id).map_err(|error| corrupted(&error))?);
    }
    Ok(found)
}

/// Jumps from holder to holder: the cost is theirs, not that of their jobs.
pub(super) fn holders(read: &ReadTransaction) -> Result<Vec<String>, Error> {
    let table = read.open_table(HELD)?;
    let mut found: Vec<String> = Vec::new();
    loop {
        // No name sorts between a name and itself with a NUL.
        let after = found.last().map(|last| format!("{last}\0")).unwrap_or_default();
        let Some(entry) = table.range((after.as_str(), "")..)?.next() else { return Ok(found) };
        found.push(entry?.0.value().0.to_owned());
    }
}

pub(super) fn due(read: &ReadTransaction, now: Timestamp, limit: usize) -> Result<Vec<JobId>, Error> {
    let mut found = Vec::new();
    for table in [WAITING, LEASES] {
        let table = read.open_table(table)?;
        for entry in table.iter()?.take(limit) {
            let (place, _) = entry?;
            let (due, job_id) = place.value();
            if due > now.0 {
                break;
            }
            found.push((due, JobId::new(job_id).map_err(|error| corrupted(&error))?));
        }
    }
    found.sort();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, job_id)| job_id).collect())
}

pub(super) fn scheduled(read: &ReadTransaction) -> Result<(u64, Option<Timestamp>), Error> {
    let table = read.open_table(WAITING)?;
    let first = table.first()?.map(|(place, _)| Timestamp(place.value().0));
    Ok((table.len()?, first))
}

pub(super) fn lanes(read: &ReadTransaction) -> Result<Vec<Lane>, Error> {
    let (keys, lengths) = (read.open_table(LANES)?, read.open_table(LANE_LENGTHS)?);
    let (ready, jobs) = (read.open_table(READY)?, read.open_table(JOBS)?);
    let submitted = |job_id: &str| -> Result<Timestamp, Error> {
        let job = jobs.get(job_id)?.map(|record| decode::<Job>(record.value())).transpose()?;
        Ok(job.map(|job| job.created_at).unwrap_or_default())
    };
    let mut found = Vec::new();
    for entry in lengths.iter()? {
        let (number, length) = entry?;
        let number = number.value();
        let mut waiting = ready.range((number, 0)..=(number, u64::MAX))?;
        let Some(first) = waiting.next().transpose()? else { continue };
        let last = waiting.next_back().transpose()?;
        let first = submitted(first.1.value())?;
        let last = last.map_or(Ok(first), |(_, job_id)| submitted(job_id.value()))?;
        let Some(key) = keys.get(number)? else { continue };
        let LaneKey { queue, needs } = decode(key.value())?;
        found.push(Lane { queue, needs, length: length.value(), span: Some((first, last)) });
    }
    Ok(found)
}

pub(super) fn worker(read: &ReadTransaction, worker_id: &WorkerId) -> Result<Option<Worker>, Error> {
    read.open_table(WORKERS)?.get(worker_id.as_str())?.map(|record| decode(record.value())).transpose()
}

pub(super) fn workers(read: &ReadTransaction) -> Result<Vec<(Worker, u64)>, Error> {
    let table = read.open_table(WORKERS)?;
    let mut found = Vec::new();
    for entry in table.iter()? {
        let worker: Worker = decode(entry?.1.value())?;
        let held = held_by(read, worker.worker_id.as_str())?.len() as u64;
        found.push((worker, held));
    }
    Ok(found)
}

pub(super) fn get(read: &ReadTransaction, key: &[u8]) -> Result<Ruled<Option<Bytes>>, Error> {
    Ok(match read.open_table(KEYS)?.get(key)?.map(|entry| entry.value()) {
        None => Ok(None),
        Some(Entry::Text(text)) => Ok(Some(text.into())),
        Some(_) => Err(Rejection::WrongType),
    })
}

pub(super) fn exists(read: &ReadTransaction, keys: &[Bytes]) -> Result<usize, Error> {
    let table = read.open_table(KEYS)?;
    keys.iter().try_fold(0, |count, key| Ok(count + usize::from(table.get(&key[..])?.is_some())))
}

pub(super) fn list_length(read: &ReadTransaction, key: &[u8]) -> Result<Ruled<usize>, Error> {
    Ok(match read.open_table(KEYS)?.get(key)?.map(|entry| entry.value()) {
        None => Ok(0),
        Some(Entry::List { head, tail }) => Ok(usize::try_from(tail - head).unwrap_or_default()),
        Some(_) => Err(Rejection::WrongType),
    })
}

pub(super) fn range_by_score(
    read: &ReadTransaction,
    key: &[u8],
    min: f64,
    max: f64,
) -> Result<Ruled<Vec<Bytes>>, Error> {
    match read.open_table(KEYS)?.get(key)?.map(|entry| entry.value()) {
        None => return Ok(Ok(Vec::new())),
        Some(Entry::Sorted { .. }) => {}
        Some(_) => return Ok(Err(Rejection::WrongType)),
    }
    let table = read.open_table(BY_SCORE)?;
    let mut found = Vec::new();
    for entry in table.range((key, ordered(min), &[][..])..)? {
        let (place, _) = entry?;
        let (of, score, member) = place.value();
        if of != key || score > ordered(max) {
            break;
        }
        found.push(Bytes::copy_from_slice(member));
    }
    Ok(Ok(found))
}
