//! Compares the index with a scan of every lane, over random sequences of changes and claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::time::Timestamp;
use agenix_rules::{
    capability::{ClaimantCapabilities, Needs},
    fair_share::ShareTerms,
};
use proptest::prelude::*;

use super::{Block, ClaimIndex, Constraint, LaneKey, PassedGroups, Place};
use crate::store::Claimant;

type TestTurn = (u8, u64);

const QUEUES: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone, Copy)]
enum ClaimIndexStep {
    Add {
        lane: u32,
        rank: u8,
    },
    /// Removes the ready job of a lane that has this place.
    Cancel {
        lane: u32,
        place: usize,
    },
    /// Removes a lane, and gives its number to a lane with another key.
    Replace {
        lane: u32,
        key: usize,
    },
    Claim {
        queue: usize,
        class: usize,
    },
    /// Changes a limit (0..2) or a budget (2..4): open, closed, or closed for a time.
    Constrain {
        constraint: usize,
        closed_for: Option<u64>,
    },
    PassTime(u64),
    SetClockBack(u64),
}

fn steps() -> impl Strategy<Value = Vec<ClaimIndexStep>> {
    let lane = 0_u32..12;
    let step = prop_oneof![
        6 => (lane.clone(), 0_u8..3).prop_map(|(lane, rank)| ClaimIndexStep::Add { lane, rank }),
        1 => (lane.clone(), 0_usize..3).prop_map(|(lane, place)| ClaimIndexStep::Cancel { lane, place }),
        1 => (lane, 0_usize..108).prop_map(|(lane, key)| ClaimIndexStep::Replace { lane, key }),
        6 => (0_usize..2, 0_usize..4).prop_map(|(queue, class)| ClaimIndexStep::Claim { queue, class }),
        2 => (0_usize..4, prop::option::of(1_u64..20))
            .prop_map(|(constraint, closed_for)| ClaimIndexStep::Constrain { constraint, closed_for }),
        1 => (1_u64..20).prop_map(ClaimIndexStep::PassTime),
        1 => (1_u64..20).prop_map(ClaimIndexStep::SetClockBack),
    ];
    prop::collection::vec(step, 1..400)
}

fn key(number: usize) -> LaneKey {
    let (queue, tool, constraint) = (number % 2, number / 2 % 3, number / 6 % 6);
    let named = |at: usize, name: &str| (constraint == at || constraint == 5).then(|| name.to_owned());
    let needs = Needs {
        tools: [vec![], vec!["x".to_owned()], vec!["y".to_owned()]][tool].clone(),
        limit: named(1, "0").or_else(|| named(2, "1")),
        budget: named(3, "2").or_else(|| named(4, "3")),
        share: [None, Some("s"), Some("t")][number / 36 % 3].map(str::to_owned),
        ..Needs::default()
    };
    LaneKey { queue: QUEUES[queue].to_owned(), needs }
}

struct ModelLane {
    key: LaneKey,
    ready: BTreeSet<TestTurn>,
}

/// Lanes and constraints as a store has them.
struct ClaimIndexModel {
    index: ClaimIndex<TestTurn>,
    lanes: BTreeMap<u32, ModelLane>,
    /// Time until which each constraint is closed.
    closed_until: [Timestamp; 4],
    classes: Vec<Arc<ClaimantCapabilities>>,
    terms: ShareTerms,
    now: Timestamp,
    seq: u64,
}

impl ClaimIndexModel {
    fn new(max_entries: usize, min_log: usize) -> Self {
        let worker = |commands: &[&str]| ClaimantCapabilities::Worker {
            commands: commands.iter().map(|command| (*command).to_owned()).collect(),
            tags: serde_json::Map::new(),
            profiles: None,
            offered: Default::default(),
        };
        let classes =
            [ClaimantCapabilities::Anything, worker(&["x"]), worker(&["y"]), worker(&[])].map(Arc::new);
        let mut model = Self {
            index: ClaimIndex::bounded(max_entries, min_log),
            lanes: BTreeMap::new(),
            closed_until: [Timestamp(0); 4],
            classes: classes.into(),
            terms: ShareTerms {
                weights: [("s".to_owned(), 2)].into(),
                priority_queues: ["b".to_owned()].into(),
                ..ShareTerms::default()
            },
            now: Timestamp(100),
            seq: 0,
        };
        (0..12).for_each(|lane| model.insert(lane, key(lane as usize * 7)));
        model
    }

