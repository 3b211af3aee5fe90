//! Key names that agq keeps for itself: windows on its records, never lists or strings of their own.

use crate::ids::QueueName;

/// The queue of actions that name none: `BRPOP queue:ready` claims a job of it.
pub const READY: &str = "ready";
/// Not a queue: the name under which jobs that wait for a time are counted.
pub const SCHEDULED: &str = "scheduled";
/// The key of the queue of actions that name none.
pub const QUEUE_READY: &str = "queue:ready";
/// Jobs that wait for a time.
pub const QUEUE_SCHEDULED: &str = "queue:scheduled";

/// The channel on which a worker hears that it should send a heartbeat now.
pub fn orders_channel(worker_id: &str) -> String {
    format!("worker:{worker_id}:orders")
}

/// The channel on which the answer of a worker to one request comes back, to the one who waits for it alone.
pub fn reply_channel(worker_id: &str, request_id: &str) -> String {
    format!("worker:{worker_id}:reply:{request_id}")
}

/// Whether a channel is a [`reply_channel`].
pub fn is_reply(channel: &[u8]) -> bool {
    // Neither a worker's id nor a request's has a colon.
    let mut parts = channel.split(|&byte| byte == b':');
    parts.next() == Some(b"worker") && parts.nth(1) == Some(b"reply")
}

/// The queue that is `name` or, as a key, `queue:name`.
pub fn queue_of(name: &str) -> &str {
    name.strip_prefix("queue:").unwrap_or(name)
}

/// The queue that a key stands for, where it stands for one from which jobs are claimed.
pub fn claimed_queue(key: &[u8]) -> Option<QueueName> {
    let name = std::str::from_utf8(key).ok()?.strip_prefix("queue:")?;
    QueueName::new(name).ok().filter(|_| name != SCHEDULED)
}

const RESERVED: [&str; 6] = ["queue:", "plan:", "action:", "job:", "worker:", "capability:"];

/// Whether `key` belongs to agq and may not be written by a client.
pub fn is_reserved(key: &[u8]) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{claimed_queue, is_reply, is_reserved, orders_channel, reply_channel};

    #[test]
    fn only_whole_prefixes_are_reserved() {
        assert!(is_reserved(b"queue:ready") && is_reserved(b"worker:w1:stats"));
        assert!(!is_reserved(b"queues") && !is_reserved(b"my:queue:ready"));
    }

    #[test]
    fn a_reply_has_a_channel_of_its_own() {
        assert!(is_reply(reply_channel("w1", "r1").as_bytes()));
        assert!(is_reserved(reply_channel("w1", "r1").as_bytes()));
        assert!(!is_reply(orders_channel("w1").as_bytes()) && !is_reply(b"worker:reply:x"));
    }

    #[test]
    fn a_queue_key_names_a_queue() {
        assert_eq!(claimed_queue(b"queue:gpu").map(String::from).as_deref(), Some("gpu"));
        assert!(
            [&b"queue:scheduled"[..], b"queue:", b"queue:a b", b"gpu"]
                .iter()
                .all(|key| claimed_queue(key).is_none())
        );
    }
}
