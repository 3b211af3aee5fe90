//! Uses of serials: how often, and for which jobs, a worker has started attempts under each order
//! that limits them.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{ids::JobId, time::Timestamp};

use crate::{error::Unacceptable, order::Terms};

/// Milliseconds for which a serial is recorded after its order has expired, because the clock of a
/// worker may go back.
const REMEMBERED_MS: u64 = 24 * 60 * 60 * 1000;

/// Uses of the recorded serials. The text of the log has a line for each use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SerialLog {
    serials: BTreeMap<String, UsedSerial>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UsedSerial {
    not_after: Timestamp,
    uses: u32,
    /// Jobs that were started under an order that limits its jobs.
    jobs: BTreeSet<JobId>,
}

/// One use of a serial. [`SerialUse::line`] has to be on disk before the attempt starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerialUse {
    serial: String,
    not_after: Timestamp,
    /// Job of the attempt, if the order limits its jobs.
    job: Option<JobId>,
}

impl SerialUse {
    /// Returns the line of the use, with its line feed.
    pub fn line(&self) -> String {
        let Self { serial, not_after, job } = self;
        match job {
            Some(job) => format!("{serial} {} {job}\n", not_after.0),
            None => format!("{serial} {}\n", not_after.0),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let serial = words.next().filter(|serial| crate::order::is_name(serial))?.to_owned();
        let not_after = Timestamp(words.next()?.parse().ok()?);
        let job = words.next().map(str::parse).transpose().ok()?;
        words.next().is_none().then_some(Self { serial, not_after, job })
    }
}

impl UsedSerial {
    /// Returns a line for each use: first those that name the jobs, then the others.
    fn to_text(&self, serial: &str) -> String {
        let line = |job| SerialUse { serial: serial.to_owned(), not_after: self.not_after, job }.line();
        let named: String = self.jobs.iter().cloned().map(Some).map(line).collect();
        let others = (self.uses as usize).saturating_sub(self.jobs.len());
        named + &line(None).repeat(others)
    }
}

impl SerialLog {
    /// Parses the lines of uses. A last line without a line feed was not written to its end, so its
    /// attempt has not started, and it does not count.
    ///
    /// # Errors
    ///
    /// Returns the number of the first line, from 1, that is not a use.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut log = Self::default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _unfinished)| whole);
        for (number, line) in (1_usize..).zip(whole.lines()) {
            log.add(SerialUse::parse(line).ok_or(number)?);
        }
        Ok(log)
    }

    /// Returns the lines of all uses.
    pub fn to_text(&self) -> String {
        self.serials.iter().map(|(serial, used)| used.to_text(serial)).collect()
    }

    /// Returns the next use of an order by an attempt of `job`, or `None` if the order does not
    /// limit this attempt. The use counts once it is [added](Self::add).
    ///
    /// # Errors
    ///
    /// Returns [`Unacceptable::UsedUp`] if the order was used as often as it permits, and
    /// [`Unacceptable::NoMoreJobs`] if it was used for as many other jobs as it permits.
    pub fn next_use(&self, terms: &Terms, job: &JobId) -> Result<Option<SerialUse>, Unacceptable> {
        let (serial, used) = (terms.serial.clone(), self.serials.get(&terms.serial));
        if let Some(uses) = terms.uses.filter(|uses| used.is_some_and(|used| used.uses >= *uses)) {
            return Err(Unacceptable::UsedUp { serial, uses });
        }
        let is_new = used.is_none_or(|used| !used.jobs.contains(job));
        let started = used.map_or(0, |used| used.jobs.len());
        match terms.limits.jobs {
            Some(jobs) if is_new && started >= jobs as usize => {
                Err(Unacceptable::NoMoreJobs { serial, jobs })
            }
            None if terms.uses.is_none() => Ok(None),
            Some(_) if terms.uses.is_none() && !is_new => Ok(None),
            limit => {
                let job = limit.map(|_| job.clone());
                Ok(Some(SerialUse { serial, not_after: terms.not_after, job }))
            }
        }
    }

    /// Counts a use.
    pub fn add(&mut self, SerialUse { serial, not_after, job }: SerialUse) {
        let first = UsedSerial { not_after, uses: 0, jobs: BTreeSet::new() };
        let used = self.serials.entry(serial).or_insert(first);
        used.uses = used.uses.saturating_add(1);
        used.jobs.extend(job);
        // Orders that share a serial are recorded as long as the last of these orders is valid.
        used.not_after = used.not_after.max(not_after);
    }

    /// Forgets serials a day after their orders have expired.
    pub fn prune(&mut self, now: Timestamp) {
        self.serials.retain(|_, used| now < used.not_after.plus_ms(REMEMBERED_MS));
    }

