//! Rates of completed and failed jobs per minute, from samples of the totals.

use std::{collections::VecDeque, sync::Mutex};

use agenix_protocol::{documents::Status, time::Timestamp};

use crate::{store::Totals, sync::lock};

const REMEMBERED_MS: u64 = 60_000;
const KEPT_MS: u64 = 3_600_000;
const APART_MS: u64 = 5_000;

/// Samples of the last hour: time, completed jobs and failed jobs.
#[derive(Debug, Default)]
pub(crate) struct Throughput(Mutex<VecDeque<(Timestamp, u64, u64)>>);

fn ended(totals: &Totals) -> (u64, u64) {
    let ever = |status: Status| totals.ever[status as usize];
    (ever(Status::Completed), ever(Status::Failed) + ever(Status::Dead))
}

impl Throughput {
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let counts = lock(&self.0);
        counts.back().is_none_or(|(at, ..)| now.ms_since(*at) >= APART_MS || now < *at)
    }

    pub(crate) fn add_sample(&self, now: Timestamp, totals: &Totals) {
        let mut counts = lock(&self.0);
        counts.retain(|(at, ..)| *at <= now && now.ms_since(*at) <= KEPT_MS);
        let (completed, failed) = ended(totals);
        counts.push_back((now, completed, failed));
    }

    /// Returns the samples since the first start, the oldest first: time, completed and failed
    /// jobs.
    pub(crate) fn history(&self) -> Vec<(u64, u64, u64)> {
        let counts = lock(&self.0);
        counts.iter().map(|(at, completed, failed)| (at.0, *completed, *failed)).collect()
    }

    /// Returns completed and failed jobs per minute, over the last minute or less.
    pub(crate) fn per_minute(&self, now: Timestamp, totals: &Totals) -> (u64, u64) {
        let counts = lock(&self.0);
        let Some((at, completed, failed)) = counts.iter().find(|(at, ..)| now.ms_since(*at) <= REMEMBERED_MS)
        else {
            return (0, 0);
        };
        let (completed_now, failed_now) = ended(totals);
        let span = now.ms_since(*at).max(1000);
        let rate = |then: u64, now: u64| now.saturating_sub(then) * 60_000 / span;
        (rate(*completed, completed_now), rate(*failed, failed_now))
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::Status, time::Timestamp};

    use super::Throughput;
    use crate::store::Totals;

    fn totals(completed: u64) -> Totals {
        let mut totals = Totals::default();
        totals.ever[Status::Completed as usize] = completed;
        totals
    }

    #[test]
    fn throughput_uses_the_last_minute_and_keeps_an_hour() {
        let throughput = Throughput::default();
        assert!(throughput.is_due(Timestamp(0)));
        throughput.add_sample(Timestamp(0), &totals(0));
        assert!(!throughput.is_due(Timestamp(4999)) && throughput.is_due(Timestamp(5000)));
        assert_eq!(throughput.per_minute(Timestamp(30_000), &totals(50)), (100, 0));
        throughput.add_sample(Timestamp(30_000), &totals(50));
        assert_eq!(throughput.per_minute(Timestamp(90_000), &totals(110)), (60, 0));
        assert_eq!(throughput.history(), [(0, 0, 0), (30_000, 50, 0)]);
        throughput.add_sample(Timestamp(3_600_001), &totals(200));
        assert_eq!(throughput.history(), [(30_000, 50, 0), (3_600_001, 200, 0)], "an hour, and no more");
    }
}
