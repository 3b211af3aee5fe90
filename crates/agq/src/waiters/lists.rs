//! Long polling of lists: gives elements to the connections that wait in BRPOP, BLPOP and BLMOVE,
//! first come, first served.
//!
//! A list is checked when a new waiter names it and when it has got elements. The check is a read.
//! If the read finds elements, one write takes these elements for all waiters of the list.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use agenix_protocol::{
    request::{BlockingPop, ListEnd},
    time::Timestamp,
};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::{Element, Handoff};
use crate::{
    clock::Clock,
    redis::{self, KeyCommandError},
    store::{KeyReader, KeyWriter, ListPushes, RuleResult, Store, StoreError, change, look},
};

type PopResult = Result<RuleResult<Handoff<Element>>, StoreError>;

/// Maximum number of keys that a remote store reads at once.
const KEYS_AT_ONCE: usize = 1_000;
/// Minimum number of waiters at which waiters whose connection is gone are removed.
const MIN_CLEANUP: usize = 64;

pub(super) struct ListWaiter {
    pub(super) number: u64,
    pub(super) pop: BlockingPop,
    pub(super) reply: oneshot::Sender<PopResult>,
}

pub(super) enum ListRequest {
    Enqueue(ListWaiter),
    /// The time of the waiter is over.
    Remove(u64),
}

pub(super) async fn run(
    store: Arc<dyn Store>,
    clock: Clock,
    mut requests: mpsc::UnboundedReceiver<ListRequest>,
) {
    let notifier = store.notifier();
    let (back, mut returned) = mpsc::unbounded_channel();
    let mut waiting = WaitingLists::default();
    loop {
        let (mut changed, mut new) = (HashSet::new(), HashSet::new());
        tokio::select! {
            biased;
            request = requests.recv() => match request {
                None => return,
                Some(request) => waiting.handle(request, &mut changed, &mut new),
            },
            pushed = notifier.lists() => waiting.mark_changed(pushed, &mut changed),
            Some(element) = returned.recv() => put_back(&*store, element, clock.now()),
        }
        while let Ok(request) = requests.try_recv() {
            waiting.handle(request, &mut changed, &mut new);
        }
        // Returned elements must be back before other elements are taken.
        while let Ok(element) = returned.try_recv() {
            put_back(&*store, element, clock.now());
        }
        let pops = waiting.pops(&changed, &new);
        notifier.set_list_interest(!waiting.waiters.is_empty());
        if !pops.is_empty() {
            serve(&*store, pops, clock.now(), &mut waiting, &back).await;
        }
    }
}

/// Numbers ascend in the order of arrival.
#[derive(Default)]
struct WaitingLists {
    waiters: BTreeMap<u64, ListWaiter>,
    by_key: HashMap<Bytes, BTreeSet<u64>>,
    cleanup_at: usize,
}

impl WaitingLists {
    fn handle(&mut self, request: ListRequest, changed: &mut HashSet<Bytes>, new: &mut HashSet<u64>) {
        match request {
            ListRequest::Enqueue(waiter) => {
                new.insert(waiter.number);
                self.enqueue(waiter, changed);
            }
            ListRequest::Remove(number) => drop(self.remove(number)),
        }
    }

    fn mark_changed(&self, pushed: ListPushes, changed: &mut HashSet<Bytes>) {
        changed.extend(pushed.lists);
        if pushed.any {
            changed.extend(self.by_key.keys().cloned());
        }
    }

    fn enqueue(&mut self, waiter: ListWaiter, changed: &mut HashSet<Bytes>) {
        if self.waiters.len() >= self.cleanup_at {
            let is_gone = |(number, waiter): (&u64, &ListWaiter)| waiter.reply.is_closed().then_some(*number);
            let gone: Vec<u64> = self.waiters.iter().filter_map(is_gone).collect();
            for number in gone {
                self.remove(number);
            }
            self.cleanup_at = MIN_CLEANUP.max(self.waiters.len() * 2);
        }
        for key in &waiter.pop.keys {
            self.by_key.entry(key.clone()).or_default().insert(waiter.number);
            changed.insert(key.clone());
        }
        self.waiters.insert(waiter.number, waiter);
    }

