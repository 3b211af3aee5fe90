//! Reservation with backfill: a large job is not starved by a stream of small ones.
//!
//! If the next job in the order of a queue does not fit into what a worker has free, the worker
//! reserves its quantities. Jobs behind that job may start on the worker only if they leave the
//! reservation alone, so the quantities of ended jobs accumulate until the large job fits. A worker
//! has one reservation. The first job of a lane gets a reservation on one worker, and on a further
//! worker after each half minute, because a job on the first worker may run for long. Jobs without
//! quantities are not affected.

use std::{collections::HashMap, sync::Arc};

use agenix_protocol::{documents::Quantities, time::Timestamp};

use crate::resources::{add, fits};

/// Time in milliseconds after which a reservation lapses unless its worker claims again, because
/// the worker may be gone. The same time after the latest reservation for a lane, another worker
/// may reserve for the lane, too, because the earlier workers may be busy for long.
pub const RESERVATION_MS: u64 = 30_000;

/// Returns true if `RESERVATION_MS` have passed since `since`. A `since` that is as far in the
/// future is from before the clock was set back, and counts as passed.
fn has_passed(since: Timestamp, now: Timestamp) -> bool {
    now.0.abs_diff(since.0) >= RESERVATION_MS
}

/// Answer for a job that a worker covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Fit {
    /// The job may start.
    Starts,
    /// The job does not fit.
    Waits,
    /// The job would fit, but has to leave a reservation alone.
    HeldBack,
    /// The job does not fit, and is the first such job: the worker may reserve for it.
    MayReserve,
}

/// One claim of a worker, which asks about jobs in the order in which they are to start.
#[derive(Debug, Clone)]
pub struct Placement {
    offered: Quantities,
    used: Quantities,
    /// Used amounts with those of the reservation of this claim.
    taken: Quantities,
    has_reservation: bool,
}

impl Placement {
    /// Begins a claim of a worker that offers `offered`, and whose jobs use `used`.
    pub fn new(offered: Quantities, used: Quantities) -> Self {
        Self { offered, taken: used.clone(), used, has_reservation: false }
    }

    /// Asks about the next job in order, which wants `wanted`.
    fn ask(&self, wanted: &Quantities) -> Fit {
        if fits(&self.offered, &self.taken, wanted) {
            Fit::Starts
        } else if fits(&self.offered, &self.used, wanted) {
            Fit::HeldBack
        } else if self.has_reservation {
            Fit::Waits
        } else {
            Fit::MayReserve
        }
    }

    /// Reserves for the job that wants `wanted`.
    fn reserve(&mut self, wanted: &Quantities) {
        add(&mut self.taken, wanted);
        self.has_reservation = true;
    }
}

/// Reservations of all workers for the first jobs of lanes.
#[derive(Debug, Default)]
pub struct Reservations {
    by_lane: HashMap<u32, Vec<Reservation>>,
    by_holder: HashMap<Arc<str>, u32>,
}

/// Reservation for the first job of a lane.
#[derive(Debug)]
struct Reservation {
    holder: Arc<str>,
    reserved_at: Timestamp,
    /// Time of the last claim of the holder that met the lane.
    renewed_at: Timestamp,
    /// True if the holder did not start a job because of the reservation.
    has_held_back: bool,
}

impl Reservations {
    /// Reserves for a lane, instead of the lane for which `holder` reserved before. Returns false
    /// if another worker has reserved for the lane a short time ago.
    fn reserve(&mut self, lane: u32, holder: &Arc<str>, now: Timestamp) -> bool {
        let of_lane = self.by_lane.entry(lane).or_default();
        if let Some(known) = of_lane.iter_mut().find(|known| known.holder == *holder) {
            known.renewed_at = now;
            return true;
        }
        for lapsed in of_lane.extract_if(.., |known| has_passed(known.renewed_at, now)) {
            self.by_holder.remove(&lapsed.holder);
        }
        if of_lane.iter().any(|known| !has_passed(known.reserved_at, now)) {
            return false;
        }
        of_lane.push(Reservation {
            holder: Arc::clone(holder),
            reserved_at: now,
            renewed_at: now,
            has_held_back: false,
        });
        if let Some(earlier) = self.by_holder.insert(Arc::clone(holder), lane) {
            self.give_up(earlier, holder);
        }
        true
    }

