//! Errors of the rules. The text of an error is the error line of the wire, as the specifications
//! word it: the worker spec, the AGQ API spec and the RESP spec.

use agenix_protocol::{
    blob::BlobHash,
    documents::{Halt, Status},
    ids::{ActionId, JobId, PlanId, WorkerId},
};

use crate::budget::Exhausted;

/// Reason for which a rule refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Rejection {
    /// The plan document breaks a rule of plans (AGQ API spec §2).
    #[error("Invalid plan schema: {0}")]
    InvalidPlan(String),
    /// The policy of agq does not allow the plan.
    #[error("Plan refused by policy: {0}")]
    RefusedByPolicy(String),
    /// The plan needs no approval, or does not exist.
    #[error("Approval not found: {0}")]
    ApprovalNotFound(PlanId),
    /// The decision names another plan or policy than the one that is stored.
    #[error("Approval of {plan_id} has the digest {expected}: look at the plan again")]
    ApprovalDiffers { plan_id: PlanId, expected: String },
    /// The submitter of a plan cannot approve it.
    #[error("Plan {plan_id} was submitted by {owner}, who cannot approve it: another admin has to")]
    OwnPlan { plan_id: PlanId, owner: String },
    /// A decision was made before, or the time for it is over.
    #[error("Approval of {plan_id} is decided: {how}")]
    ApprovalDecided { plan_id: PlanId, how: String },
    /// The plan of the jobs waits for a decision.
    #[error("Plan {0} waits for approval: `agx approve {0}` shows it")]
    WaitsForApproval(PlanId),
    /// The connection has no key, and a decision has an author.
    #[error("Approval needs a key with a name: see [admins] of the config file")]
    NamelessDecision,
    /// The id belongs to a plan with other content (AGQ API spec §2).
    #[error("Plan already exists: {0}")]
    PlanExists(PlanId),
    /// No plan has the id (AGQ API spec §4).
    #[error("Plan not found: {0}")]
    PlanNotFound(PlanId),
    /// The action document breaks a rule of actions (AGQ API spec §4).
    #[error("Invalid action schema: {0}")]
    InvalidAction(String),
    /// The action has more inputs than the limit allows (AGQ API spec §4).
    #[error("Too many inputs: max {0}")]
    TooManyInputs(usize),
    /// The id belongs to an action with other content.
    #[error("Action already exists with other content: {0}")]
    ActionExists(ActionId),
    /// No job has the id (AGQ API spec §3).
    #[error("Job not found: {0}")]
    JobNotFound(JobId),
    /// The job cannot change from its status to the reported one (AGQ API spec §3).
    #[error("Invalid status transition: {} -> {}", .from.as_str(), .to.as_str())]
    IllegalTransition { from: Status, to: Status },
    /// The reporter does not hold the job (worker spec §7.4).
    #[error("Worker {worker} cannot update job claimed by {holder}")]
    NotHolder { worker: String, holder: String },
    /// The report is about an earlier attempt: the fencing token of the report is stale.
    #[error("Stale attempt: attempt {reported} of job {job_id} is over, it is at attempt {current}")]
    StaleAttempt { job_id: JobId, reported: u32, current: u32 },
    /// Jobs that have not ended need the plan (AGQ API spec §2, PLAN.DELETE).
    #[error("Cannot delete plan with active jobs")]
    PlanInUse,
    /// The plan was deleted, and another plan got its id, before the job was tried again.
    #[error("Plan was replaced by one with other needs: {0}; submit a new action")]
    PlanReplaced(PlanId),
    #[error("Action not found: {0}")]
    ActionNotFound(ActionId),
    /// The action accepts no more inputs.
    #[error("Action is not open: {0}")]
    ActionNotOpen(ActionId),
    /// The action accepts no more inputs because its halt policy was met.
    #[error("Action has halted: {action_id}, because of {halt}")]
    ActionHalted { action_id: ActionId, halt: Halt },
    /// The job did not fail (AGQ API spec §3, JOB.RETRY).
    #[error("Job not in failed status")]
    JobNotFailed,
    /// The job is dead, and the request has no FORCE (AGQ API spec §3, JOB.RETRY).
    #[error("Max retries exceeded")]
    RetriesExceeded,
    /// The report is about a job in another state than active (the OJS worker spec names them).
    #[error("Job is not active: {job_id} is {state}")]
    NotActive { job_id: JobId, state: &'static str },
    #[error("Job is not staged: {0}")]
    NotStaged(JobId),
    #[error("Job already exists: {0}")]
    JobExists(JobId),
    /// The job must be unique, and an earlier job has the same key.
    #[error("Job is a duplicate of {0}")]
    DuplicateJob(JobId),
    /// The submitted job breaks a rule (the OJS worker spec).
    #[error("Invalid job: {0}")]
    InvalidJob(String),
    /// The retry policy breaks a rule (ojs-retry).
    #[error("Invalid retry policy: {0}")]
    InvalidRetry(String),
    /// The schedule breaks a rule (ojs-cron).
    #[error("Invalid schedule: {0}")]
    InvalidSchedule(String),
    #[error("Schedule already exists: {0}")]
    ScheduleExists(String),
    #[error("Schedule not found: {0}")]
    ScheduleNotFound(String),
    /// The workflow breaks a rule (ojs-workflows).
    #[error("Invalid workflow: {0}")]
    InvalidWorkflow(String),
    #[error("Workflow not found: {0}")]
    WorkflowNotFound(String),
    #[error("Workflow already ended: {0}")]
    WorkflowEnded(String),
    /// A workflow needs jobs that are removed. The text ends with "is" or "are".
    #[error("{0} no longer kept: see --keep-ended, --keep-ended-count and --keep-blob-bytes of agq")]
    NotKept(String),
    /// Too many jobs wait in the queue (extension backpressure of the Open Job Spec).
    #[error("Queue is full: {queue} has {depth} jobs, at most {bound}")]
    QueueFull { queue: String, depth: u64, bound: u64 },
    /// The budget of the submitter has no room.
    #[error("{0}")]
    Budget(Exhausted),
    #[error("Job already ended: {}", .0.as_str())]
    JobEnded(Status),
    #[error("Job has not ended: {}", .0.as_str())]
    JobNotEnded(Status),
    #[error("Invalid job update: {0}")]
    InvalidUpdate(String),
    /// A live worker has the id (worker spec §2.2).
    #[error("Worker ID already registered")]
    WorkerIdTaken,
    /// The registration breaks a rule (RESP spec §5.3).
    #[error("Invalid worker registration: {0}")]
    InvalidRegistration(String),
    /// The capabilities are neither an array nor an object with `tools` (worker spec §2.2).
    #[error("Invalid capabilities format")]
    CapabilitiesFormat,
    /// The capabilities break a rule (AGQ API spec §5).
    #[error("Invalid capabilities: {0}")]
    InvalidCapabilities(String),
    /// No live worker has the id (worker spec §3.3).
    #[error("Worker not registered: {0}")]
    WorkerUnknown(WorkerId),
    /// No worker has the id (AGQ API spec §5, WORKER.UNREGISTER).
    #[error("Worker not registered")]
    NotRegistered,
    /// The statistics of a heartbeat are not a JSON object, or too large.
    #[error("Invalid stats: {0}")]
    InvalidStats(String),
    /// The key does not name a queue.
    #[error("Unknown queue '{0}': use queue:ready or the name of another queue")]
    UnknownQueue(String),
    /// A pop of a queue requests several jobs.
    #[error("Invalid arguments: {0}")]
    QueueCount(&'static str),
    /// One command names queues and lists. A command either claims from queues or pops from lists.
    #[error("Invalid arguments: queues and lists cannot be waited for in one command")]
    MixedKeys,
    /// No worker offers the command (worker spec §7.3).
    #[error("No worker has capability: {0}")]
    NoCapableWorker(String),
    /// The challenge breaks a rule (worker spec §7.3).
    #[error("Invalid challenge: {0}")]
    InvalidChallenge(String),
    /// The command of the challenge failed on the worker. The output is one line.
    #[error("Verification failed: worker {worker} ended with exit code {exit_code}: {output}")]
    VerificationFailed { worker: WorkerId, exit_code: i32, output: String },
    #[error("Verification timed out: worker {worker} did not answer within {seconds} seconds")]
    VerificationTimedOut { worker: WorkerId, seconds: u64 },
    /// No pending challenge has the id of the answer.
    #[error("Challenge not found: {0}")]
    ChallengeNotFound(String),
    /// The upload does not fit the bytes that agq has received, or the request.
    #[error("Invalid upload: {0}")]
    InvalidUpload(String),
    /// agq cannot read a file that the worker has open.
    #[error("Unreadable file: {0}")]
    UnreadableFile(String),
    #[error("Blob not found: {0}")]
    BlobNotFound(BlobHash),
    /// The range begins behind the end of the stream.
    #[error("Invalid range: it begins at {offset}, but the stream has {length} bytes")]
    InvalidRange { offset: u64, length: u64 },
    /// The document of a JOB.OUTPUT or WORKER.OUTPUT breaks a rule.
    #[error("Invalid output: {0}")]
    InvalidOutput(String),
    #[error("Output not available: worker {worker} did not answer within {seconds} seconds")]
    OutputTimedOut { worker: WorkerId, seconds: u64 },
    /// The key of the client does not permit the request.
    #[error("{0}")]
    NotPermitted(String),
    /// Redis refuses the command. The text is that of Redis.
    #[error("{0}")]
    Redis(&'static str),
    /// The key is reserved for agq. `operation` is "written" or "read", and `instead` names another
    /// command.
    #[error("'{key}' is kept by agq and cannot be {operation}: {instead}")]
    ReservedKey { key: String, operation: &'static str, instead: &'static str },
    /// Only agq publishes to the channel.
    #[error("'{0}' is reserved: only agq publishes its events")]
    ReservedChannel(String),
    /// The command is for another type of key. The text is that of Redis.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
}

impl Rejection {
    /// Returns the error line without its `-`.
    pub fn line(&self) -> String {
        match self {
            Self::WrongType => format!("WRONGTYPE {self}"),
            Self::NotPermitted(_) => format!("NOPERM {self}"),
            Self::Budget(_) => format!("BUDGET {self}"),
            _ => format!("ERR {self}"),
        }
    }
}
