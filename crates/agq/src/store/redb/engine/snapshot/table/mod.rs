//! A table of a snapshot: the changes of a write transaction, over the memtable, over the database.

use std::{
    borrow::Borrow,
    iter::Peekable,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
};

use redb::{AccessGuard, Error, ReadOnlyTable, ReadableTable, ReadableTableMetadata, Value};
use serde::de::DeserializeOwned;

use crate::store::redb::{
    engine::{
        memtable::Memtable,
        raw_key::RawKey,
        snapshot::Snapshot,
        sorted_runs::{SortedRuns, Versioned},
    },
    schema::{Definition, Ordered, Result, decode},
};

/// A table of a snapshot, with the changes that a write transaction makes in it.
pub(crate) struct Table<'v, K: Ordered, V: Value + 'static> {
    definition: &'static Definition<K, V>,
    snapshot: &'v Snapshot<'v>,
    /// `None` if nothing was changed, which is so of most tables in most transactions.
    changes: Option<SortedRuns>,
}

impl<'v, K: Ordered, V: Value + 'static> Table<'v, K, V> {
    pub(crate) fn new(definition: &'static Definition<K, V>, snapshot: &'v Snapshot<'v>) -> Self {
        Self { definition, snapshot, changes: None }
    }

    /// Moves the changes into a memtable.
    pub(crate) fn take_changes(&mut self, into: &mut Memtable) {
        if let Some(rows) = self.changes.take() {
            into.put(self.definition.number, rows);
        }
    }

    fn stored(&self) -> &'v ReadOnlyTable<K, V> {
        self.snapshot.stored_table(self.definition)
    }

    /// Returns the layers above the database, newest first.
    fn layers(&self) -> impl Iterator<Item = &SortedRuns> {
        self.changes.iter().chain(self.snapshot.layers(self.definition.number))
    }

    pub(crate) fn get<'k>(&self, key: impl Borrow<K::SelfType<'k>>) -> Result<Option<ValueRef<'_, V>>> {
        let mut layers = self.layers().peekable();
        if layers.peek().is_some() {
            let raw = RawKey::of::<K>(key.borrow());
            if let Some(row) = layers.find_map(|rows| rows.get(&raw)) {
                return Ok(row.as_deref().map(ValueRef::recent));
            }
        }
        Ok(ReadableTable::get(self.stored(), key.borrow())?.map(ValueRef::Stored))
    }

    pub(crate) fn insert<'k, 'v2>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
        value: impl Borrow<V::SelfType<'v2>>,
    ) {
        let value = V::as_bytes(value.borrow()).as_ref().into();
        self.change(RawKey::of::<K>(key.borrow()), Some(value));
    }

    /// Removes a key, which need not exist.
    pub(crate) fn remove<'k>(&mut self, key: impl Borrow<K::SelfType<'k>>) {
        self.change(RawKey::of::<K>(key.borrow()), None);
    }

    fn change(&mut self, key: RawKey, value: Versioned) {
        self.changes.get_or_insert_default().insert(key, value);
    }

    pub(crate) fn remove_in<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &mut self,
        range: impl RangeBounds<KR> + 'k,
    ) -> Result<()> {
        let gone: Result<Vec<_>> =
            self.range(range)?.map(|row| Ok(RawKey::of::<K>(&row?.0.value()))).collect();
        gone?.into_iter().for_each(|key| self.change(key, None));
        Ok(())
    }

    /// Returns the number of keys. The cost is linear in the number of rows above the database.
    pub(crate) fn len(&self) -> Result<u64> {
        let stored = self.stored();
        let mut len = stored.len()?;
        let mut seen = SortedRuns::default();
        for (key, value) in self.layers().flat_map(SortedRuns::iter) {
            if seen.insert(key.clone(), None).is_some() {
                continue;
            }
            let was = ReadableTable::get(stored, K::from_bytes(key.bytes()))?.is_some();
            len = len + u64::from(value.is_some()) - u64::from(was);
        }
        Ok(len)
    }

    /// Calls `each` with the key and the value of every row, in the order of the keys.
    pub(crate) fn for_each<E: From<Error>>(
        &self,
        mut each: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.iter()?.try_for_each(|row| {
            let (key, value) = row?;
            each(key.value(), value.value())
        })
    }

    /// Returns all rows, in the order of their keys.
    pub(crate) fn iter(&self) -> Result<MergeIter<'_, K, V>> {
        self.range::<K::SelfType<'_>>(..)
    }

    pub(crate) fn range<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &self,
        range: impl RangeBounds<KR> + 'k,
    ) -> Result<MergeIter<'_, K, V>> {
        self.walk(range, false)
    }

    pub(crate) fn range_back<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &self,
        range: impl RangeBounds<KR> + 'k,
    ) -> Result<MergeIter<'_, K, V>> {
        self.walk(range, true)
    }

    fn walk<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &self,
        range: impl RangeBounds<KR> + 'k,
        is_back: bool,
    ) -> Result<MergeIter<'_, K, V>> {
        let mut sources: Vec<LayerIter<'_, K, V>> = Vec::with_capacity(3);
        if self.layers().next().is_some() {
            let raw = |bound: Bound<&KR>| bound.map(|key| RawKey::of::<K>(key.borrow()));
            let bounds = (raw(range.start_bound()), raw(range.end_bound()));
            if is_empty(&bounds) {
                return Ok(MergeIter { sources, is_back });
            }
            for rows in self.layers() {
                let rows = rows.range((bounds.0.as_ref(), bounds.1.as_ref())).map(|(key, value)| {
                    Ok((ValueRef::recent(key.bytes()), value.as_deref().map(ValueRef::recent)))
                });
                sources.extend(source(rows, is_back));
            }
        }
        let rows = ReadableTable::range::<KR>(self.stored(), range)?;
        let rows =
            rows.map(|row| row.map(|(key, value)| (ValueRef::Stored(key), Some(ValueRef::Stored(value)))));
        sources.extend(source(rows.map(|row| Ok(row?)), is_back));
        Ok(MergeIter { sources, is_back })
    }
}