    /// Removes the reservation of `holder` for a lane.
    fn give_up(&mut self, lane: u32, holder: &str) {
        let Some(of_lane) = self.by_lane.get_mut(&lane) else { return };
        of_lane.retain(|known| *known.holder != *holder);
        if of_lane.is_empty() {
            self.by_lane.remove(&lane);
        }
    }

    /// Returns true if the first job of a lane, which wants `wanted`, may start on the worker of a
    /// claim. Otherwise reserves for the job, if the worker may. A claim asks about lanes in the
    /// order of their first jobs.
    pub fn starts(
        &mut self,
        placement: &mut Placement,
        (lane, wanted): (u32, &Quantities),
        holder: &Arc<str>,
        now: Timestamp,
    ) -> bool {
        match placement.ask(wanted) {
            Fit::Starts => return true,
            Fit::Waits => {}
            Fit::HeldBack => self.held_back(holder),
            Fit::MayReserve => {
                if self.reserve(lane, holder, now) {
                    placement.reserve(wanted);
                }
            }
        }
        false
    }

    /// Records that the reservation of `holder` held a job back.
    fn held_back(&mut self, holder: &str) {
        let Some(lane) = self.by_holder.get(holder) else { return };
        let mut of_lane = self.by_lane.get_mut(lane).into_iter().flatten();
        if let Some(reservation) = of_lane.find(|known| *known.holder == *holder) {
            reservation.has_held_back = true;
        }
    }

