//! Slots of the worker, and the claimed jobs that wait for a slot (ADR 8) or for the resources that
//! they want. No I/O, no clock: the caller starts the jobs, and time is an argument.

use std::{collections::VecDeque, time::Duration};

use agenix_protocol::{
    documents::JobDocument,
    ids::{ActionId, JobId},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    exec::job_resources::JobResources,
    jobs::{
        ledger::{Allocation, ResourceLedger},
        prefetch::PrefetchPolicy,
    },
};

/// A claimed job with its permit of the job pool.
pub(crate) struct Claimed {
    pub(crate) job: JobDocument,
    pub(crate) permit: OwnedSemaphorePermit,
}

struct PrefetchedJob {
    claimed: Claimed,
    since: Instant,
}

/// A claimed job with the slot and the resources in which it starts.
pub(crate) struct StartableJob {
    pub(crate) slot: u32,
    pub(crate) claimed: Claimed,
    /// Resources of the job until [`Slots::release_resources`]. `None` for a job that wants no
    /// quantities.
    pub(crate) allocation: Option<Allocation>,
}

/// Free slots and waiting jobs. While a slot is free, only jobs wait whose resources are not free.
pub(crate) struct Slots {
    /// Numbers of the free slots.
    free: Vec<u32>,
    /// Waiting jobs, oldest first.
    waiting: VecDeque<PrefetchedJob>,
    count: usize,
    /// Maximum number of prefetched jobs per slot.
    most_ahead: u32,
    prefetch_policy: PrefetchPolicy,
    ledger: ResourceLedger,
}

impl Slots {
    /// Creates `count` free slots, with at most `most_ahead` prefetched jobs per slot, and with the
    /// resources of `ledger`.
    pub(crate) fn new(count: u32, most_ahead: u32, ledger: ResourceLedger) -> Self {
        Self {
            free: (0..count).rev().collect(),
            waiting: VecDeque::new(),
            count: count as usize,
            most_ahead,
            prefetch_policy: PrefetchPolicy::default(),
            ledger,
        }
    }

    /// Returns the number of jobs that may be claimed now. While all slots are occupied, the result
    /// is 0 until half of the prefetched jobs have started, because claims in groups cost less.
    pub(crate) fn capacity(&self) -> usize {
        let most_waiting = self.count * self.prefetch_policy.ahead(self.most_ahead) as usize;
        if self.free.is_empty() && self.waiting.len() > most_waiting / 2 {
            return 0;
        }
        (self.free.len() + most_waiting).saturating_sub(self.waiting.len())
    }

    /// Assigns a claimed job to a free slot, and returns both. Without a free slot, or without the
    /// resources that it wants, the job waits.
    pub(crate) fn assign(&mut self, claimed: Claimed, now: Instant) -> Option<StartableJob> {
        // An earlier claim is void, because agq took the job back before it gave the job again.
        self.waiting.retain(|other| other.claimed.job.job_id != claimed.job.job_id);
        self.waiting.push_back(PrefetchedJob { claimed, since: now });
        // No earlier job can start, because none has become startable since the last call.
        self.next()
    }

    /// Frees a slot whose job ran for `took`. Returns the oldest waiting job that can start.
    pub(crate) fn release(&mut self, slot: u32, took: Option<Duration>) -> Option<StartableJob> {
        if let Some(took) = took {
            self.prefetch_policy.job_ended(took);
        }
        self.free.push(slot);
        self.next()
    }

    /// Takes back the resources of a job whose processes have ended. Several jobs may be able to
    /// start then: call [`Self::next`] until no job can start.
    pub(crate) fn release_resources(&mut self, allocation: &Allocation) {
        self.ledger.release(allocation);
    }