    fn insert(&mut self, lane: u32, key: LaneKey) {
        self.index.insert(lane, &key);
        self.lanes.insert(lane, ModelLane { key, ready: BTreeSet::new() });
    }

    fn block_of(&self, lane: u32) -> Option<Block> {
        let needs = &self.lanes[&lane].key.needs;
        let constraints = [(Constraint::Limit, &needs.limit), (Constraint::Budget, &needs.budget)];
        constraints.into_iter().find_map(|(constraint, name)| {
            let name = name.clone()?;
            let until = self.closed_until[name.parse::<usize>().unwrap()];
            let until_time = (until < Timestamp(u64::MAX)).then_some(until);
            (until > self.now).then_some(Block { constraint, name, until: until_time })
        })
    }

    /// Returns the job that a scan of every lane finds.
    fn scan(&self, queue: &str, claimant: &Claimant) -> Option<(TestTurn, u32)> {
        let is_for = |(number, lane): &(&u32, &ModelLane)| {
            lane.key.queue == queue
                && claimant.capabilities.cover(&lane.key.needs)
                && self.block_of(**number).is_none()
        };
        let lanes = self.lanes.iter().filter(is_for);
        let place = |(number, lane): (&u32, &ModelLane)| {
            let turn = *lane.ready.first()?;
            let rank = if self.terms.priority_queues.contains(queue) { turn.0.into() } else { 0 };
            let share = lane.key.needs.share.as_deref();
            Some((rank, self.index.times_of(queue, claimant, (share, rank)), turn, *number))
        };
        lanes.filter_map(place).min().map(|(_, _, turn, lane)| (turn, lane))
    }

    fn first(&mut self, queue: &str, claimant: &Claimant) -> Option<(TestTurn, u32)> {
        while let Some((bound, lane)) =
            self.index.first(queue, claimant, &mut PassedGroups::default(), self.now)
        {
            let first = self.lanes[&lane].ready.first().copied();
            if first != Some(bound) {
                self.index.set_first(lane, first);
            } else if let Some(block) = self.block_of(lane) {
                self.index.block(lane, block);
            } else {
                return Some((bound, lane));
            }
        }
        None
    }

    fn remove_ready(&mut self, lane: u32, turn: TestTurn) {
        let ready = &mut self.lanes.get_mut(&lane).unwrap().ready;
        ready.remove(&turn);
        if ready.is_empty() {
            self.index.set_first(lane, None);
        } else {
            self.index.unblock(lane);
        }
    }

