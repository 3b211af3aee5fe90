//! Channels and patterns that a connection has subscribed to.

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::resp::Reply;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::{
    app::AppState,
    registry::pubsub::{Message, QueuedMessage, SubscriptionKind},
};

/// A connection that reads its messages too slowly is disconnected.
pub(crate) struct Subscriptions {
    number: u64,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    messages: Option<mpsc::Receiver<QueuedMessage>>,
    /// Notified when the connection is disconnected because it reads too slowly.
    cut: Arc<Notify>,
}

impl Subscriptions {
    pub(crate) fn new(number: u64) -> Self {
        let (channels, patterns) = (BTreeSet::new(), BTreeSet::new());
        Self { number, channels, patterns, messages: None, cut: Arc::default() }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.count() > 0
    }

    fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns one confirmation for each name.
    pub(crate) fn subscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        if self.messages.is_none() {
            self.messages = Some(app.pubsub.join(self.number, Arc::clone(&self.cut)));
        }
        let word = if by == SubscriptionKind::Name { "subscribe" } else { "psubscribe" };
        let confirm = |name: Bytes| {
            self.set(by).insert(name.clone());
            app.pubsub.subscribe(self.number, by, &name);
            confirmation(word, Reply::Bulk(name), self.count())
        };
        let replies = names.into_iter().map(confirm).collect();
        app.update_event_interest();
        Reply::Several(replies)
    }

    /// Ends all subscriptions of the kind if `names` is empty.
    pub(crate) fn unsubscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
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
        let replies = names.into_iter().map(confirm).collect();
        app.update_event_interest();
        Reply::Several(replies)
    }

    fn set(&mut self, by: SubscriptionKind) -> &mut BTreeSet<Bytes> {
        match by {
            SubscriptionKind::Name => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    pub(crate) fn leave(&mut self, app: &AppState) {
        if self.messages.take().is_some() {
            app.pubsub.leave(self.number);
            app.update_event_interest();
        }
        self.channels.clear();
        self.patterns.clear();
    }

    /// Returns `None` after a disconnect because of slow reading. Waits forever without a
    /// subscription.
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

    pub(crate) fn cut(&self) -> Arc<Notify> {
        Arc::clone(&self.cut)
    }
}

fn confirmation(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::bulk(word), name, Reply::count(count)])
}

pub(crate) fn delivery(message: Message) -> Reply {
    let (channel, payload) = (Reply::Bulk(message.channel), Reply::Bulk(message.payload));
    match message.pattern {
        None => Reply::Push(vec![Reply::bulk("message"), channel, payload]),
        Some(pattern) => Reply::Push(vec![Reply::bulk("pmessage"), Reply::Bulk(pattern), channel, payload]),
    }
}
