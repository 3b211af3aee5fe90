//! The channels that a connection listens to.

use std::collections::BTreeSet;

use agenix_protocol::{request::Request, resp::Reply};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    house::House,
    hub::{By, Delivery, Message},
};

/// What one connection listens to.
pub(super) struct Subscriptions {
    number: u64,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    /// Where the messages come in, once it listens.
    messages: Option<mpsc::Receiver<Delivery>>,
}

impl Subscriptions {
    pub(super) fn new(number: u64) -> Self {
        Self { number, channels: BTreeSet::new(), patterns: BTreeSet::new(), messages: None }
    }

    /// Whether it listens to anything.
    pub(super) fn is_listening(&self) -> bool {
        self.count() > 0
    }

    fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Carries out SUBSCRIBE and its like; any other request comes back.
    pub(super) fn change(&mut self, house: &House, request: Request) -> Result<Reply, Box<Request>> {
        let reply = match request {
            Request::Subscribe { channels } => self.add(house, By::Name, channels),
            Request::PSubscribe { patterns } => self.add(house, By::Pattern, patterns),
            Request::Unsubscribe { channels } => self.remove(house, By::Name, channels),
            Request::PUnsubscribe { patterns } => self.remove(house, By::Pattern, patterns),
            other => return Err(Box::new(other)),
        };
        tell_whether_heard(house);
        Ok(reply)
    }

    fn add(&mut self, house: &House, by: By, names: Vec<Bytes>) -> Reply {
        if self.messages.is_none() {
            self.messages = Some(house.hub.join(self.number));
        }
        let confirm = |name: Bytes| {
            self.set(by).insert(name.clone());
            house.hub.subscribe(self.number, by, name.clone());
            confirmation(
                if by == By::Name { "subscribe" } else { "psubscribe" },
                Reply::Bulk(name),
                self.count(),
            )
        };
        Reply::Several(names.into_iter().map(confirm).collect())
    }

    fn remove(&mut self, house: &House, by: By, names: Vec<Bytes>) -> Reply {
        let word = if by == By::Name { "unsubscribe" } else { "punsubscribe" };
        let names = if names.is_empty() { self.set(by).iter().cloned().collect() } else { names };
        if names.is_empty() {
            return confirmation(word, Reply::Nil, self.count());
        }
        let confirm = |name: Bytes| {
            self.set(by).remove(&name);
            house.hub.unsubscribe(self.number, by, &name);
            confirmation(word, Reply::Bulk(name), self.count())
        };
        Reply::Several(names.into_iter().map(confirm).collect())
    }

    fn set(&mut self, by: By) -> &mut BTreeSet<Bytes> {
        match by {
            By::Name => &mut self.channels,
            By::Pattern => &mut self.patterns,
        }
    }

    /// Listens to nothing any more.
    pub(super) fn leave(&mut self, house: &House) {
        if self.messages.take().is_some() {
            house.hub.leave(self.number);
            tell_whether_heard(house);
        }
        self.channels.clear();
        self.patterns.clear();
    }

    /// Waits for the next message; `None` when the connection was cut off for being too slow. Waits for ever where it does
    /// not listen.
    pub(super) async fn next(&mut self) -> Option<Message> {
        match &mut self.messages {
            Some(messages) => messages.recv().await.map(|delivery| delivery.message),
            None => std::future::pending().await,
        }
    }
}

/// News cost something to collect: the store does it while someone listens.
fn tell_whether_heard(house: &House) {
    house.hub.tell_whether_heard(|is_heard| house.store.arrivals().set_heard(is_heard));
}

fn confirmation(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), name, Reply::count(count)])
}

/// A message as it goes over the wire.
pub(super) fn delivery(message: Message) -> Reply {
    let (channel, payload) = (Reply::Bulk(message.channel), Reply::Bulk(message.payload));
    match message.pattern {
        None => Reply::Push(vec![Reply::bulk("message"), channel, payload]),
        Some(pattern) => Reply::Push(vec![Reply::bulk("pmessage"), Reply::Bulk(pattern), channel, payload]),
    }
}
