//! A rule's "no", worded as the wire words it (worker spec, AGQ API spec, RESP spec).

use agenix_protocol::{
    documents::{Halt, Status},
    ids::{ActionId, JobId, PlanId, WorkerId},
};

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The AGQ API spec §2.
    #[error("Invalid plan schema: {0}")]
    InvalidPlan(String),
    /// The AGQ API spec §2.
    #[error("Plan already exists: {0}")]
    PlanExists(PlanId),
    /// The AGQ API spec §4.
    #[error("Plan not found: {0}")]
    PlanNotFound(PlanId),
    /// The AGQ API spec §4.
    #[error("Invalid action schema: {0}")]
    InvalidAction(String),
    /// The AGQ API spec §4.
    #[error("Too many inputs: max {0}")]
    TooManyInputs(usize),
    /// An id that was used for something else.
    #[error("Action already exists with other content: {0}")]
    ActionExists(ActionId),
    /// The AGQ API spec §3.
    #[error("Job not found: {0}")]
    JobNotFound(JobId),
    /// The AGQ API spec §3.
    #[error("Invalid status transition: {} -> {}", .from.as_str(), .to.as_str())]
    IllegalTransition {
        /// The status the job has.
        from: Status,
        /// The status that was asked for.
        to: Status,
    },
    /// The worker spec §7.4.
    #[error("Worker {worker} cannot update job claimed by {holder}")]
    NotHolder {
        /// Who asked.
        worker: String,
        /// Who has the job.
        holder: String,
    },
    /// The job was claimed again since: the fence of decision 4.
    #[error("Stale attempt: attempt {told} of job {job_id} is over, it is at attempt {current}")]
    StaleAttempt {
        /// The job.
        job_id: JobId,
        /// The attempt the report is about.
        told: u32,
        /// The attempt the job is at.
        current: u32,
    },
    /// The AGQ API spec §2, PLAN.DELETE.
    #[error("Cannot delete plan with active jobs")]
    PlanInUse,
    /// A plan that was deleted and came back as another one, before a job of the old one was tried again.
    #[error("Plan was replaced by one with other needs: {0}; submit a new action")]
    PlanReplaced(PlanId),
    /// An action that is not there.
    #[error("Action not found: {0}")]
    ActionNotFound(ActionId),
    /// An action that takes no more inputs.
    #[error("Action is not open: {0}")]
    ActionNotOpen(ActionId),
    /// An action that takes no more inputs because its halt policy was met.
    #[error("Action has halted: {action_id}, because of {halt}")]
    ActionHalted {
        /// The action.
        action_id: ActionId,
        /// Its halt policy.
        halt: Halt,
    },
    /// The AGQ API spec §3, JOB.RETRY.
    #[error("Job not in failed status")]
    JobNotFailed,
    /// The AGQ API spec §3, JOB.RETRY.
    #[error("Max retries exceeded")]
    RetriesExceeded,
    /// Something was said of an attempt that is not under way (the OJS worker spec).
    #[error("Job is not active: {job_id} is {state}")]
    NotActive {
        /// The job.
        job_id: JobId,
        /// Where it stands.
        state: &'static str,
    },
    /// A job that does not wait to be released.
    #[error("Job is not staged: {0}")]
    NotStaged(JobId),
    /// An id that another job has.
    #[error("Job already exists: {0}")]
    JobExists(JobId),
    /// A job that is to be the only one of its kind, and is not.
    #[error("Job is a duplicate of {0}")]
    DuplicateJob(JobId),
    /// A submitted job that is not legal (the OJS worker spec).
    #[error("Invalid job: {0}")]
    InvalidJob(String),
    /// A retry policy that is none (ojs-retry).
    #[error("Invalid retry policy: {0}")]
    InvalidRetry(String),
    /// A schedule that is none (ojs-cron).
    #[error("Invalid schedule: {0}")]
    InvalidSchedule(String),
    /// A name that another schedule has.
    #[error("Schedule already exists: {0}")]
    ScheduleExists(String),
    /// A schedule that is not there.
    #[error("Schedule not found: {0}")]
    ScheduleNotFound(String),
    /// A workflow that is none (ojs-workflows).
    #[error("Invalid workflow: {0}")]
    InvalidWorkflow(String),
    /// A workflow that is not there.
    #[error("Workflow not found: {0}")]
    WorkflowNotFound(String),
    /// A workflow that cannot be cancelled any more.
    #[error("Workflow already ended: {0}")]
    WorkflowEnded(String),
    /// A queue that takes no more jobs (ext backpressure).
    #[error("Queue is full: {queue} has {depth} jobs, at most {bound}")]
    QueueFull {
        /// The queue.
        queue: String,
        /// How many jobs wait in it.
        depth: u64,
        /// How many may.
        bound: u64,
    },
    /// A job that cannot be cancelled any more.
    #[error("Job already ended: {}", .0.as_str())]
    JobEnded(Status),
    /// An update that is not one.
    #[error("Invalid job update: {0}")]
    InvalidUpdate(String),
    /// The worker spec §2.2.
    #[error("Worker ID already registered")]
    WorkerIdTaken,
    /// The RESP spec §5.3.
    #[error("Invalid worker registration: {0}")]
    InvalidRegistration(String),
    /// The worker spec §2.2: neither an array nor an object with `tools`.
    #[error("Invalid capabilities format")]
    CapabilitiesFormat,
    /// The AGQ API spec §5.
    #[error("Invalid capabilities: {0}")]
    InvalidCapabilities(String),
    /// The worker spec §3.3.
    #[error("Worker not registered: {0}")]
    WorkerUnknown(WorkerId),
    /// The AGQ API spec §5, WORKER.UNREGISTER.
    #[error("Worker not registered")]
    NotRegistered,
    /// Heartbeat statistics that are not a JSON object.
    #[error("Invalid stats: {0}")]
    InvalidStats(String),
    /// A queue that cannot be one.
    #[error("Unknown queue '{0}': use queue:ready or the name of another queue")]
    UnknownQueue(String),
    /// A pop of a queue that asks for several jobs.
    #[error("Invalid arguments: {0}")]
    QueueCount(&'static str),
    /// Queues are claimed from, lists are popped: one command does one of both.
    #[error("Invalid arguments: queues and lists cannot be waited for in one command")]
    MixedKeys,
    /// The worker spec §7.3.
    #[error("No worker has capability: {0}")]
    NoCapableWorker(String),
    /// The worker spec §7.3.
    #[error("Invalid challenge: {0}")]
    InvalidChallenge(String),
    /// The challenged worker ran the command, and it did not end well.
    #[error("Verification failed: worker {worker} ended with exit code {exit_code}: {output}")]
    VerificationFailed {
        /// The worker.
        worker: WorkerId,
        /// Its answer.
        exit_code: i32,
        /// What the command said, on one line.
        output: String,
    },
    /// The challenged worker said nothing.
    #[error("Verification timed out: worker {worker} did not answer within {seconds} seconds")]
    VerificationTimedOut {
        /// The worker.
        worker: WorkerId,
        /// How long agq waited.
        seconds: u64,
    },
    /// An answer to no challenge.
    #[error("Challenge not found: {0}")]
    ChallengeNotFound(String),
    /// A JOB.OUTPUT or WORKER.OUTPUT whose document is not one.
    #[error("Invalid output: {0}")]
    InvalidOutput(String),
    /// Nothing was heard of the worker that was asked what a job writes.
    #[error("Output not available: worker {worker} did not answer within {seconds} seconds")]
    OutputTimedOut {
        /// The worker.
        worker: WorkerId,
        /// How long agq waited.
        seconds: u64,
    },
    /// A key that may not do this.
    #[error("{0}")]
    NotPermitted(String),
    /// What the semantics of a Redis command refuse, in Redis' own text.
    #[error("{0}")]
    Redis(&'static str),
    /// A key that agq keeps for itself.
    #[error("'{key}' is kept by agq and cannot be {what}: {instead}")]
    ReservedKey {
        /// The key.
        key: String,
        /// What was tried: "written", "read".
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A command for another type of key; the text is Redis' own.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
}

impl Rejection {
    /// The error line without its `-`.
    pub fn line(&self) -> String {
        match self {
            Self::WrongType => format!("WRONGTYPE {self}"),
            Self::NotPermitted(_) => format!("NOPERM {self}"),
            _ => format!("ERR {self}"),
        }
    }
}
