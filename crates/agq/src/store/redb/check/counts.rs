//! Compares stored counts with the jobs: counts of actions, plans, lanes and queues, and the
//! totals.

use std::collections::BTreeMap;

use agenix_protocol::documents::Status;
use agenix_rules::{
    action::{Action, JobCounts},
    job::{Job, JobState},
};
use redb::Error;

use super::{Inconsistencies, budgets::CountedRuns, limits::CountedStarts, own_record};
use crate::store::{
    QueueCounts, Totals,
    redb::{
        schema::{Result, decode},
        txn::tables::Tables,
    },
};

const STATUSES: [Status; 6] =
    [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Dead, Status::Cancelled];

/// Counts of the stored jobs.
#[derive(Default)]
pub(super) struct CountedJobs {
    /// All jobs, by status.
    all: [u64; 6],
    actions: BTreeMap<String, JobCounts>,
    /// Jobs that have not ended, by plan.
    loads: BTreeMap<String, u64>,
    /// Available jobs and all jobs, by lane.
    lanes: BTreeMap<u32, (u64, u64)>,
    /// All jobs, by lane and state.
    states: BTreeMap<u32, [u64; 8]>,
    budgets: CountedRuns,
    limits: CountedStarts,
}

impl CountedJobs {
    pub(super) fn add(&mut self, job: Job) {
        self.budgets.add(&job);
        self.limits.add(&job);
        let status = job.status() as usize;
        self.all[status] += 1;
        self.states.entry(job.lane).or_default()[job.state as usize] += 1;
        let (ready, all) = self.lanes.entry(job.lane).or_default();
        *ready += u64::from(job.state == JobState::Available);
        *all += 1;
        let (has_ended, ended_at) = (job.is_ended(), job.ended_at);
        if !has_ended {
            *self.loads.entry(job.plan_id.into()).or_default() += 1;
        }
        let counts = self.actions.entry(job.action_id.into()).or_default();
        counts.jobs[status] += 1;
        counts.last_ended_at = counts.last_ended_at.max(ended_at.filter(|_| has_ended));
    }
}

pub(super) fn check(
    tables: &Tables<'_>,
    queues: &BTreeMap<u32, String>,
    counted: CountedJobs,
    found: &mut Inconsistencies,
) -> Result<()> {
    actions(tables, &counted.actions, found)?;
    loads(tables, counted.loads, found)?;
    lengths(tables, queues, &counted.lanes, found)?;
    by_queue(tables, queues, &counted.states, found)?;
    counted.budgets.check(tables, found)?;
    counted.limits.check(tables, found)?;
    totals(tables, &counted.all, found)
}

fn actions(
    tables: &Tables<'_>,
    counted: &BTreeMap<String, JobCounts>,
    found: &mut Inconsistencies,
) -> Result<()> {
    tables.actions.for_each(|id, record| {
        let id_of: fn(&Action) -> &str = |action| action.action_id.as_str();
        let Some(action) = own_record("actions", id, record, id_of, found) else { return Ok(()) };
        let jobs = counted.get(id);
        if jobs.is_none() && action.total_jobs > 0 && !action.is_open {
            let total = action.total_jobs;
            report!(found, "actions: {id} is closed, but none of its {total} jobs is left");
        }
        match tables.job_counts.get(id)?.map(|record| decode::<JobCounts>(record.value())) {
            None => report!(found, "tallies: {id} has no counts"),
            Some(Err(_)) => report!(found, "tallies: {id} has a record that cannot be read"),
            Some(Ok(counts)) => compare(&action, &counts, &jobs.copied().unwrap_or_default(), found),
        }
        Ok::<_, Error>(())
    })?;
    tables.job_counts.for_each(|id, _| {
        if tables.actions.get(id)?.is_none() {
            report!(found, "tallies: {id} has counts, but there is no such action");
        }
        Ok(())
    })
}