    fn take(&mut self, step: ClaimIndexStep) -> Result<(), TestCaseError> {
        match step {
            ClaimIndexStep::Add { lane, rank } => {
                self.seq += 1;
                let turn = (rank, self.seq);
                self.lanes.get_mut(&lane).unwrap().ready.insert(turn);
                self.index.add(lane, turn);
            }
            ClaimIndexStep::Cancel { lane, place } => {
                let turn = self.lanes[&lane].ready.iter().nth(place).copied();
                turn.into_iter().for_each(|turn| self.remove_ready(lane, turn));
            }
            ClaimIndexStep::Replace { lane, key: number } => {
                self.index.remove(lane);
                self.insert(lane, key(number));
            }
            ClaimIndexStep::Claim { queue, class } => {
                let (queue, claimant) = (QUEUES[queue], claimant_with(&self.classes[class], &self.terms));
                let expected = self.scan(queue, &claimant);
                prop_assert_eq!(self.first(queue, &claimant), expected);
                if let Some((turn, lane)) = expected {
                    self.index.charge((turn, lane), &claimant);
                    self.remove_ready(lane, turn);
                }
            }
            ClaimIndexStep::Constrain { constraint, closed_for } => {
                // The first constraint of each kind closes for good, the second for a time.
                let until = if constraint % 2 == 0 {
                    Timestamp(u64::MAX)
                } else {
                    self.now.plus_ms(closed_for.unwrap_or(0))
                };
                self.closed_until[constraint] = closed_for.map_or(Timestamp(0), |_| until);
                let kind = if constraint < 2 { Constraint::Limit } else { Constraint::Budget };
                self.index.unblock_all_of(kind, &constraint.to_string());
            }
            ClaimIndexStep::PassTime(ms) => self.now = self.now.plus_ms(ms),
            ClaimIndexStep::SetClockBack(ms) => self.now = Timestamp(self.now.0.saturating_sub(ms)),
        }
        Ok(())
    }

