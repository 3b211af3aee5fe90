//! Every bound of the wire and of the documents in one place. All are settings of agq; 0 means "no limit".

/// The bounds that agq enforces, with the defaults of RESP spec §8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes in one command, all arguments together.
    pub max_message_bytes: usize,
    /// Most elements in one command.
    pub max_elements: usize,
    /// Most bytes in a plan document.
    pub max_plan_bytes: usize,
    /// Most tasks in a plan.
    pub max_tasks: usize,
    /// Most inputs in an action.
    pub max_inputs: usize,
    /// Most commands of one connection that may wait for their reply.
    pub max_pipeline: usize,
    /// Most connections from one IP address at a time.
    pub max_connections_per_ip: usize,
    /// Most commands a second on one connection: more are delayed, and refused where that goes on.
    pub max_commands_per_sec: usize,
    /// Wrong session keys that one IP address may send in a minute before their answers are delayed.
    pub max_auth_failures: usize,
}

/// Most bytes in a command of someone who has not logged in.
pub const MAX_STRANGERS_BYTES: usize = 16 * 1024;
/// Most elements in a command of someone who has not logged in.
pub const MAX_STRANGERS_ELEMENTS: usize = 16;
/// Most bytes in an inline command (as Redis has it).
pub const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Most bytes in an error line: it may quote what was sent, but need not send all of it back.
pub const MAX_ERROR_LINE_BYTES: usize = 8 * 1024;
/// Most bytes of a stream that a worker keeps for the result, by default.
pub const DEFAULT_KEPT_BYTES: usize = 1024 * 1024;
/// Largest result that a worker sends in one update, below the default message limit with room for the rest.
pub const MAX_UPDATE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of bytes in the host name, the platform, the version and the run name of a
/// worker, each.
pub const MAX_WORKER_WORD_BYTES: usize = 255;
/// Maximum number of programs and agentic units that a worker may offer, together.
pub const MAX_WORKER_CAPABILITIES: usize = 20_000;
/// Maximum number of bytes of JSON in the tags of a worker.
pub const MAX_WORKER_TAGS_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of JSON in the statistics of a heartbeat, without the ids of the running
/// jobs.
pub const MAX_WORKER_STATS_BYTES: usize = 64 * 1024;
/// Maximum number of agentic units of a worker whose descriptions agq keeps.
pub const MAX_WORKER_DESCRIPTIONS: usize = 1000;
/// Seconds a task may run when its plan does not say.
pub const DEFAULT_TASK_TIMEOUT_SECS: u64 = 300;
/// Seconds a job may run when nothing else is said (worker spec §4.3).
pub const DEFAULT_JOB_TIMEOUT_SECS: u64 = 3600;

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 10 * 1024 * 1024,
            max_elements: 1_000_000,
            max_plan_bytes: 1024 * 1024,
            max_tasks: 100,
            max_inputs: 1_000_000,
            max_pipeline: 1024,
            max_connections_per_ip: 100,
            max_commands_per_sec: 10_000,
            max_auth_failures: 5,
        }
    }
}

impl Limits {
    /// What holds for someone who has not logged in: enough for AUTH and HELLO, whatever is set, and not more.
    #[must_use]
    pub fn before_login(self) -> Self {
        let least = |limit: usize, most: usize| if limit == 0 { most } else { limit.min(most) };
        Self {
            max_message_bytes: least(self.max_message_bytes, MAX_STRANGERS_BYTES),
            max_elements: least(self.max_elements, MAX_STRANGERS_ELEMENTS),
            ..self
        }
    }
}

/// Whether `amount` passes `limit`, where 0 stands for "no limit".
pub fn exceeds(amount: usize, limit: usize) -> bool {
    limit != 0 && amount > limit
}

#[cfg(test)]
mod tests {
    use super::exceeds;

    #[test]
    fn the_edge_passes_one_more_does_not_and_zero_is_no_limit() {
        assert!(!exceeds(10, 10));
        assert!(exceeds(11, 10));
        assert!(!exceeds(usize::MAX, 0));
    }
}
