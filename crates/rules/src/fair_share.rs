//! Fair share of a queue between those who submit its jobs (start-time fair queueing, a form of
//! stride scheduling).
//!
//! Each share of a queue has a virtual time. A claim takes a job of the share with the lowest one,
//! and the virtual time of that share then grows by the inverse of its weight. So the shares that
//! have jobs get claims in the proportion of their weights, and a share that has none leaves its
//! claims to the others. A share that has jobs again starts at the virtual time of the queue, so
//! that idleness saves up nothing.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::ids::ShareName;

use crate::{owner::Owner, rejection::Rejection};

/// Growth of the virtual time with a claim of a share of weight 1. A multiple of all small numbers,
/// so that the inverses of usual weights are exact.
const STEP: u64 = 5_040_000;
/// Maximum weight of a share.
pub const MAX_WEIGHT: u32 = 1000;
/// Minimum number of known shares of a queue at which those without an effect are forgotten.
const MIN_KNOWN: usize = 64;

/// First part of the name of a share that is not an owner's.
const GROUP: &str = "share:";

/// Virtual time of a queue or of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct VirtualTime(u64);

/// Virtual times of the shares of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairQueue<S> {
    /// Virtual time of the share whose job was claimed last, at that claim. Never decreases.
    now: VirtualTime,
    /// Virtual times of shares that are active, or ahead of the queue.
    shares: BTreeMap<S, VirtualTime>,
    /// Number of shares that were left after shares were last forgotten.
    left: usize,
}

impl<S> Default for FairQueue<S> {
    fn default() -> Self {
        Self { now: VirtualTime::default(), shares: BTreeMap::new(), left: 0 }
    }
}

impl<S: Ord + Clone> FairQueue<S> {
    /// Returns the virtual time of a share.
    pub fn time_of(&self, share: &S) -> VirtualTime {
        self.shares.get(share).copied().unwrap_or(self.now)
    }

    /// Records that a share has claimable jobs again.
    pub fn activate(&mut self, share: &S) {
        let time = self.time_of(share).max(self.now);
        self.set(share, time);
    }

    /// Records that exactly these shares have claimable jobs. Visits every known share.
    pub fn set_active(&mut self, active: &BTreeSet<&S>) {
        let now = self.now;
        self.shares.retain(|share, time| *time > now || active.contains(share));
        for share in active {
            if !self.shares.contains_key(*share) {
                self.shares.insert((*share).clone(), now);
            }
        }
    }

    /// Records the claim of a job of a share. A share that is behind the queue, because its jobs
    /// did not fit into what the workers had free, does not catch up: its claims would delay the
    /// others.
    pub fn charge(&mut self, share: &S, weight: u32) {
        self.now = self.now.max(self.time_of(share));
        let step = STEP / u64::from(weight.clamp(1, MAX_WEIGHT));
        self.set(share, VirtualTime(self.now.0.saturating_add(step)));
    }

    fn set(&mut self, share: &S, time: VirtualTime) {
        match self.shares.get_mut(share) {
            Some(known) => *known = time,
            None => drop(self.shares.insert(share.clone(), time)),
        }
    }

    /// Forgets shares that are not active and not ahead of the queue, once there are many.
    pub fn forget_idle(&mut self, is_active: impl Fn(&S) -> bool) {
        if self.shares.len() >= MIN_KNOWN.max(2 * self.left) {
            let now = self.now;
            self.shares.retain(|share, time| *time > now || is_active(share));
            self.left = self.shares.len();
        }
    }
}

/// Shares of a key, which an admin sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyShares {
    /// Weight of the share of the key, from 1 to [`MAX_WEIGHT`]; `None` for that of others.
    pub weight: Option<u32>,
    /// Other shares that the submissions of the key may name.
    pub named: BTreeSet<ShareName>,
}

/// Terms of the shares, which an admin sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareTerms {
    /// Weights of shares; 1 for the others.
    pub weights: BTreeMap<String, u32>,
    /// Queues in which priorities decide before shares.
    pub priority_queues: BTreeSet<String>,
    /// Names that owners may choose for shares; none for the others.
    pub names: BTreeMap<String, BTreeSet<ShareName>>,
}

