//! Channels and patterns that a connection has subscribed to.

use std::{collections::BTreeSet, sync::Arc};

use agenix_protocol::resp::Reply;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::{
    app::AppState,
    registry::pubsub::{PubSubMessage, QueuedMessage, SubscriptionKind},
};

/// Maximum number of subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 10_000;
/// Maximum number of bytes of the names of all subscriptions of a connection.
const MAX_NAMES_BYTES: usize = 1024 * 1024;

/// A connection that reads its messages too slowly is disconnected.
pub(crate) struct Subscriptions {
    number: u64,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    /// Number of bytes of the names in `channels` and `patterns`.
    names_bytes: usize,
    messages: Option<mpsc::Receiver<QueuedMessage>>,
    /// Notified when the connection is disconnected because it reads too slowly.
    cut: Arc<Notify>,
}

impl Subscriptions {
    pub(crate) fn new(number: u64) -> Self {
        let (channels, patterns) = (BTreeSet::new(), BTreeSet::new());
        Self { number, channels, patterns, names_bytes: 0, messages: None, cut: Arc::default() }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.count() > 0
    }

    fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns one confirmation for each name, or an error if not all names fit into the bounds.
    pub(crate) fn subscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        if let Err(line) = self.check_room(by, &names) {
            return Reply::Error(line);
        }
        if self.messages.is_none() {
            self.messages = Some(app.pubsub.join(self.number, Arc::clone(&self.cut)));
        }
        let word = if by == SubscriptionKind::Name { "subscribe" } else { "psubscribe" };
        let confirm = |name: Bytes| {
            // Copy the bytes, because a slice would keep the whole read buffer alive.
            if self.set(by).insert(Bytes::copy_from_slice(&name)) {
                self.names_bytes += name.len();
            }
            app.pubsub.subscribe(self.number, by, &name);
            confirmation(word, Reply::Bulk(name), self.count())
        };
        let replies = names.into_iter().map(confirm).collect();
        app.update_event_interest();
        Reply::Several(replies)
    }

    fn check_room(&mut self, by: SubscriptionKind, names: &[Bytes]) -> Result<(), String> {
        let known = self.set(by);
        let new: BTreeSet<&Bytes> = names.iter().filter(|name| !known.contains(*name)).collect();
        let bytes = self.names_bytes + new.iter().map(|name| name.len()).sum::<usize>();
        if self.count() + new.len() > MAX_SUBSCRIPTIONS || bytes > MAX_NAMES_BYTES {
            return Err(format!(
                "ERR Too many subscriptions: max {MAX_SUBSCRIPTIONS} of a connection, with {MAX_NAMES_BYTES} bytes of names; use a pattern or another connection"
            ));
        }
        Ok(())
    }

    /// Ends all subscriptions of the kind if `names` is empty.
    pub(crate) fn unsubscribe(&mut self, app: &AppState, by: SubscriptionKind, names: Vec<Bytes>) -> Reply {
        let word = if by == SubscriptionKind::Name { "unsubscribe" } else { "punsubscribe" };
        let names = if names.is_empty() { self.set(by).iter().cloned().collect() } else { names };
        if names.is_empty() {
            return confirmation(word, Reply::Nil, self.count());
        }
        let confirm = |name: Bytes| {
            if self.set(by).remove(&name) {
                self.names_bytes -= name.len();
            }
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
        self.names_bytes = 0;
    }

    /// Returns `None` after a disconnect because of slow reading. Waits forever without a
    /// subscription.
    pub(crate) async fn next(&mut self) -> Option<PubSubMessage> {
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

pub(crate) fn delivery(message: PubSubMessage) -> Reply {
    let (channel, payload) = (Reply::Bulk(message.channel), Reply::Bulk(message.payload));
    match message.pattern {
        None => Reply::Push(vec![Reply::bulk("message"), channel, payload]),
        Some(pattern) => Reply::Push(vec![Reply::bulk("pmessage"), Reply::Bulk(pattern), channel, payload]),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use agenix_protocol::resp::Reply;
    use bytes::Bytes;

    use super::{MAX_NAMES_BYTES, MAX_SUBSCRIPTIONS, Subscriptions};
    use crate::{
        registry::pubsub::SubscriptionKind::{Name, Pattern},
        startup::services::without_tasks,
    };

    fn numbers(range: Range<usize>) -> Vec<Bytes> {
        range.map(|number| Bytes::from(number.to_string())).collect()
    }

    fn is_refused(reply: &Reply) -> bool {
        matches!(reply, Reply::Error(line) if line.starts_with("ERR Too many subscriptions: max 10000 "))
    }

    #[tokio::test]
    async fn subscriptions_of_a_connection_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let mut many = Subscriptions::new(1);
        let half = MAX_SUBSCRIPTIONS / 2;
        assert!(!is_refused(&many.subscribe(&app, Name, numbers(0..half))));
        assert!(is_refused(&many.subscribe(&app, Pattern, numbers(0..half + 1))));
        assert_eq!(many.count(), half, "a refused command subscribes to nothing");
        assert!(!is_refused(&many.subscribe(&app, Pattern, numbers(0..half))));
        assert!(!is_refused(&many.subscribe(&app, Name, numbers(0..half))), "it has these subscriptions");
        assert!(is_refused(&many.subscribe(&app, Name, numbers(half..half + 1))));
        many.unsubscribe(&app, Pattern, numbers(0..1));
        assert!(!is_refused(&many.subscribe(&app, Name, numbers(half..half + 1))));
    }

    #[tokio::test]
    async fn names_of_the_subscriptions_of_a_connection_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let mut long = Subscriptions::new(1);
        let name = |bytes: usize| vec![Bytes::from(vec![b'x'; bytes])];
        assert!(is_refused(&long.subscribe(&app, Name, name(MAX_NAMES_BYTES + 1))));
        assert!(!is_refused(&long.subscribe(&app, Name, name(MAX_NAMES_BYTES))));
        assert!(is_refused(&long.subscribe(&app, Pattern, name(1))));
        long.unsubscribe(&app, Name, Vec::new());
        assert!(!is_refused(&long.subscribe(&app, Pattern, name(1))));
        long.leave(&app);
        assert!(!is_refused(&long.subscribe(&app, Name, name(MAX_NAMES_BYTES))));
    }
}
