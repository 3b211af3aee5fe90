//! Matches elements of lists with the connections that wait for them in BRPOP.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{Element, Handed};
use crate::store::{Ruled, Store, StoreError};

type Given = Result<Ruled<Handed<Element>>, StoreError>;
type Queue = VecDeque<oneshot::Sender<Given>>;

/// A connection that waits.
pub(super) struct Ticket {
    pub(super) key: Bytes,
    pub(super) give: oneshot::Sender<Given>,
}

pub(super) async fn run(store: Arc<dyn Store>, mut tickets: mpsc::UnboundedReceiver<Ticket>) {
    let arrivals = store.arrivals();
    let (back, mut returned) = mpsc::unbounded_channel::<Element>();
    let mut waiting: HashMap<Bytes, Queue> = HashMap::new();
    loop {
        let mut look: HashSet<Bytes> = HashSet::new();
        tokio::select! {
            ticket = tickets.recv() => match ticket {
                None => return,
                Some(ticket) => look.extend(park(&mut waiting, ticket)),
            },
            keys = arrivals.lists() => look.extend(keys),
            // Nobody received it: back to where it was; its arrival is announced as any other.
            Some(element) = returned.recv() => drop(store.push_tail(element.key, element.value)),
        }
        while let Ok(ticket) = tickets.try_recv() {
            look.extend(park(&mut waiting, ticket));
        }
        serve(&*store, &mut waiting, look, &back).await;
    }
}

/// Puts a ticket at the end of its key's queue; the key is worth a look when nobody waited there before.
fn park(waiting: &mut HashMap<Bytes, Queue>, ticket: Ticket) -> Option<Bytes> {
    let queue = waiting.entry(ticket.key.clone()).or_default();
    queue.retain(|give| !give.is_closed());
    queue.push_back(ticket.give);
    (queue.len() == 1).then_some(ticket.key)
}

async fn serve(
    store: &dyn Store,
    waiting: &mut HashMap<Bytes, Queue>,
    look: HashSet<Bytes>,
    back: &mpsc::UnboundedSender<Element>,
) {
    let mut pops = Vec::new();
    for key in look {
        let Some(queue) = waiting.get_mut(&key) else { continue };
        queue.retain(|give| !give.is_closed());
        // All pops take their place in one batch before the first answer is awaited.
        pops.extend(queue.iter().map(|_| (key.clone(), store.pop_tail(key.clone()))));
    }
    for (key, pop) in pops {
        let given = match pop.await {
            Ok(Ok(None)) => continue,
            Ok(Ok(Some(value))) => Ok(Ok(Handed::new(Element { key: key.clone(), value }, back.clone()))),
            Ok(Err(rejection)) => Ok(Err(rejection)),
            Err(error) => Err(error),
        };
        if let Some(give) = waiting.get_mut(&key).and_then(VecDeque::pop_front) {
            // Gone meanwhile: what comes back in the error is dropped, and goes back.
            drop(give.send(given));
        }
    }
    waiting.retain(|_, queue| !queue.is_empty());
}
