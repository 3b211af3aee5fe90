//! Verification of a hash chain.

use super::{AuditChain, AuditLine, ChainHead};

/// Reason for which a line does not fit into a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// `prev` differs from the hash of the line before.
    #[error(
        "prev is {found}, but the line before has the hash {expected}: one of the two lines was changed, or \
         lines between them were removed, inserted or moved"
    )]
    Prev {
        /// `prev` of the line.
        found: ChainHead,
        /// Hash of the line before.
        expected: ChainHead,
    },
    /// The line is the first one of a chain, and has lines before it.
    #[error(
        "a new chain begins here: agq started without the file before this one, or an older log was replaced"
    )]
    NewChain,
    /// The line has no `prev`, and follows a line with `prev`.
    #[error(
        "it has no prev, although lines before it have one: it was changed or inserted, or an older agq wrote it"
    )]
    Unchained,
    /// `prev` is no hash.
    #[error("prev is no hash: the line was changed")]
    Invalid,
}

/// Verification of the lines of an audit log in their order.
#[derive(Debug, Default)]
pub struct ChainVerifier {
    /// End of the lines so far; `None` before the first line.
    chain: Option<AuditChain>,
    first_prev: Option<ChainHead>,
    wanted: Option<ChainHead>,
    /// Number of chained lines after the wanted head, once the head was found.
    after_wanted: Option<u64>,
    chained: u64,
    unchained: u64,
    torn: u64,
}

impl ChainVerifier {
    /// Returns a verification that searches for the head `wanted`.
    pub fn new(wanted: Option<ChainHead>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Verifies the next line, without its line feed.
    pub fn push(&mut self, line: &[u8]) -> Result<(), Misfit> {
        match AuditLine::of(line) {
            AuditLine::Empty => return Ok(()),
            AuditLine::Torn => {
                self.torn += 1;
                self.chain.get_or_insert_default().push_torn(line);
            }
            AuditLine::Unchained if self.chained > 0 => return Err(Misfit::Unchained),
            AuditLine::Unchained => {
                self.unchained += 1;
                self.chain.get_or_insert_default().push_line(line);
            }
            AuditLine::Invalid => return Err(Misfit::Invalid),
            AuditLine::Chained(prev) => self.push_chained(line, prev)?,
        }
        self.look_for_wanted();
        Ok(())
    }

    fn push_chained(&mut self, line: &[u8], prev: ChainHead) -> Result<(), Misfit> {
        // Before the first line of the first file, only the hash in that line is known. Torn lines
        // at the start of that file belong to the unknown line before them.
        let is_first = self.chained + self.unchained == 0;
        let expected = self.chain.as_ref().filter(|_chain| !is_first).map(AuditChain::head);
        match expected {
            Some(expected) if expected != prev && prev == ChainHead::START => return Err(Misfit::NewChain),
            Some(expected) if expected != prev => return Err(Misfit::Prev { found: prev, expected }),
            _ => {}
        }
        if self.chained == 0 {
            self.first_prev = Some(prev);
            if self.wanted == Some(prev) {
                self.after_wanted = Some(0);
            }
        }
        self.chained += 1;
        self.after_wanted = self.after_wanted.map(|after| after + 1);
        self.chain.get_or_insert_default().push_line(line);
        Ok(())
    }

    /// Compares the end of the lines so far with the wanted head.
    fn look_for_wanted(&mut self) {
        if let Some(wanted) = self.wanted
            && self.head() == Some(wanted)
        {
            self.after_wanted = Some(0);
        }
    }

    /// Returns the hash of the end; `None` without lines.
    pub fn head(&self) -> Option<ChainHead> {
        self.chain.as_ref().map(AuditChain::head)
    }

    /// Returns `prev` of the first chained line.
    pub fn first_prev(&self) -> Option<ChainHead> {
        self.first_prev
    }

    /// Returns the number of chained lines after the wanted head; `None` if no line has that hash.
    pub fn after_wanted(&self) -> Option<u64> {
        self.after_wanted
    }

    /// Returns the number of lines with `prev`.
    pub fn chained(&self) -> u64 {
        self.chained
    }

    /// Returns the number of lines before the first chained line, without torn ones.
    pub fn unchained(&self) -> u64 {
        self.unchained
    }

    /// Returns the number of torn lines.
    pub fn torn(&self) -> u64 {
        self.torn
    }
}

#[cfg(test)]
mod tests {
    use super::{ChainVerifier, Misfit};
    use crate::audit_chain::{AuditChain, ChainHead};