    /// Removes the reservations for a lane of which a job does not wait any more. Returns true if
    /// one of these reservations held another job back, which may start now.
    pub fn forget(&mut self, lane: u32) -> bool {
        let Some(of_lane) = self.by_lane.remove(&lane) else { return false };
        for reservation in &of_lane {
            self.by_holder.remove(&reservation.holder);
        }
        of_lane.iter().any(|reservation| reservation.has_held_back)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use agenix_protocol::{
        documents::{CPUS, Quantities},
        time::Timestamp,
    };
    use proptest::prelude::*;

    use super::{Fit, Placement, RESERVATION_MS, Reservations};
    use crate::resources::{add, covers, subtract};

    fn cpus(hundredths: u64) -> Quantities {
        let mut one = Quantities::default();
        one.set(CPUS, hundredths);
        one
    }

    #[test]
    fn jobs_behind_a_reservation_start_only_beside_it() {
        let mut claim = Placement::new(cpus(400), cpus(200));
        assert_eq!(claim.ask(&cpus(200)), Fit::Starts);
        assert_eq!(claim.ask(&cpus(300)), Fit::MayReserve);
        claim.reserve(&cpus(300));
        assert_eq!(claim.ask(&cpus(100)), Fit::HeldBack, "it would fit without the reservation");
        assert_eq!(claim.ask(&cpus(350)), Fit::Waits, "a worker has one reservation");
        let mut gpus = Quantities::default();
        gpus.set("gpus", 1);
        let mut offered = cpus(400);
        offered.set("gpus", 1);
        let mut claim = Placement::new(offered, cpus(200));
        claim.reserve(&cpus(300));
        assert_eq!(claim.ask(&gpus), Fit::Starts, "backfill uses what the reserved job does not want");
        assert_eq!(claim.ask(&Quantities::default()), Fit::Starts);
    }

    #[test]
    fn lane_is_reserved_on_one_worker_until_its_reservation_lapses() {
        let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (large, other) = (1, 2);
        let mut all = Reservations::default();
        assert!(all.reserve(large, &first, Timestamp(1)));
        assert!(all.reserve(large, &first, Timestamp(2)));
        assert!(!all.reserve(large, &second, Timestamp(RESERVATION_MS)));
        assert!(all.reserve(other, &second, Timestamp(3)));
        assert!(all.reserve(large, &second, Timestamp(2 + RESERVATION_MS)), "it has lapsed");
        assert!(all.reserve(other, &first, Timestamp(4)), "b has given it up for the large lane");
        assert!(!all.forget(large), "it held no job back");
        assert!(all.reserve(large, &second, Timestamp(5)));
        all.held_back("b");
        assert!(all.reserve(large, &second, Timestamp(6)) && all.forget(large) && !all.forget(large));
    }

    #[test]
    fn lane_is_reserved_on_further_workers_while_the_first_is_busy_for_long() {
        let (first, second, third): (Arc<str>, Arc<str>, Arc<str>) = ("a".into(), "b".into(), "c".into());
        let mut all = Reservations::default();
        for now in (0..RESERVATION_MS).step_by(5000).map(Timestamp) {
            assert!(all.reserve(1, &first, now) && !all.reserve(1, &second, now));
        }
        assert!(all.reserve(1, &second, Timestamp(RESERVATION_MS)), "the first does not free enough");
        assert!(!all.reserve(1, &third, Timestamp(RESERVATION_MS + 1)), "one more worker at a time");
        assert!(all.reserve(1, &first, Timestamp(RESERVATION_MS + 1)), "it keeps what it has free");
        all.held_back("b");
        assert!(all.forget(1), "the reservation of b held a job back");
        assert!(all.reserve(1, &third, Timestamp(RESERVATION_MS + 2)) && !all.forget(1));
    }

    #[test]
    fn reservation_lapses_if_the_clock_is_set_back() {
        let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (ahead, mut all) = (Timestamp(3_600_000), Reservations::default());
        assert!(all.reserve(1, &first, ahead));
        assert!(!all.reserve(1, &second, Timestamp(ahead.0 - 1)), "a claim of a moment before");
        assert!(all.reserve(1, &second, Timestamp(1)));
        assert!(!all.by_holder.contains_key("a"), "its reservation has lapsed");
    }

    #[test]
    fn large_job_does_not_wait_for_the_end_of_a_long_job_on_the_worker_that_reserved_first() {
        let (busy, free): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (large, small) = (cpus(400), cpus(100));
        let (mut all, mut running) = (Reservations::default(), 4);
        for second in 0.. {
            let now = Timestamp(second * 1000);
            let mut claim = Placement::new(cpus(400), cpus(100));
            assert!(!all.starts(&mut claim, (1, &large), &busy, now), "its small job does not end");
            running -= 1;
            let mut claim = Placement::new(cpus(400), cpus(100 * running));
            if all.starts(&mut claim, (1, &large), &free, now) {
                assert_eq!(second * 1000, RESERVATION_MS + 3000, "three more small jobs had to end");
                return;
            }
            running += u64::from(all.starts(&mut claim, (2, &small), &free, now));
        }
    }

    #[test]
    fn claim_starts_reserves_and_holds_back() {
        let (holder, now): (Arc<str>, _) = ("a".into(), Timestamp(1));
        let mut all = Reservations::default();
        let mut claim = Placement::new(cpus(400), cpus(200));
        let mut starts = |lane, wanted| all.starts(&mut claim, (lane, &cpus(wanted)), &holder, now);
        assert!(starts(1, 200));
        assert!(!starts(2, 300), "it does not fit, and is reserved for");
        assert!(!starts(3, 200), "the reservation holds it back");
        assert!(all.forget(2), "the reservation held a job back");
    }

    /// Number of jobs that end before a job that wants `large` starts on a worker with `offered`
    /// processors, while a small job (`small` processors) is always waiting behind the large job.
    fn ends_before_start(
        offered: u64,
        small: u64,
        large: u64,
        order: &mut impl FnMut(usize) -> usize,
    ) -> u64 {
        let (mut running, mut used, mut ends) = (VecDeque::new(), Quantities::default(), 0);
        while covers(&cpus(offered), &cpus(used.get(CPUS) + small)) {
            add(&mut used, &cpus(small));
            running.push_back(small);
        }
        loop {
            let mut claim = Placement::new(cpus(offered), used.clone());
            match claim.ask(&cpus(large)) {
                Fit::Starts => return ends,
                Fit::MayReserve => claim.reserve(&cpus(large)),
                Fit::Waits | Fit::HeldBack => unreachable!("nothing is before the large job"),
            }
            if claim.ask(&cpus(small)) == Fit::Starts {
                add(&mut used, &cpus(small));
                running.push_back(small);
                continue;
            }
            let at = order(running.len());
            let ended = running.remove(at).unwrap();
            subtract(&mut used, &cpus(ended));
            ends += 1;
        }
    }

    proptest! {
        /// The fair wait is the number of small jobs whose ends free what the large job wants.
        #[test]
        fn large_job_waits_at_most_twice_its_fair_wait_beside_a_stream_of_small_ones(
            offered in 100_u64..3200, small in 1_u64..200, part in 1_u64..=100, seed in any::<u64>(),
        ) {
            let large = (offered * part / 100).max(1);
            prop_assume!(small <= offered);
            let mut state = seed;
            let mut order = |count: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                usize::try_from(state >> 33).unwrap() % count
            };
            let fair = large.div_ceil(small);
            let ends = ends_before_start(offered, small, large, &mut order);
            prop_assert!(ends <= 2 * fair, "{ends} ends, fair {fair}");
        }
    }
}
