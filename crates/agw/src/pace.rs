//! How long jobs take here, lately: the rule by which they are claimed ahead. Pure.

use std::time::Duration;

/// Jobs that take less than this are claimed ahead. For longer ones the way to agq and back does not count, and what waits here
/// could run elsewhere.
const BRISK: Duration = Duration::from_millis(200);
/// The job that ended last is one part in so many of the average.
const PARTS: u32 = 8;

/// The average of what jobs take, the latest counting most; nothing is known of it before the first has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pace {
    average: Option<Duration>,
}

impl Pace {
    /// A job has ended that took this long.
    pub(crate) fn ended(&mut self, took: Duration) {
        let with = |average: Duration| (average * (PARTS - 1) + took) / PARTS;
        self.average = Some(self.average.map_or(took, with));
    }

    /// Those that run now take longer than was thought, and nobody knows how long.
    pub(crate) fn stalled(&mut self) {
        self.average = None;
    }

    /// Whether jobs are short.
    pub(crate) fn is_brisk(self) -> bool {
        self.average.is_some_and(|average| average < BRISK)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    const SHORT: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(10);

    fn after(times: &[Duration]) -> Pace {
        let mut pace = Pace::default();
        times.iter().for_each(|took| pace.ended(*took));
        pace
    }

    #[test]
    fn only_what_is_known_to_be_short_is_brisk() {
        assert!(!Pace::default().is_brisk(), "nothing is known yet");
        assert!(after(&[SHORT]).is_brisk());
        assert!(!after(&[LONG]).is_brisk());
        assert!(!after(&[SHORT, SHORT, SHORT, LONG]).is_brisk(), "one long job among short ones");
    }

    #[test]
    fn a_long_job_is_forgotten_after_some_short_ones() {
        let mut pace = after(&[LONG]);
        let needed = (1..).find(|_| {
            pace.ended(SHORT);
            pace.is_brisk()
        });
        assert!(needed.is_some_and(|jobs| (20..=40).contains(&jobs)), "{needed:?} jobs");
    }

    #[test]
    fn whoever_stalls_has_to_show_anew_that_jobs_are_short() {
        let mut pace = after(&[SHORT]);
        pace.stalled();
        assert!(!pace.is_brisk());
        pace.ended(SHORT);
        assert!(pace.is_brisk());
    }
}
