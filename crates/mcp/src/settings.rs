//! Settings of the server.

use agenix_client::Server;
use agenix_protocol::{documents::Task, ids::QueueName, time::Timestamp};
use agenix_shell::Refusal;

/// Settings of the server, which `agx mcp` makes from its options.
#[derive(Debug, Clone)]
pub struct McpServerSettings {
    /// agq, with the key of the agent.
    pub server: Server,
    /// Version of agx, which the server sends to its clients.
    pub version: &'static str,
    /// Queue of all actions. Default: the default queue of agq.
    pub queue: Option<QueueName>,
    /// Sandbox profile of all plans from pipelines. Default: the worker decides.
    pub profile: Option<String>,
    /// Directory of the tasks of pipelines. Default: the worker decides.
    pub cwd: Option<String>,
    /// Returns the time, for rates and the times of tasks.
    pub now: fn() -> Timestamp,
    /// Compiles the text of a pipeline to tasks.
    pub compile: fn(&str) -> Result<Vec<Task>, Refusal>,
}
