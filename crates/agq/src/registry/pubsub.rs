//! Who listens to which channel, and what they are told. Messages are not kept: who does not listen misses them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use agenix_protocol::{documents::JOB_UPDATES, glob, reserved_keys::is_reply};
use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Most messages that wait for one listener: one that falls behind further is cut off, as Redis does.
const MAX_WAITING: usize = 10_000;
/// Most bytes of them.
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

/// A message on its way to a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The pattern that it came by, where it came by one.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

/// Listeners and their channels.
#[derive(Default)]
pub(crate) struct PubSub {
    inner: Mutex<PubSubTables>,
    /// The way to those who listen at other nodes.
    others: OnceLock<mpsc::Sender<(Bytes, Bytes)>>,
}

#[derive(Default)]
struct PubSubTables {
    listeners: HashMap<u64, Subscriber>,
    channels: HashMap<Bytes, HashSet<u64>>,
    patterns: HashMap<Bytes, HashSet<u64>>,
    /// Who waits for one message on a channel that nobody else hears (`reserved_keys::is_reply`).
    replies: HashMap<Bytes, oneshot::Sender<Bytes>>,
}

/// Where messages go to, and how many bytes of them may still wait.
struct Subscriber {
    give: mpsc::Sender<QueuedMessage>,
    room: Arc<Semaphore>,
    /// Told when it is cut off.
    cut: Arc<Notify>,
}

/// A message that takes its room until it is dropped.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) message: Message,
    _room: OwnedSemaphorePermit,
}

impl Subscriber {
    /// Whether it could be told.
    fn tell(&self, message: Message) -> bool {
        let bytes = u32::try_from(message.channel.len() + message.payload.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        room.is_ok_and(|room| self.give.try_send(QueuedMessage { message, _room: room }).is_ok())
    }
}

/// A channel by its name, or all that match a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Name,
    Pattern,
}

impl PubSub {
    /// A connection begins to listen. The receiver ends when it was cut off for being too slow.
    pub(crate) fn join(&self, number: u64, cut: Arc<Notify>) -> mpsc::Receiver<QueuedMessage> {
        let (give, receiver) = mpsc::channel(MAX_WAITING);
        let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
        self.lock().listeners.insert(number, Subscriber { give, room, cut });
        receiver
    }

    /// A connection listens to a channel or pattern too.
    pub(crate) fn subscribe(&self, number: u64, by: SubscriptionKind, name: &Bytes) {
        // A copy: a slice would keep all that was read with it.
        let name = Bytes::copy_from_slice(name);
        self.lock().table(by).entry(name).or_default().insert(number);
    }

    /// A connection listens to a channel or pattern no more.
    pub(crate) fn unsubscribe(&self, number: u64, by: SubscriptionKind, name: &Bytes) {
        let mut inner = self.lock();
        let table = inner.table(by);
        if let Some(listeners) = table.get_mut(name) {
            listeners.remove(&number);
            if listeners.is_empty() {
                table.remove(name);
            }
        }
    }

    /// A connection listens no more.
    pub(crate) fn leave(&self, number: u64) {
        self.lock().leave(number);
    }

    /// The one message that comes on a channel for replies. Who gives up waiting drops the receiver.
    pub(crate) fn reply_on(&self, channel: Bytes) -> oneshot::Receiver<Bytes> {
        let (give, get) = oneshot::channel();
        let replies = &mut self.lock().replies;
        replies.retain(|_, waiting| !waiting.is_closed());
        replies.insert(channel, give);
        get
    }

    /// There are other nodes: what is published is told to them, too. Messages that they are too slow for are not.
    pub(crate) fn connect_peers(&self, others: mpsc::Sender<(Bytes, Bytes)>) {
        // Said once, when agq starts.
        let _already = self.others.set(others);
    }

    /// Tells everyone who listens to the channel; how many were told here.
    pub(crate) fn publish(&self, channel: &Bytes, payload: &Bytes) -> usize {
        // Who waits for a reply is at one node.
        if is_reply(channel) && self.publish_here(channel, payload) > 0 {
            return 1;
        }
        if let Some(others) = self.others.get() {
            let _full = others.try_send((channel.clone(), payload.clone()));
        }
        self.publish_here(channel, payload)
    }

