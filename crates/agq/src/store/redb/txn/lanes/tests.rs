//! Tests of the cached lanes.

use std::collections::BTreeSet;

use agenix_protocol::ids::JobId;
use agenix_rules::capability::{ClaimantCapabilities, Needs};
use proptest::prelude::*;

use super::{LaneKey, LaneTurn, Lanes, MAX_HEADS};
use crate::store::redb::{
    engine::Versions,
    file::migrations,
    schema::LANES,
    txn::{WriteTxn, writer_cache::WriterCache},
};

fn key(queue: &str) -> LaneKey {
    LaneKey { queue: queue.into(), needs: Needs::default() }
}

fn load(versions: &Versions) -> WriterCache {
    WriterCache::load(&versions.snapshot()).unwrap()
}

fn batch(versions: &Versions, cache: &mut WriterCache, work: impl FnOnce(&mut Lanes)) {
    let snapshot = versions.snapshot();
    let batch = WriteTxn::open(&snapshot, cache, false);
    work(&mut batch.cache.lanes);
    let closed = batch.close().unwrap();
    drop(snapshot);
    versions.absorb(closed.changes);
}

/// Adds a job that is not ready to the lane of a queue.
fn fill(lanes: &mut Lanes, queue: &str) -> u32 {
    let number = lanes.number(key(queue));
    lanes.adjust_total(number, 1);
    number
}

fn stored(versions: &Versions) -> u64 {
    versions.snapshot().table(&LANES).len().unwrap()
}

#[test]
fn lane_is_removed_with_its_last_job_and_its_number_is_reused() {
    let database = migrations::in_memory();
    let mut cache = load(&database);
    batch(&database, &mut cache, |lanes| {
        assert_eq!(["a", "b", "c"].map(|queue| fill(lanes, queue)), [0, 1, 2]);
        assert_eq!(fill(lanes, "b"), 1);
    });
    batch(&database, &mut cache, |lanes| lanes.adjust_total(1, -1));
    assert_eq!(stored(&database), 3, "b has a job yet");
    batch(&database, &mut cache, |lanes| {
        lanes.adjust_total(1, -1);
        lanes.adjust_total(0, -1);
        assert_eq!(fill(lanes, "d"), 3, "within a batch no number is given twice");
    });
    assert_eq!(stored(&database), 2);
    // The lanes in memory and those that a restart loads assign the same numbers.
    for WriterCache { lanes, .. } in [&mut cache, &mut load(&database)] {
        let numbers = ["c", "d", "e", "a", "f"].map(|queue| lanes.number(key(queue)));
        assert_eq!(numbers, [2, 3, 0, 1, 4]);
    }
}

#[test]
fn lane_stays_if_a_batch_replaces_its_last_job() {
    let database = migrations::in_memory();
    let mut cache = load(&database);
    batch(&database, &mut cache, |lanes| assert_eq!(fill(lanes, "a"), 0));
    batch(&database, &mut cache, |lanes| {
        lanes.adjust_total(0, -1);
        assert_eq!(fill(lanes, "a"), 0);
        lanes.add_ready(0, (0, 1), &job((0, 1)));
    });
    for WriterCache { lanes, .. } in [&cache, &load(&database)] {
        assert_eq!(lanes.with_jobs_for("a", &ClaimantCapabilities::Anything), [0]);
    }
}

fn job(turn: LaneTurn) -> JobId {
    JobId::new(format!("job-{}-{}", turn.0, turn.1)).unwrap()
}

#[test]
fn lane_caches_first_jobs_until_all_are_claimed() {
    let mut lanes = Lanes::default();
    let number = lanes.number(key("a"));
    let first = |lanes: &Lanes| lanes.first(number).map(|(turn, _)| *turn);
    let last = MAX_HEADS as u64 + 1;
    (1..=last).for_each(|seq| lanes.add_ready(number, (100, seq), &job((100, seq))));
    for seq in 1..last {
        assert_eq!(first(&lanes), Some((100, seq)));
        lanes.remove_ready(number, (100, seq));
    }
    assert_eq!((first(&lanes), lanes.cursor(number)), (None, (100, last - 1)), "nobody has looked");
    lanes.add_ready(number, (100, last + 1), &job((100, last + 1)));
    assert_eq!(first(&lanes), None, "it is behind one that nobody knows");
    lanes.set_cursor(number, [((100, last), job((100, last)))].into());
    assert_eq!(first(&lanes), Some((100, last)));
}

proptest! {
    #[test]
    fn lane_cache_is_a_prefix_of_the_ready_jobs(
        steps in prop::collection::vec((0_u8..3, 0_u8..3, 0_u64..40), 1..200),
    ) {
        let mut lanes = Lanes::default();
        let number = lanes.number(key("a"));
        let mut ready = BTreeSet::new();
        for (step, rank, seq) in steps {
            let turn = (rank, seq);
            match step {
                0 if ready.insert(turn) => lanes.add_ready(number, turn, &job(turn)),
                1 if ready.remove(&turn) => lanes.remove_ready(number, turn),
                _ if lanes.first(number).is_none() => {
                    let from = lanes.cursor(number);
                    let heads = ready.range(from..).take(MAX_HEADS).map(|turn| (*turn, job(*turn)));
                    lanes.set_cursor(number, heads.collect());
                    prop_assert_eq!(lanes.first(number).is_some(), !ready.is_empty());
                }
                _ => {}
            }
            let lane = &lanes.lanes[&number];
            prop_assert!(lane.heads.iter().eq(ready.iter().map(|turn| (*turn, job(*turn))).take(lane.heads.len()).collect::<Vec<_>>().iter()));
            prop_assert!(lane.heads.len() <= MAX_HEADS && lane.ready == ready.len() as u64);
            prop_assert!(ready.first().is_none_or(|first| lane.beginning <= *first));
        }
    }
}

#[test]
fn lane_without_jobs_is_not_stored() {
    let database = migrations::in_memory();
    let mut cache = load(&database);
    batch(&database, &mut cache, |lanes| assert_eq!(lanes.number(key("a")), 0));
    assert_eq!(stored(&database), 0);
    assert_eq!(cache.lanes.number(key("b")), 0);
}