impl ShareTerms {
    /// Returns the terms with the shares of keys.
    #[must_use]
    pub fn with_keys(mut self, keys: &[(Owner, KeyShares)]) -> Self {
        for (owner, KeyShares { weight, named }) in keys {
            self.weights.extend(weight.map(|weight| (owner.to_string(), weight)));
            self.names.insert(owner.to_string(), named.clone());
        }
        self
    }

    /// Returns the weight of a share.
    pub fn weight_of(&self, share: Option<&str>) -> u32 {
        share.and_then(|share| self.weights.get(share)).copied().unwrap_or(1)
    }

    /// Checks that an owner may name a share. Admins may name any share. With a free choice, an
    /// owner could take part in a queue with many shares.
    pub fn check_named(&self, named: Option<&ShareName>, owner: Option<&Owner>) -> Result<(), Rejection> {
        let (Some(named), Some(owner)) = (named, owner.filter(|owner| !owner.is_admin())) else {
            return Ok(());
        };
        let allowed = self.names.get(owner.as_str());
        if allowed.is_some_and(|allowed| allowed.contains(named)) {
            return Ok(());
        }
        let allowed: Vec<_> = allowed.into_iter().flatten().map(ShareName::as_str).collect();
        let which = match &*allowed {
            [] => "only its own".to_owned(),
            names => format!("only {} and its own", names.join(", ")),
        };
        Err(Rejection::NotPermitted(format!(
            "This key may not use the share '{named}', {which}: leave out share, or ask an admin to add the name to \
             shares of the key in the config file of agq"
        )))
    }
}

/// Returns the share of the jobs of a submission: the named one, or that of its owner. `None` is
/// the share of all that the session key submits.
pub fn share_of(named: Option<&ShareName>, owner: Option<&Owner>) -> Option<String> {
    named.map(named_share).or_else(|| owner.map(|owner| owner.as_str().to_owned()))
}