    /// Returns the number of recorded uses.
    pub fn len(&self) -> usize {
        self.serials.values().map(|used| used.uses as usize).sum()
    }

    /// Returns true if no use is recorded.
    pub fn is_empty(&self) -> bool {
        self.serials.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{ids::JobId, time::Timestamp};

    use super::{REMEMBERED_MS, SerialLog};
    use crate::{error::Unacceptable, order::Terms};

    fn terms(serial: &str, uses: Option<u32>, not_after: u64) -> Terms {
        let uses = uses.map_or(String::new(), |uses| format!(r#","uses":{uses}"#));
        let not_after = Timestamp(not_after);
        serde_json::from_str(&format!(
            r#"{{"for":["a"],"not_after":"{not_after}","serial":"{serial}"{uses}}}"#
        ))
        .unwrap()
    }

    fn with_jobs(jobs: u32, uses: Option<u32>) -> Terms {
        let mut terms = terms("a", uses, 1000);
        terms.limits.jobs = Some(jobs);
        terms
    }

    fn job(id: &str) -> JobId {
        id.parse().unwrap()
    }

    #[test]
    fn serial_is_used_as_often_as_its_order_permits() {
        let mut log = SerialLog::default();
        let (twice, other) = (terms("a", Some(2), 1000), terms("b", Some(1), 1000));
        for _ in 0..2 {
            let next = log.next_use(&twice, &job("j")).unwrap().unwrap();
            log.add(next);
        }
        let used_up = Unacceptable::UsedUp { serial: "a".into(), uses: 2 };
        assert_eq!(log.next_use(&twice, &job("j")), Err(used_up));
        assert!(log.next_use(&other, &job("j")).unwrap().is_some(), "a serial of another order");
        assert_eq!(
            log.next_use(&terms("a", None, 1000), &job("j")),
            Ok(None),
            "without a limit nothing is counted"
        );
    }

    #[test]
    fn order_starts_as_many_jobs_as_it_permits_and_repeats_each() {
        let (mut log, two) = (SerialLog::default(), with_jobs(2, None));
        for id in ["1", "2"] {
            let next = log.next_use(&two, &job(id)).unwrap().unwrap();
            log.add(next);
        }
        assert_eq!(log.next_use(&two, &job("1")), Ok(None), "another attempt of a job that counts");
        let more = Unacceptable::NoMoreJobs { serial: "a".into(), jobs: 2 };
        assert_eq!(log.next_use(&two, &job("3")), Err(more));
        let again = log.next_use(&with_jobs(2, Some(3)), &job("1")).unwrap().unwrap();
        log.add(again);
        assert_eq!(log.to_text(), "a 1000 1\na 1000 2\na 1000\n");
        assert_eq!(SerialLog::parse(&log.to_text()), Ok(log.clone()));
        let used_up = Unacceptable::UsedUp { serial: "a".into(), uses: 3 };
        assert_eq!(log.next_use(&with_jobs(2, Some(3)), &job("1")), Err(used_up), "attempts count, too");
        for damaged in ["a 1000 1 2\n", "a 1000 a/b\n", "a 1000 \n"] {
            assert_eq!(SerialLog::parse(damaged), Err(1), "{damaged:?}");
        }
    }

    #[test]
    fn serials_survive_in_text_without_an_unfinished_line() {
        let mut log = SerialLog::default();
        for serial in ["a", "b", "a"] {
            let next = log.next_use(&terms(serial, Some(9), 1000), &job("j")).unwrap().unwrap();
            log.add(next);
        }
        assert_eq!(log.to_text(), "a 1000\na 1000\nb 1000\n");
        assert_eq!(SerialLog::parse(&log.to_text()), Ok(log.clone()));
        assert_eq!(SerialLog::parse(&(log.to_text() + "c 10")), Ok(log));
        assert_eq!(SerialLog::parse("a 1\n\nb 1\n"), Err(2));
        assert_eq!(SerialLog::parse("a 1\nb x\n"), Err(2));
        assert!(SerialLog::parse("").unwrap().is_empty());
    }

    #[test]
    fn serials_are_forgotten_a_day_after_their_end() {
        let mut log = SerialLog::default();
        for (serial, not_after) in [("a", 1000), ("b", 2000)] {
            let next = log.next_use(&terms(serial, Some(1), not_after), &job("j")).unwrap().unwrap();
            log.add(next);
        }
        log.prune(Timestamp(999 + REMEMBERED_MS));
        assert_eq!(log.len(), 2);
        log.prune(Timestamp(1000 + REMEMBERED_MS));
        assert_eq!(log.to_text(), "b 2000\n");
    }
}