    /// Returns the oldest waiting job that can start. Among the jobs that want resources, none
    /// starts before an older one, so that a job that wants many resources is not starved.
    pub(crate) fn next(&mut self) -> Option<StartableJob> {
        let slot = *self.free.last()?;
        let mut is_blocked = false;
        let at = self.waiting.iter().position(|waiting| {
            let wanted = &waiting.claimed.job.resources;
            if wanted.is_empty() {
                return true;
            }
            // A job that never fits fails at its start.
            let can_wait = self.ledger.never_fits(wanted).is_none();
            is_blocked = is_blocked || can_wait && !self.ledger.has_free(wanted);
            !is_blocked
        })?;
        let claimed = self.waiting.remove(at)?.claimed;
        self.free.pop();
        let wanted = &claimed.job.resources;
        let allocation = if wanted.is_empty() { None } else { self.ledger.allocate(wanted) };
        Some(StartableJob { slot, claimed, allocation })
    }

    /// Returns the resources of `job`, which has `allocation`, or `None` if it wants none.
    pub(crate) fn job_resources(
        &self,
        job: &JobDocument,
        allocation: Option<&Allocation>,
    ) -> Option<JobResources> {
        match allocation {
            Some(allocation) => Some(self.ledger.job_resources(allocation)),
            None => self.ledger.never_fits(&job.resources).map(JobResources::missing),
        }
    }