/// The counts of an action still include ended jobs that retention has removed.
fn compare(action: &Action, counts: &JobCounts, jobs: &JobCounts, found: &mut Inconsistencies) {
    let (id, total) = (&action.action_id, action.total_jobs);
    let sum = counts.jobs.iter().copied().fold(0, u64::saturating_add);
    if sum != total {
        report!(found, "tallies: {id} counts {sum} jobs, but should count {total}");
    }
    for status in STATUSES {
        let (recorded, are, word) =
            (counts.jobs[status as usize], jobs.jobs[status as usize], status.as_str());
        if recorded < are {
            report!(found, "tallies: {id} counts {recorded} {word} jobs, but should count {are} at least");
        } else if recorded > are && !status.is_ended() {
            report!(found, "tallies: {id} counts {recorded} {word} jobs, but should count {are}");
        }
    }
    if counts.last_ended_at < jobs.last_ended_at {
        let [recorded, last] = [counts, jobs].map(|counts| counts.last_ended_at.unwrap_or_default().0);
        report!(found, "tallies: {id} has {recorded} as the end of its last job, but one ended at {last}");
    }
}

fn loads(tables: &Tables<'_>, mut counted: BTreeMap<String, u64>, found: &mut Inconsistencies) -> Result<()> {
    let mut report = |id: &str, recorded: u64, are: u64| {
        report!(found, "plan_loads: {id} counts {recorded} jobs that have not ended, but should count {are}");
    };
    tables.plan_loads.for_each(|id, recorded| {
        let are = counted.remove(id).unwrap_or_default();
        if recorded != are {
            report(id, recorded, are);
        }
        Ok::<_, Error>(())
    })?;
    for (id, are) in counted {
        report(&id, 0, are);
    }
    Ok(())
}

/// A lane is stored as long as it has jobs.
fn lengths(
    tables: &Tables<'_>,
    queues: &BTreeMap<u32, String>,
    counted: &BTreeMap<u32, (u64, u64)>,
    found: &mut Inconsistencies,
) -> Result<()> {
    for lane in queues.keys() {
        let (ready, all) = counted.get(lane).copied().unwrap_or_default();
        if all == 0 {
            report!(found, "lanes: lane {lane} has no jobs");
        }
        match tables.lane_lengths.get(*lane)?.map(|length| length.value()) {
            None => report!(found, "lane_lengths: lane {lane} has no length"),
            Some(recorded) if recorded != (ready, all) => report!(
                found,
                "lane_lengths: lane {lane} counts {} ready jobs of {}, but should count {ready} of {all}",
                recorded.0,
                recorded.1
            ),
            Some(_) => {}
        }
    }
    tables.lane_lengths.for_each(|lane, _| {
        if !queues.contains_key(&lane) {
            report!(found, "lane_lengths: lane {lane} has a length, but there is no such lane");
        }
        Ok(())
    })
}

fn by_queue(
    tables: &Tables<'_>,
    queues: &BTreeMap<u32, String>,
    counted: &BTreeMap<u32, [u64; 8]>,
    found: &mut Inconsistencies,
) -> Result<()> {
    let mut are = QueueCounts::new();
    for (lane, counts) in counted {
        let Some(queue) = queues.get(lane) else { continue };
        let sum = are.entry(queue.clone()).or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    tables.queue_counts.for_each(|queue, recorded| {
        let are = are.remove(queue).unwrap_or_default();
        match decode::<[u64; 8]>(recorded) {
            Err(_) => report!(found, "queue_counts: {queue} has a record that cannot be read"),
            Ok(recorded) if recorded != are => {
                report!(
                    found,
                    "queue_counts: {queue} counts {recorded:?} by state, but should count {are:?}"
                );
            }
            Ok(_) => {}
        }
        Ok::<_, Error>(())
    })?;
    for (queue, are) in are {
        report!(found, "queue_counts: {queue} is not counted, but should count {are:?} by state");
    }
    Ok(())
}

fn totals(tables: &Tables<'_>, counted: &[u64; 6], found: &mut Inconsistencies) -> Result<()> {
    let record = tables.totals.get("totals")?;
    let Ok(totals) = record.map_or(Ok(Totals::default()), |record| decode(record.value())) else {
        report!(found, "totals: the record cannot be read");
        return Ok(());
    };
    for status in STATUSES {
        let (at, word) = (status as usize, status.as_str());
        let (now, ever, are) = (totals.now[at], totals.ever[at], counted[at]);
        if now != are {
            report!(found, "totals: now counts {now} {word} jobs, but should count {are}");
        }
        // Every job was pending once.
        let least = if status == Status::Pending { counted.iter().sum() } else { are };
        if ever < least {
            report!(found, "totals: ever counts {ever} {word} jobs, but should count {least} at least");
        }
    }
    Ok(())
}
