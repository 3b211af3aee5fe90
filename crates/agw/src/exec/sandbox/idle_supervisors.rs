//! Supervisors that wait for a job. The number of supervisors over all profiles has a bound,
//! because each supervisor has processes, a control group and a scratch directory. No I/O, no
//! clock.

use std::collections::VecDeque;

/// Supervisors `S` with the names of their profiles, from the one that waits longest.
#[derive(Debug)]
pub(super) struct IdleSupervisors<S> {
    most: usize,
    supervisors: VecDeque<(String, S)>,
}

impl<S> IdleSupervisors<S> {
    /// Creates an empty list of at most `most` supervisors.
    pub(super) fn new(most: usize) -> Self {
        Self { most, supervisors: VecDeque::new() }
    }

    /// Adds a supervisor of `profile`. If the supervisors are too many, returns the supervisor that
    /// waits longest.
    #[must_use]
    pub(super) fn put(&mut self, profile: &str, supervisor: S) -> Option<S> {
        self.supervisors.push_back((profile.to_owned(), supervisor));
        if self.supervisors.len() <= self.most {
            return None;
        }
        self.supervisors.pop_front().map(|(_, supervisor)| supervisor)
    }

    /// Takes the supervisor of `profile` that waits shortest.
    pub(super) fn take(&mut self, profile: &str) -> Option<S> {
        let at = self.supervisors.iter().rposition(|(name, _)| name == profile)?;
        self.supervisors.remove(at).map(|(_, supervisor)| supervisor)
    }

    /// Takes all supervisors but those of the profile `kept`.
    pub(super) fn take_others(&mut self, kept: Option<&str>) -> Vec<S> {
        let all = std::mem::take(&mut self.supervisors);
        let is_kept = |(name, _): &(String, S)| Some(name.as_str()) == kept;
        let (kept, others): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(is_kept);
        self.supervisors = kept;
        others.into_iter().map(|(_, supervisor)| supervisor).collect()
    }

    /// Returns the number of supervisors of `profile`.
    pub(super) fn count(&self, profile: &str) -> usize {
        self.supervisors.iter().filter(|(name, _)| name == profile).count()
    }
}

#[cfg(test)]
mod tests {
    use super::IdleSupervisors;

    fn three() -> IdleSupervisors<u32> {
        let mut idle = IdleSupervisors::new(3);
        let put = [("reader", 1), ("builder", 2), ("reader", 3)].map(|(name, it)| idle.put(name, it));
        assert_eq!(put, [None; 3]);
        idle
    }

    #[test]
    fn idle_supervisors_of_all_profiles_have_one_bound() {
        let mut idle = three();
        assert_eq!([idle.put("network", 4), idle.put("network", 5)], [Some(1), Some(2)]);
        assert_eq!(["reader", "builder", "network"].map(|name| idle.count(name)), [1, 0, 2]);
    }

    #[test]
    fn idle_supervisor_that_waits_shortest_is_taken() {
        let mut idle = three();
        let taken = ["reader", "reader", "reader", "builder"].map(|name| idle.take(name));
        assert_eq!(taken, [Some(3), Some(1), None, Some(2)]);
    }

    #[test]
    fn idle_supervisors_of_other_profiles_are_taken_for_their_resources() {
        let mut idle = three();
        assert_eq!(idle.take_others(Some("reader")), [2]);
        assert_eq!(idle.count("reader"), 2);
        assert_eq!(idle.take_others(None), [1, 3]);
    }
}
