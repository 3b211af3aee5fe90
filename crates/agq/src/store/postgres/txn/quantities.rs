//! Quantities that claimed jobs use, in a write transaction: only the transaction that has locked
//! the row of a worker gives the worker jobs with quantities.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::Quantities, time::Timestamp};
use agenix_rules::{
    job::{Job, JobState},
    reservation::Placement,
    resources,
};
use sqlx::{Result, Row, query};

use crate::store::{
    Claimant,
    postgres::{
        lane_cache::LaneCache,
        quantities::{USED_BY, used_of},
        sql_types,
        txn::{
            JobWrite, PgTxn,
            candidates::{Barred, ClaimRequest},
        },
    },
};

/// Statement that locks workers. Workers that another transaction has locked are passed over, so
/// that no two transactions wait for each other.
const LOCK: &str = "SELECT worker_id FROM agq.workers WHERE worker_id = ANY ($1) ORDER BY worker_id \
     FOR NO KEY UPDATE SKIP LOCKED";
/// Quantities in use by the workers that a transaction has locked.
#[derive(Debug, Default)]
pub(crate) struct HeldQuantities {
    used: BTreeMap<String, Quantities>,
    /// True if another transaction had locked a worker that could get a job.
    pub(crate) has_passed_over: bool,
}

impl HeldQuantities {
    /// Counts the quantities of a job whose claim begins or ends.
    fn count(&mut self, lanes: &LaneCache, before: Option<&Job>, job: &Job) {
        let (from, to) = (before.and_then(Job::active_holder), job.active_holder());
        if self.used.is_empty() || from == to {
            return;
        }
        let wanted = |job: &Job| lanes.resources_of(sql_types::lane(job.lane));
        // A failure may change what the next attempt wants.
        let was_wanted = before.and_then(wanted);
        if let Some((wanted, used)) = was_wanted.zip(from.and_then(|holder| self.used.get_mut(holder))) {
            resources::subtract(used, wanted);
        }
        if let Some((wanted, used)) = wanted(job).zip(to.and_then(|holder| self.used.get_mut(holder))) {
            resources::add(used, wanted);
        }
    }
}

impl PgTxn<'_> {
    /// Locks the workers that may get a job with quantities of `lanes`, and reads what their jobs
    /// use. Costs nothing if no such lane has quantities.
    pub(crate) fn lock_quantities(
        &mut self,
        all: &[ClaimRequest<'_>],
        barred: &Barred,
        lanes: &[i32],
    ) -> Result<()> {
        let with: Vec<i32> =
            lanes.iter().copied().filter(|lane| self.lanes.resources_of(*lane).is_some()).collect();
        let is_for = |claimant: &Claimant| {
            !barred.contains(&*claimant.holder) && with.iter().any(|lane| self.lanes.is_for(*lane, claimant))
        };
        let claimants = all.iter().map(|wanting| wanting.claimant);
        let unknown = claimants.filter(|claimant| !self.quantities.used.contains_key(&*claimant.holder));
        let unknown: BTreeSet<&str> = unknown.filter(|one| is_for(one)).map(|one| &*one.holder).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<&str> = unknown.into_iter().collect();
        let locked = self.session.rows(query(LOCK).bind(&unknown))?;
        let locked = locked.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>>>()?;
        self.quantities.has_passed_over |= locked.len() < unknown.len();
        let mut used = used_of(&self.session.rows(query(USED_BY).bind(&locked))?)?;
        let used = locked.into_iter().map(|holder| {
            let of_holder = used.remove(&holder).unwrap_or_default();
            (holder, of_holder)
        });
        let mut held = HeldQuantities { used: used.collect(), has_passed_over: false };
        // The query does not see the changes that this transaction has not written yet.
        for JobWrite { before, after } in self.job_writes.values() {
            held.count(self.lanes, before.as_ref(), after);
        }
        self.quantities.used.extend(held.used);
        Ok(())
    }

    /// Returns true if the first job of a lane may start on the worker of a claim, by its
    /// quantities. A claim asks about lanes in the order of their first jobs, and keeps `placement`
    /// meanwhile.
    pub(crate) fn fits_now(
        &mut self,
        placement: &mut Option<Placement>,
        claimant: &Claimant,
        lane: i32,
        now: Timestamp,
    ) -> bool {
        let Some(wanted) = self.lanes.resources_of(lane).cloned() else { return true };
        let Some(used) = self.quantities.used.get(&*claimant.holder) else { return false };
        let offered = || claimant.capabilities.offered().cloned().unwrap_or_default();
        let placement = placement.get_or_insert_with(|| Placement::new(offered(), used.clone()));
        let first = (lane.cast_unsigned(), &wanted);
        self.lanes.reservations.starts(placement, first, &claimant.holder, now)
    }

    /// Counts the quantities of a job whose claim begins or ends. Announces ready jobs if jobs may
    /// fit now that did not fit before.
    pub(crate) fn count_quantities(&mut self, before: Option<&Job>, job: &Job) {
        self.quantities.count(self.lanes, before, job);
        let Some(before) = before.filter(|before| before.state != job.state) else { return };
        let lane = sql_types::lane(job.lane);
        self.arrived.jobs |= match before.state {
            JobState::Active => self.lanes.resources_of(lane).is_some(),
            JobState::Available => self.lanes.reservations.forget(job.lane),
            _ => false,
        };
    }
}
