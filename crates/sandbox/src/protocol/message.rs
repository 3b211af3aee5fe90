//! Messages between a worker and a supervisor.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{fault::StepFault, report::Report};

/// Maximum bytes of a request. A request holds the arguments and the environment of a task, which
/// Linux bounds to a quarter of the stack, and their escapes.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Maximum bytes of a reply. The worker does not trust a supervisor with more of its memory.
pub const MAX_REPLY_BYTES: usize = 64 << 10;
/// Maximum number of descriptors of a frame: stdin, stdout and stderr.
pub const MAX_DESCRIPTORS: usize = 3;

/// Message of one direction.
pub trait Message: Serialize + DeserializeOwned {
    /// Maximum bytes of the document.
    const MAX_BYTES: usize;
    /// True if descriptors may be sent with messages of this direction.
    const TAKES_DESCRIPTORS: bool;

    /// Returns the number of descriptors that are sent with the message.
    fn descriptors(&self) -> usize;
}

/// Source of the stdin of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// End of file at once.
    Empty,
    /// The next descriptor of the frame.
    Descriptor,
    /// A file that the supervisor opens, so that the confinement of the task decides.
    Path(String),
}

/// Destination of the stdout or the stderr of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sink {
    /// Discards.
    Null,
    /// The next descriptor of the frame.
    Descriptor,
    /// A file that the supervisor creates or truncates.
    Path(String),
    /// For stderr: the destination of stdout.
    Stdout,
}

/// Task to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStart {
    /// Id that the worker chooses, unique in the job.
    pub task: u32,
    /// Path of the program, which is one of the programs of the job.
    pub program: String,
    /// Arguments, from argument 0.
    pub argv: Vec<String>,
    /// Environment variables that the profile permits: name and value.
    pub env: Vec<(String, String)>,
    /// Working directory. The scratch directory if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Stdin.
    pub stdin: Source,
    /// Stdout.
    pub stdout: Sink,
    /// Stderr.
    pub stderr: Sink,
    /// True if the job has no further tasks: it ends, as after `clean`, when this task and all
    /// others have ended, or have not started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last: bool,
    /// Environment variables that the worker sets, whatever the profile permits: name and value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_env: Vec<(String, String)>,
    /// Maximum data of each process of the task in bytes, below the limits of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// Signal for the process group of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskSignal {
    /// SIGTERM. The rest of the group may outlive the first process until `Kill` or `clean`.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Request of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SupervisorRequest {
    /// Begins a job that may execute `programs` and their interpreters.
    Begin {
        /// Absolute paths.
        programs: Vec<String>,
    },
    /// Starts a task of the job.
    Start(TaskStart),
    /// Signals a task. The supervisor ignores a task that has ended.
    Signal {
        /// Id of the task.
        task: u32,
        /// Signal.
        signal: TaskSignal,
    },
    /// Ends the job: kills all its processes, and empties the scratch directory.
    Clean,
}

impl Message for SupervisorRequest {
    const MAX_BYTES: usize = MAX_REQUEST_BYTES;
    const TAKES_DESCRIPTORS: bool = true;

    fn descriptors(&self) -> usize {
        let Self::Start(start) = self else { return 0 };
        let sinks = [&start.stdout, &start.stderr].map(|sink| usize::from(*sink == Sink::Descriptor));
        usize::from(start.stdin == Source::Descriptor) + sinks.iter().sum::<usize>()
    }
}

/// Use of the machine by a task and the children that it has waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceUsage {
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// Largest resident set of one process in bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

/// Exit of the first process of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskExit {
    /// Id of the task.
    pub task: u32,
    /// Wait status of the process, as of wait(2).
    pub wait_status: i32,
    /// Resources.
    pub usage: ResourceUsage,
}

/// Traces that a job left, which are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cleaned {
    /// Number of processes that still ran.
    pub strays: u32,
    /// Bytes of the files in the scratch directory.
    pub scratch_bytes: u64,
    /// True if the supervisor serves no further job and ends.
    pub retires: bool,
}

/// Reply of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SupervisorReply {
    /// The confinement is complete.
    Ready(Report),
    /// The confinement cannot be set up. The supervisor ends.
    Refused(StepFault),
    /// The job has begun.
    Begun,
    /// The task runs. The reply has copies of the files that the supervisor has opened for stdout
    /// and stderr, in this order, so that the worker can read the sizes of these files.
    Started {
        /// Id of the task.
        task: u32,
        /// Number of the files.
        #[serde(default, skip_serializing_if = "is_zero")]
        files: u8,
    },
    /// The job did not begin, or the task did not start.
    Failed {
        /// Id of the task, or `None` for the job.
        task: Option<u32>,
        /// Step that failed.
        fault: StepFault,
    },
    /// The first process of a task has ended.
    Ended(TaskExit),
    /// The job has ended.
    Cleaned(Cleaned),
}

impl Message for SupervisorReply {
    const MAX_BYTES: usize = MAX_REPLY_BYTES;
    const TAKES_DESCRIPTORS: bool = true;

    fn descriptors(&self) -> usize {
        match self {
            Self::Started { files, .. } => usize::from(*files),
            _ => 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of skip_serializing_if")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::{Message, Sink, Source, SupervisorRequest, TaskStart};

    #[test]
    fn start_counts_its_descriptors() {
        let start = |stdin, stdout, stderr| {
            let (program, argv) = ("/bin/true".to_owned(), vec!["true".to_owned()]);
            SupervisorRequest::Start(TaskStart {
                task: 1,
                program,
                argv,
                env: vec![],
                cwd: None,
                stdin,
                stdout,
                stderr,
                is_last: false,
                worker_env: vec![],
                memory: None,
            })
        };
        let path = || Sink::Path("/x".into());
        assert_eq!(start(Source::Empty, path(), Sink::Stdout).descriptors(), 0);
        assert_eq!(start(Source::Descriptor, path(), Sink::Null).descriptors(), 1);
        assert_eq!(start(Source::Descriptor, Sink::Descriptor, Sink::Descriptor).descriptors(), 3);
        assert_eq!(SupervisorRequest::Clean.descriptors(), 0);
    }

    #[test]
    fn unknown_fields_and_requests_are_refused() {
        for json in [
            r#"{"begin":{"programs":[],"all":true}}"#,
            r#"{"exec":{}}"#,
            r#"{"signal":{"task":1,"signal":"stop"}}"#,
            r#"{"signal":{"task":-1,"signal":"kill"}}"#,
            r#""begin""#,
            "[]",
        ] {
            assert!(serde_json::from_str::<SupervisorRequest>(json).is_err(), "{json}");
        }
        assert_eq!(
            serde_json::from_str::<SupervisorRequest>(r#""clean""#).unwrap(),
            SupervisorRequest::Clean
        );
    }
}
