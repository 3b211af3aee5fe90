//! Trait of a store for plans, actions and jobs, with the indexes that find them.

use std::collections::BTreeMap;

use super::{
    AckLevel, ActionRule, AddOutcome, AppendJobs, Claim, Claimant, JobChange, JobFilter, JobRule,
    LaneSummary, NewAction, NewPlan, QueueCounts, ReportedResults, Retention, RuleResult, StoreFuture,
    StoredJob, StoredPlan, Totals,
};
use agenix_protocol::{
    documents::{Quantities, Status},
    ids::{ActionId, JobId, PlanId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    owner::Owner,
};

/// Maximum number of ready jobs that the claims of one write end, because the jobs can no longer
/// run: other writes wait for it.
pub(crate) const MAX_WITHDRAWN: usize = 1000;

/// Plans, actions and jobs, with their indexes. [`store`](super) has the rules for order, atomicity
/// and durability.
///
/// Writes are durable when they are answered, unless the method takes an [`AckLevel`] or documents
/// another level. A read sees one consistent state, which includes every write answered before the
/// call. A method that answers about a missing record returns `None`, `false` or an empty list, not
/// an error; only a rule can reject.
pub(crate) trait JobStore: Send + Sync + 'static {
    /// Adds a plan, and returns true if it is new. Never replaces an existing plan. Rejected if the
    /// budget of a new plan has no room.
    fn add_plan(&self, plan: NewPlan) -> StoreFuture<RuleResult<bool>>;
    fn plan(&self, plan_id: &PlanId) -> StoreFuture<Option<StoredPlan>>;
    /// Returns a page of the plans in the order of their ids: all plans, or those of `owner`.
    fn plans(&self, page: Page, owner: Option<Owner>) -> StoreFuture<Vec<PlanId>>;
    /// Removes a plan with its approval, and returns true if it existed. With `only_of`, a plan of
    /// another owner counts as one that does not exist. Rejected while a job of the plan has not
    /// ended.
    fn delete_plan(&self, plan_id: &PlanId, only_of: Option<Owner>) -> StoreFuture<RuleResult<bool>>;
    /// Adds an action with all its jobs, ready to be claimed, or adds nothing. Idempotent: the same
    /// submission again is answered with [`AddOutcome::Same`], and changes nothing.
    fn add_action(&self, action: NewAction) -> StoreFuture<RuleResult<AddOutcome>>;
    /// Appends jobs to an open action, and returns the number of jobs that the action then has.
    /// Adds all jobs or none. Idempotent if [`AppendJobs::at`] is set: jobs that are already there
    /// are not added again.
    fn add_jobs(&self, more: AppendJobs) -> StoreFuture<RuleResult<u64>>;
    /// Applies `rule` to an action. If the changed action is closed and none of its jobs is kept
    /// any more, the action is removed.
    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> StoreFuture<RuleResult<()>>;
    /// Removes the halted mark of an action without waiting and running jobs, so that its jobs may
    /// be claimed again if they are retried.
    fn complete_halt(&self, action_id: &ActionId, now: Timestamp) -> StoreFuture<()>;
    /// Returns a page of the actions that have all of `labels`, in the order of their ids: all such
    /// actions, or those of `owner`.
    fn actions(
        &self,
        page: Page,
        labels: BTreeMap<String, String>,
        owner: Option<Owner>,
    ) -> StoreFuture<Vec<ActionId>>;
    fn action(&self, action_id: &ActionId) -> StoreFuture<Option<(Action, JobCounts)>>;
    /// Returns a slice of the jobs of an action in the order of its inputs. If `statuses` is empty,
    /// `slice` counts inputs, and skips those whose jobs are no longer kept. Otherwise `slice`
    /// counts the jobs that have one of `statuses`.
    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> StoreFuture<Vec<JobId>>;
    /// Returns the record of a job, without its queue, needs, input and results.
    fn job_record(&self, job_id: &JobId) -> StoreFuture<Option<Job>>;
    fn job(&self, job_id: &JobId) -> StoreFuture<Option<StoredJob>>;
    /// Applies `rule` to a job, and updates its indexes and the counts of its action in the same
    /// transaction. Stores `results` if the rule changes the job, and counts the job with their
    /// blobs; rejected if the record of a blob is missing. Returns the change, or `None` if the
    /// rule changes nothing.
    fn decide(
        &self,
        job_id: &JobId,
        level: AckLevel,
        results: Option<ReportedResults>,
        rule: JobRule,
    ) -> StoreFuture<RuleResult<Option<JobChange>>>;
    /// Claims a job for each claimant, in the order of `claimants`, and returns one entry for each;
    /// `None` if no job fits.
    ///
    /// A claimant gets a job from the first of its queues that has one that it can run: of the
    /// share whose turn it is, the oldest job of the highest priority. A claim must be reported
    /// within `start_timeout_ms` milliseconds (0 for no bound). A store ends the jobs in front of
    /// the claimed job that can no longer run, at most [`MAX_WITHDRAWN`] in one write: claimants
    /// without a job then claim again. Claims are answered at [`AckLevel::Applied`], because a lost
    /// claim only makes the job ready again.
    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> StoreFuture<Vec<Option<Claim>>>;
    /// Returns the jobs that meet every condition of `search`, the newest first: all such jobs, or
    /// those of `owner`.
    fn search(&self, search: Search, owner: Option<Owner>) -> StoreFuture<Vec<JobId>>;
    /// Returns the first `count` ready jobs of a queue, by priority, then age. Claims take turns
    /// between the shares of the jobs.
    fn peek(&self, queue: &str, count: usize) -> StoreFuture<Vec<JobId>>;
    /// Returns the first `count` jobs that are scheduled for a time, the earliest first.
    fn peek_scheduled(&self, count: usize) -> StoreFuture<Vec<JobId>>;
    /// Returns how many ready jobs of its lane are claimed before `job`, counted up to `limit`.
    fn position(&self, job: &Job, limit: usize) -> StoreFuture<u64>;
    fn set_paused(&self, queue: &str, paused: bool) -> StoreFuture<()>;
    fn paused(&self) -> StoreFuture<Vec<String>>;
    /// Returns true if `prune` would remove a job or an action.
    fn is_prunable(&self, keep: Retention) -> StoreFuture<bool>;
    /// Removes at most `limit` ended jobs that `keep` does not retain, and actions that have no
    /// jobs left. Removes at most `limit` closed actions without jobs that were submitted before
    /// [`Retention::ended_since`]. Returns the number of removed jobs. Answered at
    /// [`AckLevel::Applied`].
    fn prune(&self, keep: Retention, limit: usize) -> StoreFuture<usize>;
    /// Removes a job that has ended with `status`, and returns true if there was one.
    fn forget_job(&self, job_id: &JobId, status: Status) -> StoreFuture<bool>;
    fn totals(&self) -> StoreFuture<Totals>;
    fn held_by(&self, holder: &str) -> StoreFuture<Vec<JobId>>;
    fn holders(&self) -> StoreFuture<Vec<String>>;
    /// Returns the quantities that claimed jobs use, by holder: of all holders, or of `holder`.
    /// Holders whose jobs use none are left out.
    fn used_resources(&self, holder: Option<&str>) -> StoreFuture<BTreeMap<String, Quantities>>;
    /// Returns at most `limit` jobs whose timer fires at or before `now`, the earliest first. A
    /// timer makes a scheduled job or a retry ready, or ends the lease of an active job.
    fn due(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<JobId>>;
    /// Returns the jobs with a timer (start, retry or lease) after `now` that `wanted` accepts.
    fn pending_timers(&self, now: Timestamp, wanted: JobFilter) -> StoreFuture<Vec<Job>>;
    /// Returns the number of scheduled jobs, and the time at which the first of them becomes ready.
    fn scheduled(&self) -> StoreFuture<(u64, Option<Timestamp>)>;
    fn queue_counts(&self) -> StoreFuture<QueueCounts>;
    /// Returns the lanes that have ready jobs.
    fn lanes(&self) -> StoreFuture<Vec<LaneSummary>>;
}