    /// Returns lines that follow each other, the first one after `chain`.
    fn lines(chain: &mut AuditChain, count: usize) -> Vec<String> {
        let line = |n| {
            let line = format!(r#"{{"command":"PLAN.SUBMIT","target":"p{n}","prev":"{}"}}"#, chain.head());
            chain.push_line(line.as_bytes());
            line
        };
        (0..count).map(line).collect()
    }

    fn verified(lines: &[String], wanted: Option<ChainHead>) -> Result<ChainVerifier, (usize, Misfit)> {
        let mut verifier = ChainVerifier::new(wanted);
        for (index, line) in lines.iter().enumerate() {
            verifier.push(line.as_bytes()).map_err(|misfit| (index, misfit))?;
        }
        Ok(verifier)
    }

    /// Returns the index of the first line that does not fit.
    fn misfit(lines: &[String]) -> usize {
        verified(lines, None).unwrap_err().0
    }

    #[test]
    fn chain_of_untouched_lines_fits() {
        let mut chain = AuditChain::default();
        let lines = lines(&mut chain, 5);
        let verifier = verified(&lines, Some(chain.head())).unwrap();
        assert_eq!((verifier.chained(), verifier.unchained(), verifier.torn()), (5, 0, 0));
        assert_eq!((verifier.after_wanted(), verifier.head()), (Some(0), Some(chain.head())));
        assert_eq!(verifier.first_prev(), Some(ChainHead::START));
    }

    #[test]
    fn chain_shows_a_changed_line() {
        let mut changed = lines(&mut AuditChain::default(), 5);
        changed[2] = changed[2].replace("p2", "q2");
        assert_eq!(misfit(&changed), 3);
        // A torn line instead of a whole one.
        changed[2].truncate(20);
        assert_eq!(misfit(&changed), 3);
    }

    #[test]
    fn chain_shows_a_removed_line() {
        let mut removed = lines(&mut AuditChain::default(), 5);
        removed.remove(2);
        assert_eq!(misfit(&removed), 2);
    }

    #[test]
    fn chain_shows_an_inserted_and_a_repeated_line() {
        let whole = lines(&mut AuditChain::default(), 5);
        let mut repeated = whole.clone();
        repeated.insert(2, whole[1].clone());
        assert_eq!(misfit(&repeated), 2);
        let mut unchained = whole.clone();
        unchained.insert(2, r#"{"command":"PLAN.SUBMIT"}"#.into());
        assert_eq!(verified(&unchained, None).unwrap_err(), (2, Misfit::Unchained));
        let mut torn = whole;
        torn.insert(2, "{".into());
        assert_eq!(misfit(&torn), 3);
    }

    #[test]
    fn chain_shows_swapped_lines() {
        let mut swapped = lines(&mut AuditChain::default(), 5);
        swapped.swap(2, 3);
        assert_eq!(misfit(&swapped), 2);
    }

    #[test]
    fn chain_shows_missing_lines_at_the_end_only_by_its_head() {
        let mut chain = AuditChain::default();
        let whole = lines(&mut chain, 5);
        assert_eq!(verified(&whole[..3], None).unwrap().chained(), 3);
        assert_eq!(verified(&whole[..3], Some(chain.head())).unwrap().after_wanted(), None);
        // A change of the last line, too, shows only by the head.
        let mut changed = whole.clone();
        changed[4] = changed[4].replace("p4", "q4");
        assert_eq!(verified(&changed, Some(chain.head())).unwrap().after_wanted(), None);
        // The log was continued after the head was recorded.
        lines(&mut chain, 1);
        let mut kept = AuditChain::default();
        kept.push_line(whole[2].as_bytes());
        assert_eq!(verified(&whole, Some(kept.head())).unwrap().after_wanted(), Some(2));
        assert_eq!(verified(&whole, Some(ChainHead::START)).unwrap().after_wanted(), Some(5));
    }

    #[test]
    fn chain_goes_on_in_another_file() {
        let mut chain = AuditChain::default();
        let before = lines(&mut chain, 2);
        let head = chain.head();
        let after = lines(&mut chain, 2);
        assert_eq!(verified(&[before.clone(), after.clone()].concat(), None).unwrap().chained(), 4);
        let verifier = verified(&after, Some(head)).unwrap();
        assert_eq!((verifier.first_prev(), verifier.after_wanted()), (Some(head), Some(2)));
        assert_eq!(misfit(&[after, before.clone()].concat()), 2, "in the wrong order");
        let begun = lines(&mut AuditChain::default(), 1);
        assert_eq!(verified(&[before, begun].concat(), None).unwrap_err(), (2, Misfit::NewChain));
    }

    #[test]
    fn chain_covers_torn_lines() {
        let mut chain = AuditChain::default();
        let mut torn = lines(&mut chain, 2);
        for text in [r#"{"at":"20"#, r#"{"at"#] {
            chain.push_torn(text.as_bytes());
            torn.push(text.into());
        }
        torn.push(String::new());
        torn.extend(lines(&mut chain, 2));
        let verifier = verified(&torn, Some(chain.head())).unwrap();
        assert_eq!((verifier.chained(), verifier.torn(), verifier.after_wanted()), (4, 2, Some(0)));
        let mut changed = torn.clone();
        changed[2] = r#"{"at":"30"#.into();
        assert_eq!(misfit(&changed), 5);
        let mut before = torn.clone();
        before[1] = before[1].replace("p1", "q1");
        assert_eq!(misfit(&before), 5, "the line before a torn line is covered");
        torn.remove(2);
        assert_eq!(misfit(&torn), 4);
    }

    #[test]
    fn chain_of_an_old_log_begins_with_its_first_chained_line() {
        let mut old: Vec<String> = (0..3).map(|n| format!(r#"{{"command":"c{n}"}}"#)).collect();
        let mut chain = AuditChain::default();
        chain.push_line(old[2].as_bytes());
        old.extend(lines(&mut chain, 2));
        let verifier = verified(&old, None).unwrap();
        assert_eq!((verifier.chained(), verifier.unchained()), (2, 3));
        // The last line without prev is covered as well.
        old[2] = r#"{"command":"c9"}"#.into();
        assert_eq!(misfit(&old), 3);
        old.truncate(2);
        assert_eq!(verified(&old, None).unwrap().chained(), 0);
    }
}
