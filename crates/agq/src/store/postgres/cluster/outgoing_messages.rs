//! Pub/sub messages that wait to be sent to other nodes. The oldest ones are dropped if too many
//! wait.

use std::{collections::VecDeque, mem::take, sync::Mutex};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::sync::lock;

/// Maximum number of messages that wait.
const MAX_WAITING: usize = 10_000;
/// Maximum number of bytes that wait. A single message may be longer.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Maximum length of a message that fits a notification, of which PostgreSQL accepts less than
/// 8,000 bytes: the message in hex, the name of the node, and a number.
const MAX_SHORT_BYTES: usize = 3_900;
/// Maximum number of short messages in a transaction.
const MAX_TOGETHER: usize = 1_000;
/// Maximum number of bytes of the short messages in a transaction.
const MAX_TOGETHER_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutgoingMessage {
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

impl OutgoingMessage {
    fn bytes(&self) -> usize {
        self.channel.len() + self.payload.len()
    }

    /// Returns true if the message does not fit a notification.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes() > MAX_SHORT_BYTES
    }
}

#[derive(Default)]
pub(crate) struct OutgoingMessages {
    queue: Mutex<MessageQueue>,
    arrived: Notify,
}

#[derive(Default)]
struct MessageQueue {
    messages: VecDeque<OutgoingMessage>,
    /// Sum of the bytes of the messages.
    bytes: usize,
    /// Number of messages that were dropped since the last call of `take`.
    dropped: usize,
}

impl OutgoingMessages {
    /// Appends a message. Drops the oldest messages if too many wait.
    pub(crate) fn push(&self, channel: &Bytes, payload: &Bytes) {
        lock(&self.queue).push(OutgoingMessage { channel: channel.clone(), payload: payload.clone() });
        self.arrived.notify_one();
    }

    /// Waits for messages, and takes the first ones, which fit one transaction. Returns also the
    /// number of messages that were dropped since the last call.
    pub(crate) async fn take(&self) -> (Vec<OutgoingMessage>, usize) {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.arrived.notified().await;
        }
    }

    fn try_take(&self) -> Option<(Vec<OutgoingMessage>, usize)> {
        let mut queue = lock(&self.queue);
        let messages = queue.take();
        (!messages.is_empty()).then(|| (messages, take(&mut queue.dropped)))
    }
}

impl MessageQueue {
    fn push(&mut self, message: OutgoingMessage) {
        self.bytes += message.bytes();
        self.messages.push_back(message);
        while self.messages.len() > 1
            && (self.messages.len() > MAX_WAITING || self.bytes > MAX_WAITING_BYTES)
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.dropped += 1;
        }
    }

    /// Takes one long message, or the short messages before the next long one.
    fn take(&mut self) -> Vec<OutgoingMessage> {
        let mut bytes = 0;
        let short = self.messages.iter().take(MAX_TOGETHER).take_while(|message| {
            bytes += message.bytes();
            !message.is_long() && bytes <= MAX_TOGETHER_BYTES
        });
        let count = short.count().max(1).min(self.messages.len());
        let taken: Vec<OutgoingMessage> = self.messages.drain(..count).collect();
        self.bytes -= taken.iter().map(OutgoingMessage::bytes).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{
        MAX_SHORT_BYTES, MAX_TOGETHER_BYTES, MAX_WAITING, MAX_WAITING_BYTES, OutgoingMessage,
        OutgoingMessages,
    };

    /// Returns a queue of messages of these numbers of bytes.
    fn queue_of(lengths: &[usize]) -> OutgoingMessages {
        let messages = OutgoingMessages::default();
        for length in lengths {
            messages.push(&Bytes::from_static(b"c"), &Bytes::from(vec![b'x'; length - 1]));
        }
        messages
    }

    /// Takes all messages. Returns the numbers of bytes of the messages by transaction, and the
    /// number of dropped messages.
    fn taken(messages: &OutgoingMessages) -> (Vec<Vec<usize>>, usize) {
        let (mut all, mut dropped) = (Vec::new(), 0);
        while let Some((together, dropped_before)) = messages.try_take() {
            all.push(together.iter().map(OutgoingMessage::bytes).collect());
            dropped += dropped_before;
        }
        (all, dropped)
    }

    #[test]
    fn long_message_has_a_transaction_of_its_own() {
        let (short, long) = (MAX_SHORT_BYTES, MAX_SHORT_BYTES + 1);
        let messages = queue_of(&[1, short, long, long, 2, 3]);
        let expected = [vec![1, short], vec![long], vec![long], vec![2, 3]];
        assert_eq!(taken(&messages), (expected.to_vec(), 0));
    }

    #[test]
    fn transaction_is_bounded_in_bytes() {
        let count = MAX_TOGETHER_BYTES / MAX_SHORT_BYTES;
        let (all, dropped) = taken(&queue_of(&[MAX_SHORT_BYTES].repeat(count + 1)));
        assert_eq!((all.iter().map(Vec::len).collect::<Vec<_>>(), dropped), (vec![count, 1], 0));
    }

    #[test]
    fn oldest_messages_are_dropped() {
        let half = MAX_WAITING_BYTES / 2;
        assert_eq!(taken(&queue_of(&[1, half, half])), (vec![vec![half], vec![half]], 1));
        assert_eq!(taken(&queue_of(&[1, MAX_WAITING_BYTES + 1])), (vec![vec![MAX_WAITING_BYTES + 1]], 1));
        let (all, dropped) = taken(&queue_of(&[1].repeat(MAX_WAITING + 2)));
        assert_eq!((all.iter().map(Vec::len).sum::<usize>(), dropped), (MAX_WAITING, 2));
    }
}