    /// Returns the time since which the oldest waiting job waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.since)
    }

    /// Returns the job ids and attempts of the waiting claims.
    pub(crate) fn waiting(&self) -> Vec<(JobId, u32)> {
        let claims = self.waiting.iter().map(|waiting| &waiting.claimed.job);
        claims.map(|job| (job.job_id.clone(), job.attempt)).collect()
    }

    /// Removes a waiting claim that is no longer valid.
    pub(crate) fn dismiss(&mut self, job_id: &JobId, attempt: u32) {
        let is_it = |job: &JobDocument| job.job_id == *job_id && job.attempt == attempt;
        self.waiting.retain(|waiting| !is_it(&waiting.claimed.job));
    }

    /// Removes the waiting claims of the action, and returns their job ids and attempts.
    pub(crate) fn withdraw(&mut self, action_id: &ActionId) -> Vec<(JobId, u32)> {
        let is_of = |waiting: &PrefetchedJob| waiting.claimed.job.action_id == *action_id;
        let waiting = std::mem::take(&mut self.waiting);
        let (withdrawn, kept): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_of);
        self.waiting = kept.into();
        withdrawn.into_iter().map(|entry| (entry.claimed.job.job_id, entry.claimed.job.attempt)).collect()
    }

    /// Removes all waiting claims, and returns their number.
    pub(crate) fn dismiss_all(&mut self) -> usize {
        let count = self.waiting.len();
        self.waiting.clear();
        count
    }

    pub(crate) fn stalled(&mut self) {
        self.prefetch_policy.stalled();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use agenix_protocol::documents::{CPUS, HUNDREDTHS, Quantities, parse};
    use tokio::{sync::Semaphore, time::Instant};

    use super::{Allocation, Claimed, ResourceLedger, Slots, StartableJob};
    use crate::resources::Offer;

    const SHORT: Option<Duration> = Some(Duration::from_millis(1));
    const LONG: Option<Duration> = Some(Duration::from_secs(100));

    fn claimed(permits: &Arc<Semaphore>, job: &str, attempt: u32) -> Claimed {
        let json = format!(
            r#"{{"job_id":"{job}","action_id":"a","plan_id":"p","plan":{{}},"inputs":{{}},"attempt":{attempt}}}"#
        );
        let permit = Arc::clone(permits).try_acquire_owned().unwrap();
        Claimed { job: parse(json.as_bytes()).unwrap(), permit }
    }

    fn started(given: Option<StartableJob>) -> Option<(u32, String)> {
        given.map(|StartableJob { slot, claimed, .. }| (slot, claimed.job.job_id.to_string()))
    }

    fn named(slot: u32, job: &str) -> Option<(u32, String)> {
        Some((slot, job.to_owned()))
    }

    #[test]
    fn slots_start_a_job_in_a_free_slot_or_the_next_released_one() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(2, 1, ResourceLedger::default()), Instant::now());
        assert_eq!(started(slots.assign(claimed(&permits, "a", 1), now)), named(0, "a"));
        assert_eq!(started(slots.assign(claimed(&permits, "b", 1), now)), named(1, "b"));
        assert_eq!(started(slots.assign(claimed(&permits, "c", 1), now)), None);
        assert_eq!(started(slots.assign(claimed(&permits, "d", 1), now)), None);
        assert_eq!(started(slots.release(1, SHORT)), named(1, "c"));
        assert_eq!(started(slots.release(0, SHORT)), named(0, "d"));
        assert_eq!(started(slots.release(0, SHORT)), None);
        assert_eq!(started(slots.assign(claimed(&permits, "e", 1), now)), named(0, "e"));
    }

    #[test]
    fn slots_prefetch_only_while_jobs_are_short() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(2, 1, ResourceLedger::default()), Instant::now());
        assert_eq!(slots.capacity(), 2, "a slot each, and nothing is known of jobs");
        for job in ["a", "b"] {
            assert!(slots.assign(claimed(&permits, job, 1), now).is_some());
        }
        assert_eq!(slots.capacity(), 0);
        assert!(slots.release(0, SHORT).is_none());
        assert_eq!(slots.capacity(), 3, "a free slot, and one ahead for each");
        assert!(slots.assign(claimed(&permits, "c", 1), now).is_some());
        assert!(slots.assign(claimed(&permits, "d", 1), now).is_none());
        assert_eq!(slots.capacity(), 1);
        slots.stalled();
        assert_eq!(slots.capacity(), 0);
        assert!(slots.release(0, LONG).is_some());
        assert_eq!(slots.capacity(), 0, "jobs are long");
        assert_eq!(Slots::new(3, 0, ResourceLedger::default()).capacity(), 3);
    }

    #[test]
    fn slots_prefetch_very_short_jobs_in_groups() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(20)), Slots::new(1, 8, ResourceLedger::default()), Instant::now());
        assert!(slots.assign(claimed(&permits, "first", 1), now).is_some());
        assert!(slots.release(0, SHORT).is_none());
        assert_eq!(slots.capacity(), 9);
        for job in 0..9 {
            slots.assign(claimed(&permits, &format!("job-{job}"), 1), now);
        }
        let rooms = (0..8).map(|_| {
            slots.release(0, SHORT);
            slots.capacity()
        });
        assert_eq!(rooms.collect::<Vec<_>>(), [0, 0, 0, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn slots_never_prefetch_if_that_is_disabled() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(1, 0, ResourceLedger::default()), Instant::now());
        assert!(slots.assign(claimed(&permits, "a", 1), now).is_some());
        assert!(slots.release(0, SHORT).is_none());
        assert_eq!(slots.capacity(), 1);
        assert!(slots.assign(claimed(&permits, "b", 1), now).is_some());
        assert_eq!(slots.capacity(), 0);
    }

    #[test]
    fn slots_never_start_a_dismissed_claim_and_release_its_permit() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(4)), Slots::new(1, 3, ResourceLedger::default()), Instant::now());
        assert!(slots.assign(claimed(&permits, "a", 1), now).is_some());
        for job in ["b", "c", "d"] {
            assert!(slots.assign(claimed(&permits, job, 1), now).is_none());
        }
        // `Slots` does not keep the job that it returns for a start.
        assert_eq!((slots.oldest(), permits.available_permits()), (Some(now), 1));
        slots.dismiss(&"c".parse().unwrap(), 2);
        assert_eq!(slots.waiting().len(), 3, "another attempt was meant");
        slots.dismiss(&"c".parse().unwrap(), 1);
        let left: Vec<_> = slots.waiting().into_iter().map(|(job, _)| job.to_string()).collect();
        assert_eq!(left, ["b", "d"]);
        assert_eq!((slots.dismiss_all(), slots.oldest(), permits.available_permits()), (2, None, 4));
        assert!(slots.release(0, None).is_none());
    }

    #[test]
    fn slots_never_start_withdrawn_claims_and_keep_the_order_of_others() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(5)), Slots::new(1, 4, ResourceLedger::default()), Instant::now());
        assert!(slots.assign(claimed(&permits, "a", 1), now).is_some());
        for job in ["b", "c", "d"] {
            let mut claim = claimed(&permits, job, 3);
            if job == "c" {
                claim.job.action_id = "other".parse().unwrap();
            }
            assert!(slots.assign(claim, now).is_none());
        }
        let withdrawn = slots.withdraw(&"a".parse().unwrap());
        let withdrawn: Vec<_> = withdrawn.iter().map(|(job, attempt)| (job.as_str(), *attempt)).collect();
        assert_eq!(withdrawn, [("b", 3), ("d", 3)]);
        assert_eq!(permits.available_permits(), 4, "their permits are free");
        assert_eq!(started(slots.release(0, SHORT)), named(0, "c"));
        assert!(slots.withdraw(&"a".parse().unwrap()).is_empty());
    }

    /// Returns a claim of a job that wants `cpus` processors.
    fn wanting(permits: &Arc<Semaphore>, job: &str, cpus: u64) -> Claimed {
        let mut claimed = claimed(permits, job, 1);
        claimed.job.resources.set(CPUS, cpus * HUNDREDTHS);
        claimed
    }

    /// Returns the job that starts, and its resources.
    fn allocated(given: Option<StartableJob>) -> (String, Option<Allocation>) {
        given.map(|start| (start.claimed.job.job_id.to_string(), start.allocation)).unwrap_or_default()
    }

    #[test]
    fn slots_start_a_job_once_its_resources_are_free() {
        let mut quantities = Quantities::default();
        quantities.set(CPUS, 4 * HUNDREDTHS);
        let ledger = ResourceLedger::new(&Offer { quantities, ..Offer::default() });
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(9, 0, ledger), Instant::now());
        let (first, three) = allocated(slots.assign(wanting(&permits, "three", 3), now));
        assert_eq!(first, "three");
        assert!(slots.assign(wanting(&permits, "two", 2), now).is_none());
        assert!(slots.assign(wanting(&permits, "one", 1), now).is_none(), "it is later than the other");
        assert_eq!(slots.capacity(), 6, "jobs that wait get a slot, too");
        assert_eq!(started(slots.assign(claimed(&permits, "none", 1), now)), named(1, "none"));
        assert!(slots.release(0, SHORT).is_none(), "its processes have not ended");
        slots.release_resources(&three.unwrap());
        let (second, two) = allocated(slots.next());
        assert_eq!((second.as_str(), allocated(slots.next()).0.as_str()), ("two", "one"));
        assert!(two.is_some() && slots.next().is_none());
    }

    #[test]
    fn slots_start_a_job_that_never_fits_so_that_it_fails() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(1, 0, ResourceLedger::default()), Instant::now());
        let start = slots.assign(wanting(&permits, "a", 1), now).unwrap();
        let resources = slots.job_resources(&start.claimed.job, start.allocation.as_ref()).unwrap();
        assert_eq!(resources.missing.unwrap(), "it needs cpus 1, and this worker offers 0");
        let job = claimed(&permits, "b", 1).job;
        assert!(slots.job_resources(&job, None).is_none());
    }

    #[test]
    fn slots_replace_a_waiting_claim_by_a_later_one() {
        let (permits, mut slots, now) =
            (Arc::new(Semaphore::new(9)), Slots::new(1, 3, ResourceLedger::default()), Instant::now());
        assert!(slots.assign(claimed(&permits, "a", 1), now).is_some());
        assert!(slots.assign(claimed(&permits, "b", 1), now).is_none());
        assert!(slots.assign(claimed(&permits, "b", 2), now).is_none());
        let waiting: Vec<_> = slots.waiting().into_iter().map(|(job, n)| (job.to_string(), n)).collect();
        assert_eq!(waiting, [("b".to_owned(), 2)]);
    }
}
