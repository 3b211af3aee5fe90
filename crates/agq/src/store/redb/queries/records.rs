//! Reads of records in a snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use agenix_protocol::{
    documents::{Quantities, Status},
    glob,
    ids::{ActionId, JobId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    owner::Owner,
    resources,
    worker::Worker,
};
use redb::Error;

use crate::store::{
    DocumentKind, JobFilter, LaneSummary, Retention, StoredJob, Totals, empty_actions,
    redb::{
        engine::{Snapshot, Table},
        schema::{
            ACTION_JOBS, ACTIONS, DOCUMENTS, ENDED, HELD, INPUTS, JOB_COUNTS, JOBS, LANE_LENGTHS, LANES,
            LEASES, LaneKey, READY, RESULTS, Result, TOTALS, WAITING, WORKERS, codec, decode,
        },
    },
};

/// Returns the ids on a page that match its pattern, and whose records `is_meant` accepts.
pub(crate) fn page_of<T, E: ToString>(
    table: &Table<'_, &'static str, &'static [u8]>,
    page: &Page,
    is_meant: impl Fn(&[u8]) -> Result<bool>,
    id: fn(String) -> Result<T, E>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let mut skip = page.offset;
    for entry in table.iter()? {
        let (key, record) = entry?;
        let text = key.value();
        if page.pattern.as_ref().is_some_and(|pattern| !glob::matches(pattern, text.as_bytes())) {
            continue;
        }
        if !is_meant(record.value())? {
            continue;
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        if found.len() == page.limit {
            break;
        }
        found.push(id(text.to_owned()).map_err(|error| Error::Corrupted(error.to_string()))?);
    }
    Ok(found)
}

pub(crate) fn action(read: &Snapshot<'_>, action_id: &ActionId) -> Result<Option<(Action, JobCounts)>> {
    let Some(action) = read.table(&ACTIONS).record(action_id.as_str())? else { return Ok(None) };
    Ok(Some((action, read.table(&JOB_COUNTS).record(action_id.as_str())?.unwrap_or_default())))
}

/// Returns a slice of the jobs of an action. Without `statuses`, the cost depends on the slice
/// alone, because the index has the places of the jobs. With `statuses`, all earlier jobs are read.
pub(crate) fn jobs_of(
    read: &Snapshot<'_>,
    action_id: &ActionId,
    statuses: &[Status],
    slice: Slice,
) -> Result<Vec<JobId>> {
    let (list, jobs, id) = (read.table(&ACTION_JOBS), read.table(&JOBS), action_id.as_str());
    let (first, end, mut skip) = match statuses {
        [] => (slice.offset as u64, slice.offset.saturating_add(slice.limit) as u64, 0),
        _ => (0, u64::MAX, slice.offset),
    };
    let mut found = Vec::new();
    if first >= end {
        return Ok(found);
    }
    for entry in list.range((id, first)..(id, end))? {
        let (_, job_id) = entry?;
        let job_id = job_id.value();
        if !statuses.is_empty() {
            let job = jobs.record::<Job>(job_id)?;
            if !job.is_some_and(|job| statuses.contains(&job.status())) {
                continue;
            }
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        if found.len() == slice.limit {
            break;
        }
        found.push(codec::job_id(job_id)?);
    }
    Ok(found)
}

pub(crate) fn pending_timers(read: &Snapshot<'_>, now: Timestamp, wanted: &JobFilter) -> Result<Vec<Job>> {
    let (jobs, mut found) = (read.table(&JOBS), Vec::new());
    for table in [read.table(&WAITING), read.table(&LEASES)] {
        for entry in table.range((now.0, "")..)? {
            found.extend(jobs.record(entry?.0.value().1)?.filter(|job| wanted(job)));
        }
    }
    Ok(found)
}

/// Returns all jobs, in order of their ids.
#[cfg(feature = "simulation")]
pub(crate) fn jobs(read: &Snapshot<'_>) -> Result<Vec<Job>> {
    read.table(&JOBS).iter()?.map(|entry| decode(entry?.1.value())).collect()
}

pub(crate) fn job(read: &Snapshot<'_>, job_id: &JobId) -> Result<Option<StoredJob>> {
    let id = job_id.as_str();
    let Some(job) = read.table(&JOBS).record::<Job>(id)? else { return Ok(None) };
    let input = read.table(&INPUTS).get(id)?.map_or_else(String::new, |input| input.value().to_owned());
    let results = read.table(&RESULTS).get(id)?.map(|results| results.value().to_owned());
    let lane = read.table(&LANES).record(job.lane)?;
    let LaneKey { queue, needs } = lane.ok_or_else(|| Error::Corrupted(format!("job {id} has no lane")))?;
    Ok(Some(StoredJob { job, queue, needs, input, results }))
}

/// Maximum difference in milliseconds between the order of ids and the order of submission times. A
/// large submission takes a while, and clocks are adjusted.
const MAX_SKEW_MS: u64 = 60_000;

/// Returns the jobs that meet every condition, newest first, because ids are in order of
/// submission: all such jobs, or those of `owner`. If a condition has an index, only the jobs in
/// the index are read, and otherwise every job since `since`.
pub(crate) fn search(read: &Snapshot<'_>, search: &Search, owner: Option<&Owner>) -> Result<Vec<JobId>> {
    let jobs = read.table(&JOBS);
    let is_sought =
        |job: &Job| is_sought(job, search) && owner.is_none_or(|owner| job.owner.as_ref() == Some(owner));
    let mut found = Vec::new();
    if let Some(indexed) = indexed(read, search)? {
        for job_id in indexed.iter().rev() {
            let Some(job) = jobs.record(job_id.as_str())? else { continue };
            if found.len() < search.limit && is_sought(&job) {
                found.push(job.job_id);
            }
        }
        return Ok(found);
    }
    for entry in jobs.range_back::<&str>(..)? {
        let job: Job = decode(entry?.1.value())?;
        let is_older = search.since.is_some_and(|since| job.created_at.plus_ms(MAX_SKEW_MS) < since);
        if is_older || found.len() >= search.limit {
            break;
        }
        if is_sought(&job) {
            found.push(job.job_id);
        }
    }
    Ok(found)
}

/// Returns the jobs in the index of one of the conditions, oldest first, or `None` if no condition
/// has an index. Completed jobs do not count as indexed, because nearly all jobs are completed.
fn indexed(read: &Snapshot<'_>, search: &Search) -> Result<Option<BTreeSet<String>>> {
    let mut found = BTreeSet::new();
    match (&search.action_id, search.status) {
        (Some(action_id), _) => {
            let list = read.table(&ACTION_JOBS);
            for entry in list.range((action_id.as_str(), 0)..=(action_id.as_str(), u64::MAX))? {
                found.insert(entry?.1.value().to_owned());
            }
        }
        (None, Some(Status::Running)) => {
            for entry in read.table(&HELD).iter()? {
                found.insert(entry?.0.value().1.to_owned());
            }
        }
        (None, Some(status @ (Status::Failed | Status::Dead | Status::Cancelled))) => {
            let number = status as u8;
            for entry in read.table(&ENDED).range((number, 0, "")..(number + 1, 0, ""))? {
                found.insert(entry?.0.value().2.to_owned());
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(found))
}

fn is_sought(job: &Job, search: &Search) -> bool {
    search.status.is_none_or(|status| job.status() == status)
        && search.plan_id.as_ref().is_none_or(|plan_id| job.plan_id == *plan_id)
        && search.action_id.as_ref().is_none_or(|action_id| job.action_id == *action_id)
        && search.worker.as_ref().is_none_or(|worker| job.holder.as_ref() == Some(worker))
        && search.since.is_none_or(|since| job.created_at >= since)
        && search.until.is_none_or(|until| job.created_at < until)
}

pub(crate) fn peek(read: &Snapshot<'_>, queue: &str, count: usize) -> Result<Vec<JobId>> {
    let (keys, ready) = (read.table(&LANES), read.table(&READY));
    let mut next = Vec::new();
    for entry in keys.iter()? {
        let (lane, key) = entry?;
        let (lane, key): (u32, LaneKey) = (lane.value(), decode(key.value())?);
        if key.queue != queue {
            continue;
        }
        for entry in ready.range((lane, 0, 0)..=(lane, u8::MAX, u64::MAX))?.take(count) {
            let (place, job_id) = entry?;
            let (_, rank, seq) = place.value();
            next.push((rank, seq, job_id.value().to_owned()));
        }
    }
    next.sort();
    next.into_iter().take(count).map(|(_, _, job_id)| codec::job_id(&job_id)).collect()
}

/// Returns true if retention can remove an ended job. Reads only the first job of each status.
pub(crate) fn is_prunable(read: &Snapshot<'_>, keep: Retention) -> Result<bool> {
    let ended = read.table(&ENDED);
    for status in [Status::Completed, Status::Failed, Status::Cancelled, Status::Dead] {
        let since = if status == Status::Dead { keep.dead_since } else { keep.ended_since };
        let number = status as u8;
        if ended.range((number, 0, "")..(number, since.0, ""))?.next().is_some() {
            return Ok(true);
        }
    }
    let (kind, behind) = (DocumentKind::EmptyAction.as_str(), empty_actions::marks_from(keep.ended_since));
    if read.table(&DOCUMENTS).range((kind, "")..(kind, behind.as_str()))?.next().is_some() {
        return Ok(true);
    }
    Ok(keep.count > 0 && totals(read)?.kept() > keep.count)
}

pub(crate) fn totals(read: &Snapshot<'_>) -> Result<Totals> {
    Ok(read.table(&TOTALS).record("totals")?.unwrap_or_default())
}

pub(crate) fn held_by(read: &Snapshot<'_>, holder: &str) -> Result<Vec<JobId>> {
    let table = read.table(&HELD);
    // The upper bound matters: without it, a holder that has no more jobs would cause a scan over
    // all removed rows behind it.
    let range = table.range((holder, "")..(behind(holder).as_str(), ""))?;
    range.map(|entry| codec::job_id(entry?.0.value().1)).collect()
}

/// Returns the smallest string that sorts after `name`.
pub(crate) fn behind(name: &str) -> String {
    format!("{name}\0")
}

/// Returns all holders, with one lookup each, whatever the number of their jobs.
pub(crate) fn holders(read: &Snapshot<'_>) -> Result<Vec<String>> {
    let table = read.table(&HELD);
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map(|last| behind(last)).unwrap_or_default();
        let Some(entry) = table.range((after.as_str(), "")..)?.next() else { return Ok(found) };
        found.push(entry?.0.value().0.to_owned());
    }
}

/// Returns the quantities that claimed jobs use, by holder: of all holders, or of `holder`.
pub(crate) fn used_resources(
    read: &Snapshot<'_>,
    holder: Option<&str>,
) -> Result<BTreeMap<String, Quantities>> {
    let (held, jobs, lanes) = (read.table(&HELD), read.table(&JOBS), read.table(&LANES));
    let rows = match holder {
        Some(holder) => held.range((holder, "")..(behind(holder).as_str(), ""))?,
        None => held.iter()?,
    };
    let mut wanted: HashMap<u32, Option<Box<Quantities>>> = HashMap::new();
    let mut used: BTreeMap<String, Quantities> = BTreeMap::new();
    for row in rows {
        let (place, _) = row?;
        let (holder, job_id) = place.value();
        let Some(job) = jobs.record::<Job>(job_id)? else { continue };
        let wanted = match wanted.entry(job.lane) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let key: Option<LaneKey> = lanes.record(job.lane)?;
                unknown.insert(key.and_then(|key| key.needs.resources))
            }
        };
        if let Some(wanted) = wanted {
            resources::add(used.entry(holder.to_owned()).or_default(), wanted);
        }
    }
    Ok(used)
}

pub(crate) fn due(read: &Snapshot<'_>, now: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let mut found = Vec::new();
    for table in [&WAITING, &LEASES] {
        let table = read.table(table);
        for entry in table.iter()?.take(limit) {
            let (place, _) = entry?;
            let (due, job_id) = place.value();
            if due > now.0 {
                break;
            }
            found.push((due, codec::job_id(job_id)?));
        }
    }
    found.sort();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, job_id)| job_id).collect())
}