    fn remove(&mut self, number: u64) -> Option<ListWaiter> {
        let waiter = self.waiters.remove(&number)?;
        for key in &waiter.pop.keys {
            if let Some(numbers) = self.by_key.get_mut(key) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(waiter)
    }

    /// Returns the pops of the waiters of the `changed` keys, in the order of arrival.
    fn pops(&mut self, changed: &HashSet<Bytes>, new: &HashSet<u64>) -> Vec<WaitingPop> {
        let numbers = changed.iter().filter_map(|key| self.by_key.get(key)).flatten().copied();
        let mut pops = Vec::new();
        for number in numbers.collect::<BTreeSet<u64>>() {
            let Some(ListWaiter { pop, reply, .. }) = self.waiters.get(&number) else { continue };
            if reply.is_closed() {
                self.remove(number);
                continue;
            }
            let keys = pop.keys.iter().filter(|key| changed.contains(*key)).cloned().collect();
            let is_new = new.contains(&number);
            pops.push(WaitingPop { number, keys, from: pop.from, to: pop.to.clone(), is_new });
        }
        pops
    }
}

/// Pop of one waiter on the keys that must be checked.
struct WaitingPop {
    number: u64,
    /// Keys in the order of the command.
    keys: Vec<Bytes>,
    from: ListEnd,
    to: Option<(Bytes, ListEnd)>,
    is_new: bool,
}

impl WaitingPop {
    /// `empty` caches the lists that are known to be empty.
    fn take<'a>(
        &'a self,
        keyspace: &mut dyn KeyWriter,
        empty: &mut HashSet<&'a Bytes>,
        now: Timestamp,
    ) -> Result<Option<Element>, KeyCommandError> {
        for key in &self.keys {
            if empty.contains(key) {
                continue;
            }
            match redis::has_elements(keyspace, key, now) {
                Ok(true) => {}
                Ok(false) => {
                    empty.insert(key);
                    continue;
                }
                // Another type is an error for a new command. A waiting command continues to wait.
                Err(KeyCommandError::Rejected(_)) if !self.is_new => continue,
                Err(error) => return Err(error),
            }
            if let Some(value) = redis::pop(keyspace, key, self.from, self.to.as_ref(), now)? {
                let back_to = self.to.is_none().then_some(self.from);
                return Ok(Some(Element { key: key.clone(), value, back_to }));
            }
        }
        Ok(None)
    }
}

type PoppedElements = Vec<(u64, RuleResult<Element>)>;

async fn serve(
    store: &dyn Store,
    pops: Vec<WaitingPop>,
    now: Timestamp,
    waiting: &mut WaitingLists,
    back: &mpsc::UnboundedSender<Element>,
) {
    let pops: Arc<[WaitingPop]> = pops.into();
    let given: Vec<(u64, Result<RuleResult<Element>, StoreError>)> = match take_all(store, &pops, now).await {
        Ok(taken) => taken.into_iter().map(|(number, ruled)| (number, Ok(ruled))).collect(),
        Err(error) => pops.iter().map(|one| (one.number, Err(error.clone()))).collect(),
    };
    for (number, given) in given {
        let given = given.map(|ruled| ruled.map(|element| Handoff::new(element, back.clone())));
        if let Some(waiter) = waiting.remove(number) {
            // If the waiter is gone, the drop of the unsent handoff puts the element back.
            drop(waiter.reply.send(given));
        }
    }
}

async fn take_all(
    store: &dyn Store,
    pops: &Arc<[WaitingPop]>,
    now: Timestamp,
) -> Result<PoppedElements, StoreError> {
    let all = Arc::clone(pops);
    let is_anything_there = look(store, move |keyspace| is_any_there(keyspace, &all, now));
    if !is_anything_there.await? {
        return Ok(Vec::new());
    }
    let all = Arc::clone(pops);
    let taken = change(store, 0, move |keyspace| {
        for keys in keys_of(&all).chunks(KEYS_AT_ONCE) {
            keyspace.read_ahead(keys)?;
        }
        let (mut taken, mut empty) = (Vec::new(), HashSet::new());
        for one in all.iter() {
            if let Some(ruled) = redis::ruled(one.take(keyspace, &mut empty, now))?.transpose() {
                taken.push((one.number, ruled));
            }
        }
        Ok(taken)
    });
    taken.await
}

/// Returns true if any of the keys of `pops` exists.
fn is_any_there(keys: &dyn KeyReader, pops: &[WaitingPop], now: Timestamp) -> Result<bool, StoreError> {
    for some in keys_of(pops).chunks(KEYS_AT_ONCE) {
        keys.read_ahead(some)?;
        for key in some {
            if redis::is_there(keys, key, now)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the keys of `pops`, each once.
fn keys_of(pops: &[WaitingPop]) -> Vec<&[u8]> {
    let keys: BTreeSet<&[u8]> = pops.iter().flat_map(|one| &one.keys).map(|key| &key[..]).collect();
    keys.into_iter().collect()
}

/// Notifies waiters like a push. An element that was moved to another list stays there.
fn put_back(store: &dyn Store, element: Element, now: Timestamp) {
    let Element { key, value, back_to: Some(to) } = element else { return };
    // The store keeps the order of writes. Nobody waits for the result.
    drop(change(store, value.len(), move |keyspace| {
        if let Err(rejection) = redis::ruled(redis::put_back(keyspace, &key, &value, to, now))? {
            warn!(key = %key.escape_ascii(), %rejection, "an element that no client received could not be put back");
        }
        Ok(())
    }));
}

#[cfg(test)]
mod tests;
