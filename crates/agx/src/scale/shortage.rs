//! Jobs that wait because no worker has room for them, and the number of new workers for them.

use agenix_protocol::documents::{Demand, Quantities, WorkerStatus, sandbox_tag};
use agenix_rules::{
    capability::{ClaimantCapabilities, Needs},
    resources::{add_times, fits, subtract},
};

use super::view::View;

/// Jobs that lack workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WorkerShortage {
    /// Number of jobs that a new worker could run.
    pub(crate) jobs: u64,
    /// Number of new workers that would run these jobs all at once, at most the bound.
    pub(crate) workers: u64,
}

/// Returns the shortage that new workers would end, at most `max` of them. Each new worker offers
/// what `model` offers. Without a model, one new worker has to show what new workers offer.
///
/// A job does not lack a worker if a worker that could run the job has room: a limit, a rate or a
/// budget then holds the job back.
pub(crate) fn shortage(view: &View, model: Option<&WorkerStatus>, max: u64) -> WorkerShortage {
    let lacks_room = |demand: &&Demand| !view.active().any(|worker| has_room(worker, demand));
    let short = view.waiting.iter().filter(lacks_room);
    let Some(model) = model else {
        let jobs = short.map(|demand| demand.length).sum();
        return WorkerShortage { jobs, workers: u64::from(jobs > 0).min(max) };
    };
    let fresh = Room::of_new(model);
    let (mut rooms, mut jobs): (Vec<Room>, u64) = (Vec::new(), 0);
    for demand in short.filter(|demand| could_run(model, demand) && fresh.count(demand) > 0) {
        jobs += demand.length;
        let mut rest = demand.length;
        for room in &mut rooms {
            rest -= room.take(demand, rest);
        }
        while rest > 0 && (rooms.len() as u64) < max {
            let mut room = fresh.clone();
            rest -= room.take(demand, rest);
            rooms.push(room);
        }
    }
    WorkerShortage { jobs, workers: rooms.len() as u64 }
}

/// Returns true if jobs wait for which no other active worker than `worker` has room.
pub(crate) fn has_only_room(worker: &WorkerStatus, view: &View) -> bool {
    let others = || view.active().filter(|other| other.worker_id != worker.worker_id);
    let needs_it =
        |demand: &Demand| has_room(worker, demand) && !others().any(|other| has_room(other, demand));
    view.waiting.iter().any(needs_it)
}

/// Free slots and quantities of a worker.
#[derive(Debug, Clone)]
struct Room {
    slots: u64,
    free: Quantities,
}

impl Room {
    /// Returns the room of a worker like `model` without jobs.
    fn of_new(model: &WorkerStatus) -> Self {
        Self { slots: u64::from(model.max_concurrent_jobs), free: model.resources.clone() }
    }

    /// Returns the number of jobs with these needs that fit.
    fn count(&self, demand: &Demand) -> u64 {
        let of = |(name, amount): (&str, u64)| self.free.get(name).checked_div(amount);
        demand.resources.iter().filter_map(of).fold(self.slots, u64::min)
    }

    /// Takes the room of at most `most` jobs, and returns their number.
    fn take(&mut self, demand: &Demand, most: u64) -> u64 {
        let count = self.count(demand).min(most);
        self.slots -= count;
        let mut taken = Quantities::default();
        add_times(&mut taken, &demand.resources, count);
        subtract(&mut self.free, &taken);
        count
    }
}

fn has_room(worker: &WorkerStatus, demand: &Demand) -> bool {
    worker.active_jobs < u64::from(worker.max_concurrent_jobs)
        && fits(&worker.resources, &worker.used_resources, &demand.resources)
        && could_run(worker, demand)
}

fn could_run(worker: &WorkerStatus, demand: &Demand) -> bool {
    let profile = demand.sandbox.iter().map(|profile| sandbox_tag(profile));
    let resources = (!demand.resources.is_empty()).then(|| Box::new(demand.resources.clone()));
    let needs = Needs {
        tools: demand.tools.clone(),
        tags: demand.tags.iter().cloned().chain(profile).collect(),
        labels: demand.labels.clone(),
        resources,
        ..Needs::default()
    };
    ClaimantCapabilities::of_status(worker).cover(&needs)
}
