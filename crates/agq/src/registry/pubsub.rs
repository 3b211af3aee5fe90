//! Subscriptions of this node, and the delivery of messages to subscribers. Messages are not
//! stored, so a client that is not subscribed misses them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock},
};

use agenix_protocol::{documents::JOB_UPDATES, glob, reserved_keys::is_reply};
use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::sync::lock;

/// Maximum undelivered messages of a subscriber. A slower subscriber is disconnected, as in Redis.
const MAX_WAITING: usize = 10_000;
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PubSubMessage {
    /// Pattern that matched the channel, if the subscription is to a pattern.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

/// Sends a message to the other nodes: channel, payload.
type PeerSender = Box<dyn Fn(&Bytes, &Bytes) + Send + Sync>;

#[derive(Default)]
pub(crate) struct PubSub {
    inner: Mutex<PubSubTables>,
    /// Unset if there are no other nodes.
    send_to_peers: OnceLock<PeerSender>,
}

#[derive(Default)]
struct PubSubTables {
    listeners: HashMap<u64, Subscriber>,
    channels: HashMap<Bytes, HashSet<u64>>,
    patterns: HashMap<Bytes, HashSet<u64>>,
    /// Receivers of a single message on a reply channel, which no other subscriber gets.
    replies: HashMap<Bytes, oneshot::Sender<Bytes>>,
}

/// Message queue of a subscriber, with its free capacity in bytes.
struct Subscriber {
    sender: mpsc::Sender<QueuedMessage>,
    capacity: Arc<Semaphore>,
    /// Notified when the subscriber is disconnected for being too slow.
    disconnect: Arc<Notify>,
}

/// Uses capacity of its subscriber until the message is dropped.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) message: PubSubMessage,
    _capacity: OwnedSemaphorePermit,
}

impl Subscriber {
    /// Returns false if the capacity does not suffice.
    fn try_send(&self, message: PubSubMessage) -> bool {
        let bytes = u32::try_from(message.channel.len() + message.payload.len()).unwrap_or(u32::MAX);
        let capacity = Arc::clone(&self.capacity).try_acquire_many_owned(bytes);
        capacity.is_ok_and(|capacity| {
            self.sender.try_send(QueuedMessage { message, _capacity: capacity }).is_ok()
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Name,
    Pattern,
}

impl PubSub {
    /// The receiver ends when the subscriber is disconnected for being too slow.
    pub(crate) fn join(&self, number: u64, disconnect: Arc<Notify>) -> mpsc::Receiver<QueuedMessage> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let capacity = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
        lock(&self.inner).listeners.insert(number, Subscriber { sender, capacity, disconnect });
        receiver
    }

    pub(crate) fn subscribe(&self, number: u64, by: SubscriptionKind, name: &Bytes) {
        // Copy the bytes, because a slice would keep the whole read buffer alive.
        let name = Bytes::copy_from_slice(name);
        lock(&self.inner).table(by).entry(name).or_default().insert(number);
    }

    pub(crate) fn unsubscribe(&self, number: u64, by: SubscriptionKind, name: &Bytes) {
        let mut inner = lock(&self.inner);
        let table = inner.table(by);
        if let Some(listeners) = table.get_mut(name) {
            listeners.remove(&number);
            if listeners.is_empty() {
                table.remove(name);
            }
        }
    }

    pub(crate) fn leave(&self, number: u64) {
        lock(&self.inner).leave(number);
    }

    /// Returns the receiver of a single message. Dropping the receiver cancels the reply.
    pub(crate) fn reply_on(&self, channel: Bytes) -> oneshot::Receiver<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let replies = &mut lock(&self.inner).replies;
        replies.retain(|_, waiting| !waiting.is_closed());
        replies.insert(channel, sender);
        receiver
    }

    /// Passes published messages, with their channel, also to `send_to_peers`.
    pub(crate) fn connect_peers(&self, send_to_peers: impl Fn(&Bytes, &Bytes) + Send + Sync + 'static) {
        // The method is called once, at the start of agq.
        let _already = self.send_to_peers.set(Box::new(send_to_peers));
    }

    /// Publishes a message at all nodes. Returns the number of subscribers at this node.
    pub(crate) fn publish(&self, channel: &Bytes, payload: &Bytes) -> usize {
        // Copy the bytes, because a slice would keep the whole read buffer alive.
        let (channel, payload) = (&Bytes::copy_from_slice(channel), &Bytes::copy_from_slice(payload));
        // Only one node has the receiver of a reply.
        if is_reply(channel) && self.publish_here(channel, payload) > 0 {
            return 1;
        }
        if let Some(send_to_peers) = self.send_to_peers.get() {
            send_to_peers(channel, payload);
        }
        self.publish_here(channel, payload)
    }

    /// Publishes a message at this node. Returns the number of subscribers. Keeps the bytes until
    /// every subscriber has received them.
    pub(crate) fn publish_here(&self, channel: &Bytes, payload: &Bytes) -> usize {
        let mut inner = lock(&self.inner);
        if is_reply(channel) {
            let waiting = inner.replies.remove(channel);
            return usize::from(waiting.is_some_and(|waiting| waiting.send(payload.clone()).is_ok()));
        }
        let message = |pattern: Option<&Bytes>| PubSubMessage {
            pattern: pattern.cloned(),
            channel: channel.clone(),
            payload: payload.clone(),
        };
        let by_name =
            inner.channels.get(channel).into_iter().flatten().map(|number| (*number, message(None)));
        let matching = inner.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let by_pattern = matching.flat_map(|(pattern, numbers)| {
            numbers.iter().map(move |number| (*number, message(Some(pattern))))
        });
        let messages: Vec<(u64, PubSubMessage)> = by_name.chain(by_pattern).collect();
        let count = messages.len();
        for (number, message) in messages {
            let is_slow = inner.listeners.get(&number).is_some_and(|listener| !listener.try_send(message));
            if is_slow {
                if let Some(listener) = inner.listeners.get(&number) {
                    listener.disconnect.notify_one();
                }
                inner.leave(number);
            }
        }
        count
    }

    /// Calls `notify` under the lock, so that subscriptions cannot change before it has returned.
    pub(crate) fn update_interest(&self, notify: impl FnOnce(bool)) {
        let inner = lock(&self.inner);
        notify(inner.has_event_subscribers());
    }

    /// Returns the smallest free capacity, in messages, among the subscribers to events.
    pub(crate) fn free_capacity(&self) -> usize {
        let inner = lock(&self.inner);
        let matches_events = |pattern: &Bytes| {
            glob::matches(pattern, JOB_UPDATES.as_bytes()) || pattern.starts_with(b"action:")
        };
        let patterns = inner.patterns.iter().filter(|(pattern, _)| matches_events(pattern));
        let subscriptions = inner.channels.iter().filter(|(name, _)| is_event_channel(name)).chain(patterns);
        let listeners =
            subscriptions.flat_map(|(_, numbers)| numbers).filter_map(|number| inner.listeners.get(number));
        listeners.map(|listener| listener.sender.capacity()).min().unwrap_or(usize::MAX)
    }
}

fn is_event_channel(channel: &Bytes) -> bool {
    channel.starts_with(b"job:") || channel.starts_with(b"action:")
}

impl PubSubTables {
    fn has_event_subscribers(&self) -> bool {
        !self.patterns.is_empty() || self.channels.keys().any(is_event_channel)
    }

