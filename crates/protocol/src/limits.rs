//! Bounds of the wire and of the documents. The fields of [`Limits`] are settings of agq, in which
//! 0 means no limit.

/// Bounds that agq enforces, with the defaults of RESP spec §8. In each field, 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes of one command, all arguments together.
    pub max_message_bytes: usize,
    /// Maximum number of elements of one command.
    pub max_elements: usize,
    /// Maximum number of bytes of a plan document.
    pub max_plan_bytes: usize,
    /// Maximum number of tasks of a plan.
    pub max_tasks: usize,
    /// Maximum number of inputs of an action.
    pub max_inputs: usize,
    /// Maximum number of different concurrency keys of the inputs of one command.
    pub max_concurrency_keys: usize,
    /// Maximum number of commands of one connection that wait for their replies.
    pub max_pipeline: usize,
    /// Maximum number of connections from one IP address at a time.
    pub max_connections_per_ip: usize,
    /// Maximum commands per second on a connection; further commands are delayed, and in the end
    /// refused.
    pub max_commands_per_sec: usize,
    /// Number of wrong session keys from one IP address per minute before replies are delayed.
    pub max_auth_failures: usize,
}

/// Maximum number of bytes of a command before login.
pub const MAX_STRANGERS_BYTES: usize = 16 * 1024;
/// Maximum number of elements of a command before login.
pub const MAX_STRANGERS_ELEMENTS: usize = 16;
/// Maximum number of bytes of an inline command, as in Redis.
pub const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of an error line, because it may quote the whole command.
pub const MAX_ERROR_LINE_BYTES: usize = 8 * 1024;
/// Maximum number of queues of one claim, because the store checks each queue for each job.
pub const MAX_CLAIMED_QUEUES: usize = 1000;
/// Maximum number of running and unreported jobs that a worker may name in a heartbeat or a
/// registration.
pub const MAX_ACTIVE_JOBS: u32 = 10_000;
/// Default of the maximum number of bytes of a stream that a report has. A longer stream is a blob.
pub const DEFAULT_KEPT_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of a result in one update, with room in `max_message_bytes`.
pub const MAX_UPDATE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of bytes each of a worker's host name, platform, version and run name.
pub const MAX_WORKER_WORD_BYTES: usize = 255;
/// Maximum number of programs and agentic units that a worker may offer, together.
pub const MAX_WORKER_CAPABILITIES: usize = 20_000;
/// Maximum number of bytes of JSON in the tags of a worker.
pub const MAX_WORKER_TAGS_BYTES: usize = 64 * 1024;
/// Maximum number of sandbox profiles of a worker.
pub const MAX_WORKER_PROFILES: usize = 64;
/// Maximum number of bytes of a text or a property's name in the sandbox of a worker.
pub const MAX_WORKER_SANDBOX_TEXT_BYTES: usize = 1024;
/// Maximum number of bytes of JSON in the sandbox of a worker.
pub const MAX_WORKER_SANDBOX_BYTES: usize = 64 * 1024;
/// Maximum bytes of JSON in the statistics of a heartbeat, without the running jobs' ids.
pub const MAX_WORKER_STATS_BYTES: usize = 64 * 1024;
/// Maximum number of agentic units of a worker whose descriptions agq stores.
pub const MAX_WORKER_DESCRIPTIONS: usize = 1000;
/// Default timeout of a task, in seconds.
pub const DEFAULT_TASK_TIMEOUT_SECS: u64 = 300;
/// Default timeout of a job, in seconds (worker spec §4.3).
pub const DEFAULT_JOB_TIMEOUT_SECS: u64 = 3600;

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 10 * 1024 * 1024,
            max_elements: 1_000_000,
            max_plan_bytes: 1024 * 1024,
            max_tasks: 100,
            max_inputs: 1_000_000,
            max_concurrency_keys: 10_000,
            max_pipeline: 1024,
            max_connections_per_ip: 100,
            max_commands_per_sec: 10_000,
            max_auth_failures: 5,
        }
    }
}

impl Limits {
    /// Returns the bounds before login: just enough for AUTH and HELLO with any settings.
    pub fn before_login(self) -> Self {
        let least = |limit: usize, most: usize| if limit == 0 { most } else { limit.min(most) };
        Self {
            max_message_bytes: least(self.max_message_bytes, MAX_STRANGERS_BYTES),
            max_elements: least(self.max_elements, MAX_STRANGERS_ELEMENTS),
            ..self
        }
    }
}

/// Returns true if `amount` exceeds `limit`. A `limit` of 0 means no limit.
pub fn exceeds(amount: usize, limit: usize) -> bool {
    limit != 0 && amount > limit
}

#[cfg(test)]
mod tests {
    use super::exceeds;

    #[test]
    fn limit_accepts_its_value_refuses_one_more_and_zero_disables_it() {
        assert!(!exceeds(10, 10));
        assert!(exceeds(11, 10));
        assert!(!exceeds(usize::MAX, 0));
    }
}