impl<K: Ordered> Table<'_, K, &'static [u8]> {
    /// Returns the decoded record of a key.
    pub(crate) fn record<'k, T: DeserializeOwned>(
        &self,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<Option<T>> {
        self.get(key)?.map(|record| decode(record.value())).transpose()
    }
}

/// Returns true if no key can be between two bounds.
fn is_empty((start, end): &(Bound<RawKey>, Bound<RawKey>)) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start >= end
        }
        _ => false,
    }
}

/// A key or a value, borrowed from a layer in memory or from the database.
pub(crate) enum ValueRef<'a, T: Value + 'static> {
    Recent(&'a [u8], PhantomData<T>),
    Stored(AccessGuard<'a, T>),
}

impl<'a, T: Value + 'static> ValueRef<'a, T> {
    fn recent(bytes: &'a [u8]) -> Self {
        Self::Recent(bytes, PhantomData)
    }

    pub(crate) fn value(&self) -> T::SelfType<'_> {
        match self {
            Self::Recent(bytes, _) => T::from_bytes(bytes),
            Self::Stored(guard) => guard.value(),
        }
    }

    fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Recent(bytes, _) => look(bytes),
            Self::Stored(guard) => look(T::as_bytes(&guard.value()).as_ref()),
        }
    }
}

/// A row of a layer. The value is `None` for a tombstone.
type LayerRow<'a, K, V> = Result<(ValueRef<'a, K>, Option<ValueRef<'a, V>>)>;
type LayerIter<'a, K, V> = Peekable<Box<dyn Iterator<Item = LayerRow<'a, K, V>> + 'a>>;

/// Returns the rows of one layer in the direction of the iteration, or `None` if there are none.
fn source<'a, K: Ordered, V: Value + 'static>(
    rows: impl DoubleEndedIterator<Item = LayerRow<'a, K, V>> + 'a,
    is_back: bool,
) -> Option<LayerIter<'a, K, V>> {
    let rows: Box<dyn Iterator<Item = _>> = if is_back { Box::new(rows.rev()) } else { Box::new(rows) };
    let mut rows = rows.peekable();
    rows.peek().is_some().then_some(rows)
}

/// Merges the rows of all layers. Of rows with the same key, the newest layer wins.
pub(crate) struct MergeIter<'a, K: Ordered, V: Value + 'static> {
    /// Iterators over the layers, newest first.
    sources: Vec<LayerIter<'a, K, V>>,
    is_back: bool,
}

impl<'a, K: Ordered, V: Value + 'static> MergeIter<'a, K, V> {
    /// Returns the next row of all layers, and skips older rows with the same key.
    fn next_of_all(&mut self) -> Option<LayerRow<'a, K, V>> {
        if let [only] = self.sources.as_mut_slice() {
            return only.next();
        }
        let mut first = 0;
        for other in 1..self.sources.len() {
            if self.is_before(other, first) {
                first = other;
            }
        }
        let row = self.sources.get_mut(first)?.next()?;
        if let Ok((key, _)) = &row {
            for older in self.sources.iter_mut().skip(first + 1) {
                older.next_if(|row| row.as_ref().is_ok_and(|(other, _)| order(other, key).is_eq()));
            }
        }
        self.sources.retain_mut(|source| source.peek().is_some());
        Some(row)
    }

    /// Returns true if the next row of `one` precedes that of `other`. An error precedes all rows.
    fn is_before(&mut self, one: usize, other: usize) -> bool {
        let Ok([one, other]) = self.sources.get_disjoint_mut([one, other]) else { return false };
        match (one.peek(), other.peek()) {
            (Some(Ok((one, _))), Some(Ok((other, _)))) => {
                let order = order(one, other);
                if self.is_back { order.is_gt() } else { order.is_lt() }
            }
            (Some(Err(_)), _) => true,
            _ => false,
        }
    }
}

fn order<K: Ordered>(one: &ValueRef<'_, K>, other: &ValueRef<'_, K>) -> std::cmp::Ordering {
    one.with_bytes(|one| other.with_bytes(|other| K::ORDER(one, other)))
}

impl<'a, K: Ordered, V: Value + 'static> Iterator for MergeIter<'a, K, V> {
    type Item = Result<(ValueRef<'a, K>, ValueRef<'a, V>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_of_all()? {
                Ok((key, Some(value))) => return Some(Ok((key, value))),
                Ok((_, None)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