    fn table(&mut self, by: SubscriptionKind) -> &mut HashMap<Bytes, HashSet<u64>> {
        match by {
            SubscriptionKind::Name => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    fn leave(&mut self, number: u64) {
        self.listeners.remove(&number);
        for table in [&mut self.channels, &mut self.patterns] {
            table.retain(|_, listeners| {
                listeners.remove(&number);
                !listeners.is_empty()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{MAX_WAITING, MAX_WAITING_BYTES, PubSub, SubscriptionKind};

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn publish_delivers_once_per_subscription() {
        let pubsub = PubSub::default();
        let mut one = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("job:updates"));
        pubsub.subscribe(1, SubscriptionKind::Pattern, &text("job:*"));
        pubsub.update_interest(|has_subscribers| assert!(has_subscribers));
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 2);
        let patterns =
            [one.try_recv().unwrap(), one.try_recv().unwrap()].map(|delivery| delivery.message.pattern);
        assert_eq!(patterns, [None, Some(text("job:*"))]);
        pubsub.unsubscribe(1, SubscriptionKind::Name, &text("job:updates"));
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 1);
        pubsub.leave(1);
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 0);
        pubsub.update_interest(|has_subscribers| assert!(!has_subscribers));
    }

    #[test]
    fn reply_is_delivered_to_its_receiver_only_and_once() {
        let pubsub = PubSub::default();
        let mut other = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("worker:w:reply:r"));
        pubsub.subscribe(1, SubscriptionKind::Pattern, &text("*"));
        let mut waits = pubsub.reply_on(text("worker:w:reply:r"));
        assert_eq!(pubsub.publish(&text("worker:w:reply:r"), &text("x")), 1);
        assert_eq!(waits.try_recv(), Ok(text("x")));
        assert_eq!(pubsub.publish(&text("worker:w:reply:r"), &text("x")), 0);
        drop(pubsub.reply_on(text("worker:w:reply:gone")));
        assert_eq!(pubsub.publish(&text("worker:w:reply:gone"), &text("x")), 0);
        assert!(other.try_recv().is_err());
    }

    #[test]
    fn slow_subscriber_is_disconnected() {
        let pubsub = PubSub::default();
        let mut slow = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("c"));
        for _ in 0..=MAX_WAITING {
            pubsub.publish(&text("c"), &text("x"));
        }
        assert_eq!(pubsub.publish(&text("c"), &text("x")), 0);
        let received = std::iter::from_fn(|| slow.try_recv().ok()).count();
        assert_eq!((received, slow.is_closed()), (MAX_WAITING, true));
    }

    #[test]
    fn waiting_message_keeps_no_read_buffer_alive() {
        let pubsub = PubSub::default();
        let mut one = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("c"));
        let read_buffer = Bytes::from(vec![b'c'; 1000]);
        let (channel, payload) = (read_buffer.slice(..1), read_buffer.slice(1..2));
        assert_eq!(pubsub.publish(&channel, &payload), 1);
        let message = one.try_recv().unwrap().message;
        assert_eq!((&message.channel, &message.payload), (&channel, &payload));
        assert_ne!(message.channel.as_ptr(), channel.as_ptr());
        assert_ne!(message.payload.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn subscriber_queue_is_bounded_in_bytes() {
        let pubsub = PubSub::default();
        let mut slow = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("c"));
        let large = Bytes::from(vec![0; MAX_WAITING_BYTES / 4]);
        for _ in 0..4 {
            pubsub.publish(&text("c"), &large);
        }
        assert_eq!(pubsub.publish(&text("c"), &large), 0, "the fourth did not fit beside its channel's name");
        assert_eq!(std::iter::from_fn(|| slow.try_recv().ok()).count(), 3);
    }
}
