//! Key names that agq keeps for itself: windows on its records, never lists or strings of their own.

/// The ready index: `BRPOP queue:ready` claims a job.
pub const QUEUE_READY: &str = "queue:ready";
/// Jobs that wait for a time.
pub const QUEUE_SCHEDULED: &str = "queue:scheduled";

const RESERVED: [&str; 6] = ["queue:", "plan:", "action:", "job:", "worker:", "capability:"];

/// Whether `key` belongs to agq and may not be written by a client.
pub fn is_reserved(key: &[u8]) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::is_reserved;

    #[test]
    fn only_whole_prefixes_are_reserved() {
        assert!(is_reserved(b"queue:ready") && is_reserved(b"worker:w1:stats"));
        assert!(!is_reserved(b"queues") && !is_reserved(b"my:queue:ready"));
    }
}
