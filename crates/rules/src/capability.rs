//! Who may be offered what: a job goes only to a worker that has every command it needs (design, decision 7).

use std::collections::HashSet;

/// What a claimant can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abilities {
    /// These commands, as a registered worker declared them.
    Commands(HashSet<String>),
    /// Whatever comes: a connection that registered no worker speaks for itself.
    Anything,
}

impl Abilities {
    /// Whether a job with these needs may be offered.
    pub fn cover(&self, needs: &[String]) -> bool {
        match self {
            Self::Anything => true,
            Self::Commands(commands) => needs.iter().all(|need| commands.contains(need)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Abilities;

    #[test]
    fn every_need_must_be_met() {
        let worker = Abilities::Commands(["sort".to_owned(), "uniq".to_owned()].into());
        assert!(worker.cover(&["sort".into()]) && worker.cover(&[]));
        assert!(!worker.cover(&["jq".into(), "sort".into()]));
        assert!(Abilities::Anything.cover(&["jq".into()]));
    }
}
