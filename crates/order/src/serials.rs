//! Uses of serials: how often a worker has started attempts of each order that limits them.

use std::collections::BTreeMap;

use agenix_protocol::time::Timestamp;

use crate::{error::Unacceptable, order::Terms};

/// Milliseconds for which a serial is remembered after its order has expired, because the clock of
/// a worker may go back.
const REMEMBERED_MS: u64 = 24 * 60 * 60 * 1000;

/// Uses of the serials that are remembered. Its text has a line for each use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SerialLog {
    serials: BTreeMap<String, UsedSerial>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UsedSerial {
    not_after: Timestamp,
    uses: u32,
}

/// One use of a serial. [`SerialUse::line`] has to be on disk before the attempt starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerialUse {
    serial: String,
    not_after: Timestamp,
}

impl SerialUse {
    /// Returns the line of the use, with its line feed.
    pub fn line(&self) -> String {
        format!("{} {}\n", self.serial, self.not_after.0)
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
            let parsed = line.split_once(' ').and_then(|(serial, ms)| Some((serial, ms.parse().ok()?)));
            let (serial, ms) = parsed.filter(|(serial, _)| crate::order::is_name(serial)).ok_or(number)?;
            log.add(SerialUse { serial: serial.to_owned(), not_after: Timestamp(ms) });
        }
        Ok(log)
    }

    /// Returns the lines of all uses.
    pub fn to_text(&self) -> String {
        let lines = self.serials.iter().map(|(serial, UsedSerial { not_after, uses })| {
            let line = SerialUse { serial: serial.clone(), not_after: *not_after }.line();
            line.repeat(*uses as usize)
        });
        lines.collect()
    }

    /// Returns the next use of an order that limits its uses, or `None` for another order. The use
    /// counts once it is [added](Self::add).
    ///
    /// # Errors
    ///
    /// Returns [`Unacceptable::UsedUp`] if the order was used as often as it permits.
    pub fn next_use(&self, terms: &Terms) -> Result<Option<SerialUse>, Unacceptable> {
        let Some(uses) = terms.uses else { return Ok(None) };
        let serial = terms.serial.clone();
        let used = self.serials.get(&serial).map_or(0, |used| used.uses);
        if used >= uses {
            return Err(Unacceptable::UsedUp { serial, uses });
        }
        Ok(Some(SerialUse { serial, not_after: terms.not_after }))
    }

    /// Counts a use.
    pub fn add(&mut self, SerialUse { serial, not_after }: SerialUse) {
        let used = self.serials.entry(serial).or_insert(UsedSerial { not_after, uses: 0 });
        used.uses = used.uses.saturating_add(1);
        // Orders that share a serial are remembered as long as the last of them is valid.
        used.not_after = used.not_after.max(not_after);
    }

    /// Forgets serials a day after their orders have expired.
    pub fn prune(&mut self, now: Timestamp) {
        self.serials.retain(|_, used| now < used.not_after.plus_ms(REMEMBERED_MS));
    }

    /// Returns the number of uses that are remembered.
    pub fn len(&self) -> usize {
        self.serials.values().map(|used| used.uses as usize).sum()
    }

    /// Returns true if no use is remembered.
    pub fn is_empty(&self) -> bool {
        self.serials.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

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

    #[test]
    fn serial_is_used_as_often_as_its_order_permits() {
        let mut log = SerialLog::default();
        let (twice, other) = (terms("a", Some(2), 1000), terms("b", Some(1), 1000));
        for _ in 0..2 {
            let next = log.next_use(&twice).unwrap().unwrap();
            log.add(next);
        }
        let used_up = Unacceptable::UsedUp { serial: "a".into(), uses: 2 };
        assert_eq!(log.next_use(&twice), Err(used_up));
        assert!(log.next_use(&other).unwrap().is_some(), "a serial of another order");
        assert_eq!(log.next_use(&terms("a", None, 1000)), Ok(None), "without a limit nothing is counted");
    }

    #[test]
    fn serials_survive_in_text_without_an_unfinished_line() {
        let mut log = SerialLog::default();
        for serial in ["a", "b", "a"] {
            let next = log.next_use(&terms(serial, Some(9), 1000)).unwrap().unwrap();
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
            let next = log.next_use(&terms(serial, Some(1), not_after)).unwrap().unwrap();
            log.add(next);
        }
        log.prune(Timestamp(999 + REMEMBERED_MS));
        assert_eq!(log.len(), 2);
        log.prune(Timestamp(1000 + REMEMBERED_MS));
        assert_eq!(log.to_text(), "b 2000\n");
    }
}