/// Returns the share with a name that a submitter or an admin has chosen. The share never is that
/// of an owner.
pub fn named_share(name: &ShareName) -> String {
    format!("{GROUP}{name}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FairQueue, KeyShares, MIN_KNOWN, ShareTerms, share_of};
    use crate::owner::Owner;

    /// Claims `count` jobs from shares with `jobs` and `weights`. Returns the share of each claim.
    fn claim(
        queue: &mut FairQueue<&'static str>,
        shares: &mut [(&'static str, u32, usize)],
        count: usize,
    ) -> Vec<&'static str> {
        let mut served = Vec::new();
        for _claim in 0..count {
            let waiting = shares.iter_mut().filter(|(_, _, jobs)| *jobs > 0);
            let Some((share, weight, jobs)) = waiting.min_by_key(|(share, ..)| queue.time_of(share)) else {
                break;
            };
            *jobs -= 1;
            queue.charge(share, *weight);
            served.push(*share);
        }
        served
    }

    fn count(served: &[&str], share: &str) -> usize {
        served.iter().filter(|served| **served == share).count()
    }

    #[test]
    fn shares_with_jobs_take_turns() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 1, 9), ("b", 1, 9)]);
        assert_eq!(claim(&mut queue, &mut shares, 4), ["a", "b", "a", "b"]);
    }

    #[test]
    fn few_jobs_do_not_wait_for_many() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 1, 5000), ("b", 1, 0)]);
        claim(&mut queue, &mut shares, 1000);
        shares[1].2 = 100;
        queue.activate(&"b");
        let served = claim(&mut queue, &mut shares, 200);
        let waits = (0..served.len()).filter(|at| served[*at] == "b").collect::<Vec<_>>();
        // Without "a", the 95th job of "b" would be the 95th claim.
        assert!(waits.len() == 100 && waits[94] + 1 < 2 * 95, "{waits:?}");
    }

    #[test]
    fn weights_divide_the_claims() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 3, 5000), ("b", 1, 5000)]);
        let served = claim(&mut queue, &mut shares, 1000);
        let of_a = count(&served, "a");
        assert!((740..=760).contains(&of_a), "{of_a}");
    }

    #[test]
    fn idleness_saves_up_nothing() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 1, 5000), ("b", 1, 1)]);
        claim(&mut queue, &mut shares, 1001);
        shares[1].2 = 1000;
        queue.activate(&"b");
        let served = claim(&mut queue, &mut shares, 100);
        assert!(count(&served, "b") <= 51, "{served:?}");
    }

    #[test]
    fn shares_are_told_which_of_them_are_active() {
        let mut queue = FairQueue::default();
        let active = |shares: &[&'static str]| shares.iter().copied().collect::<BTreeSet<_>>();
        for shares in [active(&["a", "b"]), active(&["a"]), active(&["a"]), active(&["a", "b", "c"])] {
            queue.set_active(&shares.iter().collect());
            queue.charge(&"a", 1);
        }
        // "b" was idle meanwhile, and "c" is new.
        assert_eq!(queue.time_of(&"b"), queue.time_of(&"c"));
        assert!(queue.time_of(&"a") > queue.time_of(&"b"));
        queue.set_active(&active(&["a", "c"]).iter().collect());
        for _claim in 0..3 {
            queue.charge(&"a", 1);
        }
        assert!(queue.time_of(&"c") < queue.time_of(&"b"), "the jobs of c did not fit");
    }

    #[test]
    fn share_whose_jobs_did_not_fit_does_not_catch_up() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 1, 5000), ("b", 1, 0)]);
        queue.activate(&"b");
        claim(&mut queue, &mut shares, 1000);
        shares[1].2 = 1000;
        let served = claim(&mut queue, &mut shares, 100);
        assert!(served[0] == "b" && count(&served, "b") <= 51, "{served:?}");
    }

    #[test]
    fn share_alone_gets_every_claim_and_owes_nothing() {
        let (mut queue, mut shares) = (FairQueue::default(), [("a", 1, 100), ("b", 1, 0)]);
        assert_eq!(claim(&mut queue, &mut shares, 200).len(), 100);
        for share in &mut shares {
            share.2 = 100;
            queue.activate(&share.0);
        }
        let served = claim(&mut queue, &mut shares, 100);
        assert!((49..=51).contains(&count(&served, "a")), "{served:?}");
    }

    #[test]
    fn idle_shares_without_an_effect_are_forgotten() {
        let mut queue = FairQueue::default();
        for share in 0..10 * MIN_KNOWN {
            queue.activate(&share);
            queue.charge(&share, 1);
            queue.charge(&0, 1);
            queue.forget_idle(|_| false);
            assert!(queue.shares.len() <= MIN_KNOWN, "{}", queue.shares.len());
        }
        assert!(queue.time_of(&0) > queue.time_of(&1));
    }

    #[test]
    fn keys_name_the_shares_that_an_admin_gives_them() {
        let [alice, bob] = ["alice", "bob"].map(|name| Owner::new("client", name));
        let named = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let keys = [(alice.clone(), KeyShares { weight: Some(3), named: named(&["ci", "night"]) })];
        let terms = ShareTerms::default().with_keys(&keys);
        assert_eq!(terms.weight_of(Some("client:alice")), 3);
        let check = |share: &str, owner| terms.check_named(Some(&share.parse().unwrap()), owner);
        let admin = Owner::new("admin", "root");
        for (share, owner) in [("night", Some(&alice)), ("any", Some(&admin)), ("any", None)] {
            assert_eq!(check(share, owner), Ok(()));
        }
        assert_eq!(terms.check_named(None, Some(&bob)), Ok(()));
        for (owner, words) in [(&alice, "'day', only ci, night and its own"), (&bob, "'day', only its own:")]
        {
            let line = check("day", Some(owner)).unwrap_err().line();
            assert!(line.starts_with("NOPERM ") && line.contains(words), "{line}");
        }
    }

    #[test]
    fn share_is_the_named_one_or_that_of_the_owner() {
        let alice = Owner::new("client", "alice");
        assert_eq!(share_of(None, None), None);
        assert_eq!(share_of(None, Some(&alice)).as_deref(), Some("client:alice"));
        let night = "night".parse().unwrap();
        assert_eq!(share_of(Some(&night), Some(&alice)).as_deref(), Some("share:night"));
        let terms = ShareTerms { weights: [("client:alice".to_owned(), 3)].into(), ..ShareTerms::default() };
        assert_eq!(
            [Some("client:alice"), Some("client:bob"), None].map(|share| terms.weight_of(share)),
            [3, 1, 1]
        );
    }
}
