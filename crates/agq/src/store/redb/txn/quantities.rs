//! Quantities that claimed jobs use, by holder, and the reservations of workers, cached in the
//! writer's memory.

use std::collections::HashMap;

use agenix_protocol::{documents::Quantities, time::Timestamp};
use agenix_rules::{
    job::{Job, JobState},
    reservation::{Placement, Reservations},
    resources,
};

use crate::store::{
    Claimant,
    redb::{engine::Snapshot, queries::records, schema::Result, txn::WriteTxn},
};

/// Quantities in use and reservations. Reservations are not stored, because the next claims make
/// them again.
#[derive(Debug, Default)]
pub(crate) struct CachedQuantities {
    used: HashMap<String, Quantities>,
    reservations: Reservations,
}

impl CachedQuantities {
    pub(crate) fn load(snapshot: &Snapshot<'_>) -> Result<Self> {
        let used = records::used_resources(snapshot, None)?.into_iter().collect();
        Ok(Self { used, reservations: Reservations::default() })
    }

    fn placement(&self, claimant: &Claimant) -> Placement {
        let offered = claimant.capabilities.offered().cloned().unwrap_or_default();
        Placement::new(offered, self.used.get(&*claimant.holder).cloned().unwrap_or_default())
    }

    fn begin(&mut self, holder: &str, wanted: &Quantities) {
        resources::add(self.used.entry(holder.to_owned()).or_default(), wanted);
    }

    fn end(&mut self, holder: &str, wanted: &Quantities) {
        let Some(used) = self.used.get_mut(holder) else { return };
        resources::subtract(used, wanted);
        if used.is_empty() {
            self.used.remove(holder);
        }
    }

    /// Returns true if the claimant may start a job that wants `wanted`, the first of its lane.
    fn starts(
        &mut self,
        placement: &mut Option<Placement>,
        (lane, wanted): (u32, &Quantities),
        claimant: &Claimant,
        now: Timestamp,
    ) -> bool {
        let placement = placement.get_or_insert_with(|| self.placement(claimant));
        self.reservations.starts(placement, (lane, wanted), &claimant.holder, now)
    }
}

impl WriteTxn<'_> {
    /// Returns true if the first job of a lane may start on the worker of a claim, by its
    /// quantities. A claim asks about lanes in the order of their first jobs, and keeps `placement`
    /// meanwhile.
    pub(crate) fn fits_now(
        &mut self,
        placement: &mut Option<Placement>,
        claimant: &Claimant,
        lane: u32,
        now: Timestamp,
    ) -> Result<bool> {
        if self.is_first_halted(lane)? {
            // The claim cancels the job, so there must be no reservation for it.
            return Ok(true);
        }
        let cache = &mut *self.cache;
        let (lanes, quantities) = (&cache.lanes, &mut cache.quantities);
        let wanted = lanes.needs_of(lane).and_then(|needs| needs.resources.as_deref());
        Ok(wanted.is_none_or(|wanted| quantities.starts(placement, (lane, wanted), claimant, now)))
    }

    /// Returns true if the action of the first job of a lane with quantities is halted.
    fn is_first_halted(&self, lane: u32) -> Result<bool> {
        let uses_any = self.cache.lanes.needs_of(lane).is_some_and(|needs| needs.resources.is_some());
        if self.cache.halted.is_empty() || !uses_any {
            return Ok(false);
        }
        let first = self.cache.lanes.first(lane).map(|(_, job_id)| self.job(job_id)).transpose()?.flatten();
        Ok(first.is_some_and(|job| self.cache.halted.contains(job.action_id.as_str())))
    }

    /// Counts the quantities of a job whose claim begins or ends. Announces ready jobs if jobs may
    /// fit now that did not fit before.
    pub(crate) fn count_quantities(&mut self, before: Option<&Job>, job: &Job) {
        let cache = &mut *self.cache;
        let (lanes, quantities) = (&cache.lanes, &mut cache.quantities);
        let wanted = |job: &Job| lanes.needs_of(job.lane).and_then(|needs| needs.resources.as_deref());
        let Some(now_wanted) = wanted(job) else { return };
        let (from, to) = (before.and_then(Job::active_holder), job.active_holder());
        if from != to {
            // A failure may change what the next attempt wants.
            let was_wanted = before.and_then(wanted).unwrap_or(now_wanted);
            from.into_iter().for_each(|holder| quantities.end(holder, was_wanted));
            to.into_iter().for_each(|holder| quantities.begin(holder, now_wanted));
            self.arrived.jobs |= from.is_some();
        }
        let was_ready = before.is_some_and(|before| before.state == JobState::Available);
        if was_ready && job.state != JobState::Available {
            self.arrived.jobs |= quantities.reservations.forget(job.lane);
        }
    }
}
