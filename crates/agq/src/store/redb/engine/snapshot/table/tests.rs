//! Compares a table of three layers with one ordered map.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

use proptest::prelude::*;

use super::Table;
use crate::store::redb::{
    engine::{memtable::Memtable, snapshot::Versions},
    file::migrations,
    schema::{Definition, EXPIRIES, Result},
};

type TestKey = (u64, &'static [u8]);
type TableModel = BTreeMap<(u64, Vec<u8>), ()>;

const TABLE: &Definition<TestKey, ()> = &EXPIRIES;

/// Key and member of a row, and true if it is inserted, or false if it is removed.
#[derive(Debug, Clone)]
struct TableStep(u64, Vec<u8>, bool);

fn steps() -> impl Strategy<Value = Vec<TableStep>> {
    let key = prop_oneof![Just(Vec::new()), Just(b"a".to_vec()), Just(b"ab".to_vec())];
    proptest::collection::vec(
        (0_u64..300, key, any::<bool>()).prop_map(|(n, key, is_in)| TableStep(n / 50, key, is_in)),
        0..20,
    )
}

fn play(table: &mut Table<'_, TestKey, ()>, model: &mut TableModel, steps: &[TableStep]) {
    for TableStep(at, key, is_in) in steps {
        if *is_in {
            table.insert((*at, key.as_slice()), ());
            model.insert((*at, key.clone()), ());
        } else {
            table.remove((*at, key.as_slice()));
            model.remove(&(*at, key.clone()));
        }
    }
}

fn changes(versions: &Versions, model: &mut TableModel, steps: &[TableStep]) -> Memtable {
    let snapshot = versions.snapshot();
    let mut table = snapshot.table(TABLE);
    play(&mut table, model, steps);
    let mut changes = Memtable::default();
    table.take_changes(&mut changes);
    changes
}

fn keys<'t>(
    rows: impl Iterator<Item = Result<(super::ValueRef<'t, TestKey>, super::ValueRef<'t, ()>)>>,
) -> Vec<(u64, Vec<u8>)> {
    rows.map(|row| {
        let (key, _) = row.unwrap();
        let (at, key) = key.value();
        (at, key.to_vec())
    })
    .collect()
}

proptest! {
    #[test]
    fn table_behaves_like_one_map(stored in steps(), recent in steps(), changed in steps(), from in 0_u64..6, to in 0_u64..7) {
        let versions = migrations::in_memory();
        let mut model = TableModel::new();
        let below = changes(&versions, &mut model, &stored);
        let transaction = versions.begin_write().unwrap();
        below.write(&transaction).unwrap();
        transaction.commit().unwrap();
        versions.refresh(&versions.pin()).unwrap();
        let above = changes(&versions, &mut model, &recent);
        versions.absorb(above);
        let snapshot = versions.snapshot();
        let mut table = snapshot.table(TABLE);
        play(&mut table, &mut model, &changed);

        let all: Vec<_> = model.keys().cloned().collect();
        prop_assert_eq!(&keys(table.iter().unwrap()), &all);
        prop_assert_eq!(table.len().unwrap(), all.len() as u64);
        for at in 0..6 {
            for key in [&b""[..], b"a", b"ab"] {
                let is_there = table.get((at, key)).unwrap().is_some();
                prop_assert_eq!(is_there, model.contains_key(&(at, key.to_vec())));
            }
        }
        let bounds = [
            (Bound::Included(from), Bound::Excluded(to)),
            (Bound::Excluded(from), Bound::Included(to)),
            (Bound::Unbounded, Bound::Excluded(to)),
        ];
        for bounds in bounds {
            let of_key = |bound: Bound<u64>| bound.map(|at| (at, &b"a"[..]));
            let of_model = |bound: Bound<u64>| bound.map(|at| (at, b"a".to_vec()));
            let range = (of_key(bounds.0), of_key(bounds.1));
            let within = (of_model(bounds.0), of_model(bounds.1));
            let mut expected: Vec<_> = all.iter().filter(|key| within.contains(key)).cloned().collect();
            prop_assert_eq!(keys(table.range(range).unwrap()), expected.clone());
            expected.reverse();
            prop_assert_eq!(keys(table.range_back(range).unwrap()), expected);
        }
        table.remove_in((from, &b""[..])..(to, &b""[..])).unwrap();
        let left: Vec<_> = all.into_iter().filter(|(at, _)| !(from..to).contains(at)).collect();
        prop_assert_eq!(keys(table.iter().unwrap()), left);
    }
}