    /// Checks that the index has what its lanes have, and is within its bounds.
    fn check(&self, max_entries: usize, min_log: usize) -> Result<(), TestCaseError> {
        let groups: usize = self.index.groups.values().map(|group| group.size).sum();
        prop_assert_eq!((self.index.lanes.len(), groups), (self.lanes.len(), self.lanes.len()));
        let listed = self.index.groups.values().flat_map(|group| &group.listed).count();
        let is_listed = |lane: &&super::IndexedLane<TestTurn>| matches!(lane.place, Place::Listed(_));
        prop_assert_eq!(self.index.lanes.values().filter(is_listed).count(), listed);
        for groups in self.index.queues.values() {
            prop_assert!(groups.log_len() <= min_log.max(self.lanes.len()));
        }
        let mut classes: Vec<_> = self.index.queues.values().flat_map(|groups| groups.uses()).collect();
        classes.sort_unstable();
        // The class that claimed last is never dropped.
        classes.pop();
        let entries: usize = classes.iter().map(|class| class.entries).sum();
        prop_assert!(entries <= max_entries + max_entries / 8);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn claims_take_what_a_look_at_every_lane_finds(
        steps in steps(),
        (max_entries, min_log) in prop_oneof![Just((1000, 1000)), Just((1000, 1)), Just((0, 1000)), Just((12, 4))],
    ) {
        let mut model = ClaimIndexModel::new(max_entries, min_log);
        for step in steps {
            model.take(step)?;
            model.check(max_entries, min_log)?;
        }
    }
}

/// Returns a claimant that can run every job.
fn claimant(terms: &ShareTerms) -> Claimant {
    claimant_with(&Arc::new(ClaimantCapabilities::Anything), terms)
}

fn claimant_with(capabilities: &Arc<ClaimantCapabilities>, terms: &ShareTerms) -> Claimant {
    let (capabilities, share_terms) = (Arc::clone(capabilities), Arc::new(terms.clone()));
    Claimant { holder: "w".into(), capabilities, queues: Arc::default(), share_terms, visibility_ms: None }
}

fn lookup(index: &mut ClaimIndex<TestTurn>, claimant: &Claimant) -> Option<(TestTurn, u32)> {
    index.first("a", claimant, &mut PassedGroups::default(), Timestamp(1))
}

#[test]
fn saturated_limits_cost_a_claim_one_look() {
    let (mut index, claimant) = (ClaimIndex::<TestTurn>::default(), claimant(&ShareTerms::default()));
    for lane in 0..100 {
        let needs = Needs { limit: Some(lane.to_string()), ..Needs::default() };
        index.insert(lane, &LaneKey { queue: "a".to_owned(), needs });
        index.add(lane, (0, lane.into()));
    }
    while let Some((_, lane)) = lookup(&mut index, &claimant) {
        index.block(lane, Block { constraint: Constraint::Limit, name: lane.to_string(), until: None });
    }
    index.unblock_all_of(Constraint::Limit, "42");
    assert_eq!(lookup(&mut index, &claimant), Some(((0, 42), 42)));
    index.set_first(42, None);
    assert_eq!(lookup(&mut index, &claimant), None);
}

#[test]
fn claim_passes_over_groups_of_shares_and_takes_the_next_ones() {
    let mut index = ClaimIndex::<TestTurn>::default();
    // Of the second share, the first lane has a later turn than the second lane of the first one.
    let lanes =
        [(None, "x", "0"), (None, "x", "1"), (None, "y", "0"), (Some("s"), "x", "0"), (Some("s"), "y", "0")];
    for (lane, (share, tool, limit)) in (0..).zip(lanes) {
        let (limit, share) = (Some(limit.to_owned()), share.map(str::to_owned));
        let needs = Needs { tools: vec![tool.to_owned()], limit, share, ..Needs::default() };
        index.insert(lane, &LaneKey { queue: "a".to_owned(), needs });
        index.add(lane, (0, lane.into()));
    }
    let passed_by = |index: &mut ClaimIndex<TestTurn>, claimant: &Claimant| {
        let (mut passed, mut lanes) = (PassedGroups::default(), Vec::new());
        while let Some((_, lane)) = index.first("a", claimant, &mut passed, Timestamp(1)) {
            lanes.push(lane);
            passed.pass();
        }
        lanes
    };
    let by_share = claimant(&ShareTerms::default());
    assert_eq!(passed_by(&mut index, &by_share), [0, 2, 3, 4]);
    index.charge(((0, 0), 0), &by_share);
    assert_eq!(passed_by(&mut index, &by_share), [3, 4, 0, 2]);
    index.add(4, (0, 1));
    index.set_first(3, Some((1, 3)));
    let terms = ShareTerms { priority_queues: ["a".to_owned()].into(), ..ShareTerms::default() };
    assert_eq!(passed_by(&mut index, &claimant(&terms)), [4, 0, 2, 3]);
    assert_eq!(lookup(&mut index, &by_share), Some(((0, 1), 4)));
}

/// Claims `count` jobs of lanes that never become empty. Returns the lane of each.
fn claims(index: &mut ClaimIndex<TestTurn>, terms: &ShareTerms, count: usize) -> Vec<u32> {
    let (claimant, mut served) = (claimant(terms), Vec::new());
    while served.len() < count
        && let Some((turn, lane)) = lookup(index, &claimant)
    {
        index.charge((turn, lane), &claimant);
        served.push(lane);
    }
    served
}

const SHARES: [Option<&str>; 3] = [None, Some("s"), Some("t")];

fn with_shares() -> ClaimIndex<TestTurn> {
    let mut index = ClaimIndex::default();
    for (lane, share) in (0..).zip(SHARES) {
        let needs = Needs { share: share.map(str::to_owned), ..Needs::default() };
        index.insert(lane, &LaneKey { queue: "a".to_owned(), needs });
        index.add(lane, (0, lane.into()));
    }
    index
}

#[test]
fn claims_are_divided_by_weights() {
    let terms = ShareTerms { weights: [("s".to_owned(), 3)].into(), ..ShareTerms::default() };
    let served = claims(&mut with_shares(), &terms, 1000);
    let count = |share| served.iter().filter(|served| **served == share).count();
    assert!((570..=630).contains(&count(1)) && (190..=210).contains(&count(0)), "{} {}", count(0), count(1));
}

#[test]
fn blocked_share_saves_up_nothing() {
    let (mut index, terms) = (with_shares(), ShareTerms::default());
    let block = Block { constraint: Constraint::Limit, name: "l".to_owned(), until: None };
    index.block(1, block);
    claims(&mut index, &terms, 1000);
    index.unblock_all_of(Constraint::Limit, "l");
    let served = claims(&mut index, &terms, 300);
    let count = served.iter().filter(|share| **share == 1).count();
    assert!((100..=101).contains(&count), "{count}");
}