pub(crate) fn lanes(read: &Snapshot<'_>) -> Result<Vec<LaneSummary>> {
    let (keys, lengths) = (read.table(&LANES), read.table(&LANE_LENGTHS));
    let (ready, jobs) = (read.table(&READY), read.table(&JOBS));
    let submitted = |job_id: &str| -> Result<Timestamp> {
        Ok(jobs.record::<Job>(job_id)?.map(|job| job.created_at).unwrap_or_default())
    };
    let mut found = Vec::new();
    for entry in lengths.iter()? {
        let (number, length) = entry?;
        let (number, (length, _)) = (number.value(), length.value());
        if length == 0 {
            continue;
        }
        let (mut span, mut rank): (Option<(Timestamp, Timestamp)>, u8) = (None, 0);
        // Jobs of the same rank are in order of submission.
        while let Some(head) =
            ready.range((number, rank, 0)..=(number, u8::MAX, u64::MAX))?.next().transpose()?
        {
            let at = head.0.value().1;
            let tail = ready.range_back((number, at, 0)..=(number, at, u64::MAX))?.next().transpose()?;
            let first = submitted(head.1.value())?;
            let last = tail.map_or(Ok(first), |(_, job_id)| submitted(job_id.value()))?;
            span = Some(span.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
            rank = at.saturating_add(1);
        }
        let Some(span) = span else { continue };
        let Some(LaneKey { queue, needs }) = keys.record(number)? else { continue };
        found.push(LaneSummary { queue, needs, length, span });
    }
    Ok(found)
}

pub(crate) fn worker_records(read: &Snapshot<'_>) -> Result<Vec<Worker>> {
    read.table(&WORKERS).iter()?.map(|entry| decode(entry?.1.value())).collect()
}

pub(crate) fn workers(read: &Snapshot<'_>) -> Result<Vec<(Worker, u64)>> {
    let with_held = |worker: Worker| {
        let held = held_by(read, worker.worker_id.as_str())?.len() as u64;
        Ok((worker, held))
    };
    worker_records(read)?.into_iter().map(with_held).collect()
}
