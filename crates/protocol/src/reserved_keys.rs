//! Reserved key names. The values of these keys are computed from the records of agq, and clients
//! cannot write the keys.

use crate::ids::QueueName;

/// Default queue, from which `BRPOP queue:ready` claims a job.
pub const READY: &str = "ready";
/// Reserved name under which jobs that wait for a time are counted. No queue has this name.
pub const SCHEDULED: &str = "scheduled";
/// Key of the default queue.
pub const QUEUE_READY: &str = "queue:ready";
/// Key that counts the jobs that wait for a time.
pub const QUEUE_SCHEDULED: &str = "queue:scheduled";

/// Returns the channel that asks a worker to send a heartbeat at once.
pub fn directives_channel(worker_id: &str) -> String {
    format!("worker:{worker_id}:orders")
}

/// Returns the channel for a worker's answer to one request, for its requester only.
pub fn reply_channel(worker_id: &str, request_id: &str) -> String {
    format!("worker:{worker_id}:reply:{request_id}")
}

/// Returns true if `channel` is a [`reply_channel`].
pub fn is_reply(channel: &[u8]) -> bool {
    // Worker ids and request ids have no colons.
    let mut parts = channel.split(|&byte| byte == b':');
    parts.next() == Some(b"worker") && parts.nth(1) == Some(b"reply")
}

/// Returns the name of a queue, given as `name` or as the key `queue:name`.
pub fn queue_of(name: &str) -> &str {
    name.strip_prefix("queue:").unwrap_or(name)
}

/// Returns the queue of a key, if jobs are claimed from the key.
pub fn claimed_queue(key: &[u8]) -> Option<QueueName> {
    let name = std::str::from_utf8(key).ok()?.strip_prefix("queue:")?;
    QueueName::new(name).ok().filter(|_| name != SCHEDULED)
}

const RESERVED: [&str; 6] = ["queue:", "plan:", "action:", "job:", "worker:", "capability:"];

/// Returns true if `key` is reserved for agq, so that clients cannot write it.
pub fn is_reserved(key: &[u8]) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{claimed_queue, directives_channel, is_reply, is_reserved, reply_channel};

    #[test]
    fn only_whole_prefixes_are_reserved() {
        assert!(is_reserved(b"queue:ready") && is_reserved(b"worker:w1:stats"));
        assert!(!is_reserved(b"queues") && !is_reserved(b"my:queue:ready"));
    }

    #[test]
    fn reply_channel_is_recognised_and_reserved() {
        assert!(is_reply(reply_channel("w1", "r1").as_bytes()));
        assert!(is_reserved(reply_channel("w1", "r1").as_bytes()));
        assert!(!is_reply(directives_channel("w1").as_bytes()) && !is_reply(b"worker:reply:x"));
    }

    #[test]
    fn claimed_queue_needs_a_valid_queue_key() {
        assert_eq!(claimed_queue(b"queue:gpu").map(String::from).as_deref(), Some("gpu"));
        assert!(
            [&b"queue:scheduled"[..], b"queue:", b"queue:a b", b"gpu"]
                .iter()
                .all(|key| claimed_queue(key).is_none())
        );
    }
}