    /// Tells everyone who listens to the channel at this node; how many that were.
    pub(crate) fn publish_here(&self, channel: &Bytes, payload: &Bytes) -> usize {
        let mut inner = self.lock();
        // A copy: a slice would keep all that was read with it.
        let payload = Bytes::copy_from_slice(payload);
        if is_reply(channel) {
            let waiting = inner.replies.remove(channel);
            return usize::from(waiting.is_some_and(|waiting| waiting.send(payload).is_ok()));
        }
        let told = |pattern: Option<&Bytes>| Message {
            pattern: pattern.cloned(),
            channel: channel.clone(),
            payload: payload.clone(),
        };
        let by_name = inner.channels.get(channel).into_iter().flatten().map(|number| (*number, told(None)));
        let matching = inner.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let by_pattern = matching
            .flat_map(|(pattern, numbers)| numbers.iter().map(move |number| (*number, told(Some(pattern)))));
        let messages: Vec<(u64, Message)> = by_name.chain(by_pattern).collect();
        let count = messages.len();
        for (number, message) in messages {
            let is_slow = inner.listeners.get(&number).is_some_and(|listener| !listener.tell(message));
            if is_slow {
                if let Some(listener) = inner.listeners.get(&number) {
                    listener.cut.notify_one();
                }
                inner.leave(number);
            }
        }
        count
    }

    /// Tells, before anyone else can come or go, whether anyone may be told of what happens to jobs and actions.
    pub(crate) fn update_interest(&self, tell: impl FnOnce(bool)) {
        let inner = self.lock();
        tell(inner.wants_news());
    }

    /// The least room that a listener to news has left.
    pub(crate) fn room(&self) -> usize {
        let inner = self.lock();
        let matches_news = |pattern: &Bytes| {
            glob::matches(pattern, JOB_UPDATES.as_bytes()) || pattern.starts_with(b"action:")
        };
        let patterns = inner.patterns.iter().filter(|(pattern, _)| matches_news(pattern));
        let news = inner.channels.iter().filter(|(name, _)| is_news(name)).chain(patterns);
        let hearing = news.flat_map(|(_, numbers)| numbers).filter_map(|number| inner.listeners.get(number));
        hearing.map(|listener| listener.give.capacity()).min().unwrap_or(usize::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, PubSubTables> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what happens to jobs or actions is told on a channel.
fn is_news(channel: &Bytes) -> bool {
    channel.starts_with(b"job:") || channel.starts_with(b"action:")
}

impl PubSubTables {
    fn wants_news(&self) -> bool {
        !self.patterns.is_empty() || self.channels.keys().any(is_news)
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
    fn who_listens_is_told_once_for_each_way_of_listening() {
        let pubsub = PubSub::default();
        let mut one = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("job:updates"));
        pubsub.subscribe(1, SubscriptionKind::Pattern, &text("job:*"));
        pubsub.update_interest(|is_heard| assert!(is_heard));
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 2);
        let told =
            [one.try_recv().unwrap(), one.try_recv().unwrap()].map(|delivery| delivery.message.pattern);
        assert_eq!(told, [None, Some(text("job:*"))]);
        pubsub.unsubscribe(1, SubscriptionKind::Name, &text("job:updates"));
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 1);
        pubsub.leave(1);
        assert_eq!(pubsub.publish(&text("job:updates"), &text("x")), 0);
        pubsub.update_interest(|is_heard| assert!(!is_heard));
    }

    #[test]
    fn a_reply_is_heard_by_the_one_who_waits_for_it_alone_and_once() {
        let pubsub = PubSub::default();
        let mut curious = pubsub.join(1, Arc::default());
        pubsub.subscribe(1, SubscriptionKind::Name, &text("worker:w:reply:r"));
        pubsub.subscribe(1, SubscriptionKind::Pattern, &text("*"));
        let mut waits = pubsub.reply_on(text("worker:w:reply:r"));
        assert_eq!(pubsub.publish(&text("worker:w:reply:r"), &text("x")), 1);
        assert_eq!(waits.try_recv(), Ok(text("x")));
        assert_eq!(pubsub.publish(&text("worker:w:reply:r"), &text("x")), 0);
        drop(pubsub.reply_on(text("worker:w:reply:gone")));
        assert_eq!(pubsub.publish(&text("worker:w:reply:gone"), &text("x")), 0);
        assert!(curious.try_recv().is_err());
    }

    #[test]
    fn who_is_too_slow_is_cut_off() {
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
    fn messages_are_bounded_in_bytes_too() {
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
