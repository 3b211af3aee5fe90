//! Use of the machine by a task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use of the machine by the process of a task and by the children that it waited for. A field is
/// left out if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResourceUse {
    /// Largest resident memory of one of these processes, in bytes. Left out if it is not above the
    /// peak of the worker itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Processor time in user mode, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// Processor time in the kernel, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// Number of bytes that read(2) and similar calls have returned, from files, pipes and sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Number of bytes that were passed to write(2) and similar calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}

/// Bound of the memory of a task whose job wants a quantity of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// Maximum memory in bytes.
    pub bytes: u64,
    /// Means that enforces it.
    pub by: MemoryLimitKind,
}

/// Means that enforces a bound of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLimitKind {
    /// Control group (version 2): bounds the memory of all processes of the job in sum.
    Cgroup,
    /// Limit of each process (`RLIMIT_DATA`): bounds its heap and its private writable mappings.
    Rlimit,
}

#[cfg(test)]
mod tests {
    use super::{super::TaskResult, MemoryLimit, MemoryLimitKind, ResourceUse};

    #[test]
    fn resource_use_is_a_part_of_the_task_result() {
        let resources = ResourceUse {
            peak_memory_bytes: Some(1 << 26),
            user_ms: Some(12),
            system_ms: Some(0),
            read_bytes: Some(1 << 30),
            written_bytes: Some(7),
        };
        let result = TaskResult { resources, ..TaskResult::default() };
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["peak_memory_bytes"], 1 << 26);
        assert_eq!([&json["user_ms"], &json["system_ms"]], [12, 0]);
        assert_eq!([&json["read_bytes"], &json["written_bytes"]], [1 << 30, 7]);
        assert_eq!(serde_json::from_value::<TaskResult>(json).unwrap(), result);
    }

    #[test]
    fn unknown_resource_use_is_left_out() {
        let json = serde_json::to_string(&TaskResult::default()).unwrap();
        assert!(
            !json.contains("peak_memory_bytes")
                && !json.contains("_ms\":null")
                && !json.contains("read_bytes"),
            "{json}"
        );
        let old: TaskResult = serde_json::from_str(&json).unwrap();
        assert_eq!(old.resources, ResourceUse::default());
    }
    #[test]
    fn bound_of_memory_names_its_means() {
        let memory_limit = Some(MemoryLimit { bytes: 1 << 30, by: MemoryLimitKind::Cgroup });
        let json = serde_json::to_value(TaskResult { memory_limit, ..TaskResult::default() }).unwrap();
        assert_eq!(json["memory_limit"], serde_json::json!({"bytes": 1 << 30, "by": "cgroup"}));
        assert_eq!(serde_json::from_value::<TaskResult>(json).unwrap().memory_limit, memory_limit);
    }
}
