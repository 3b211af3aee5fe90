//! The channels that a connection listens to.

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::resp::Reply;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::{
    app::AppState,
    registry::pubsub::{Message, QueuedMessage, SubscriptionKind},
};

/// What one connection listens to.
pub(crate) struct Subscriptions {
    number: u64,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    /// Where the messages come in, once it listens.
    messages: Option<mpsc::Receiver<QueuedMessage>>,
    /// Told when it is cut off.
    cut: Arc<Notify>,
}

impl Subscriptions {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            messages: None,
            cut: Arc::default(),
        }
    }

    /// Whether it listens to anything.
    pub(crate) fn is_listening(&self) -> bool {
        self.count() > 0
    }

    fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Listens to more channels or patterns; one confirmation each.
    pub(crate) fn subscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let reply = self.add(app, by, names);
        app.update_event_interest();
        reply
    }

    /// Listens to some channels or patterns no more, or to none of them where none is named.
    pub(crate) fn unsubscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let reply = self.remove(app, by, names);
        app.update_event_interest();
        reply
    }

    fn add(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        if self.messages.is_none() {
            self.messages = Some(app.pubsub.join(self.number, Arc::clone(&self.cut)));
        }
        let confirm = |name: Bytes| {
            self.set(by).insert(name.clone());
            app.pubsub.subscribe(self.number, by, &name);
            confirmation(
                if by == SubscriptionKind::Name { "subscribe" } else { "psubscribe" },
                Reply::Bulk(name),
                self.count(),
            )
        };
        Reply::Several(names.into_iter().map(confirm).collect())
    }

    fn remove(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let word = if by == SubscriptionKind::Name { "unsubscribe" } else { "punsubscribe" };
        let names = if names.is_empty() { self.set(by).iter().cloned().collect() } else { names };
        if names.is_empty() {
            return confirmation(word, Reply::Nil, self.count());
        }
        let confirm = |name: Bytes| {
            self.set(by).remove(&name);
            app.pubsub.unsubscribe(self.number, by, &name);
            confirmation(word, Reply::Bulk(name), self.count())
        };
        Reply::Several(names.into_iter().map(confirm).collect())
    }

    fn set(&mut self, by: SubscriptionKind) -> &mut BTreeSet<Bytes> {
        match by {
            SubscriptionKind::Name => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    /// Listens to nothing any more.
    pub(crate) fn leave(&mut self, app: &AppState) {
        if self.messages.take().is_some() {
            app.pubsub.leave(self.number);
            app.update_event_interest();
        }
        self.channels.clear();
        self.patterns.clear();
    }

    /// Waits for the next message that is still wanted; `None` when the connection was cut off for being too slow. Waits for ever
    /// where it does not listen.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let Some(messages) = &mut self.messages else { return std::future::pending().await };
        loop {
            let message = messages.recv().await?.message;
            let is_wanted = match &message.pattern {
                Some(pattern) => self.patterns.contains(pattern),
                None => self.channels.contains(&message.channel),
            };
            if is_wanted {
                return Some(message);
            }
        }
    }

    /// What is told when the connection is cut off.
    pub(crate) fn cut(&self) -> Arc<Notify> {
        Arc::clone(&self.cut)
    }
}

fn confirmation(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), name, Reply::count(count)])
}

/// A message as it goes over the wire.
pub(crate) fn delivery(message: Message) -> Reply {
    let (channel, payload) = (Reply::Bulk(message.channel), Reply::Bulk(message.payload));
    match message.pattern {
        None => Reply::Push(vec![Reply::bulk("message"), channel, payload]),
        Some(pattern) => Reply::Push(vec![Reply::bulk("pmessage"), Reply::Bulk(pattern), channel, payload]),
    }
}
