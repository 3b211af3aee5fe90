//! Limit of the processor time of a job: that of the tasks that have ended, and of all processes
//! that still run.
//!
//! RLIMIT_CPU bounds each process alone, so a task with many processes would exceed it. The worker
//! therefore adds up the processes of the job at intervals, which follow from the time that is left
//! and from the number of processors.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agenix_protocol::documents::{ResourceUse, TaskResult};
use rustix::process::Pid;

use crate::exec::{job_mark::RunNumber, output_quota::QuotaCheck, process_table};

/// Bounds of the interval between two polls.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum processor time of all tasks of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessorLimit {
    pub(crate) time: Duration,
    /// Origin of the limit, for the message.
    pub(crate) source: LimitSource,
}

/// Origin of a limit of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitSource {
    /// Budget of the key that submitted the job.
    Budget,
    /// Signed order of the plan.
    Order,
}

impl ProcessorLimit {
    /// Returns the lower one of two limits.
    pub(crate) fn lower(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        [one, other].into_iter().flatten().min_by_key(|limit| limit.time)
    }

    /// Judges a job that has taken `used` on `processors` processors.
    ///
    /// The job ends before it exceeds the limit: the last processes run on for one interval, and
    /// for the time of their end.
    fn check(&self, used: Duration, processors: u32) -> QuotaCheck {
        let margin = (MIN_INTERVAL * 2 * processors).min(self.time / 10);
        let left = self.time.saturating_sub(used + margin);
        if left.is_zero() {
            let (used, time) = (used.as_secs_f64(), self.time.as_secs_f64());
            let (permits, advice) = match self.source {
                LimitSource::Budget => {
                    ("its budget permits", "use fewer threads, or raise timeout_secs of the plan")
                }
                LimitSource::Order => ("limits.cpu_secs of its order permits", "sign an order with more"),
            };
            return QuotaCheck::Exceeds(format!(
                "the tasks of the job took {used:.2} s of processor time, and {permits} {time:.2} s: {advice}"
            ));
        }
        QuotaCheck::Fits((left / processors.max(1)).clamp(MIN_INTERVAL, MAX_INTERVAL))
    }
}

/// Processor time of one attempt with a limit.
#[derive(Debug)]
pub(crate) struct ProcessorMeter {
    limit: ProcessorLimit,
    processors: u32,
    measured: MeasuredProcesses,
    /// Processor time in milliseconds at the last poll.
    seen: AtomicU64,
}

/// Processes that a meter adds up.
#[derive(Debug)]
enum MeasuredProcesses {
    /// Children of this worker.
    Children {
        run: RunNumber,
        /// Milliseconds of each task that has ended, by its number.
        ended: Mutex<BTreeMap<u32, u64>>,
    },
    /// Descendants of a sandbox supervisor, which also counts those that have ended.
    Supervisor {
        pid: Pid,
        /// Processor time before the job.
        before: Duration,
    },
}

impl ProcessorMeter {
    /// Returns the meter of an attempt whose tasks are children of this worker, or descendants of
    /// the process `supervisor`.
    ///
    /// # Errors
    ///
    /// Returns the reason of the job's failure on a system without `/proc`.
    pub(crate) fn new(
        limit: ProcessorLimit,
        run: RunNumber,
        supervisor: Option<Pid>,
    ) -> Result<Self, &'static str> {
        if !cfg!(target_os = "linux") {
            return Err("a limit of processor time holds only on Linux: use a worker there");
        }
        let measured = match supervisor {
            Some(pid) => MeasuredProcesses::Supervisor { pid, before: time_of_tree(vec![pid]) },
            None => MeasuredProcesses::Children { run, ended: Mutex::default() },
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        Ok(Self { limit, processors, measured, seen: AtomicU64::new(0) })
    }

    /// Counts a task that has ended. Counting the task again has no effect, because a stage waits
    /// for its tasks again each time that another one starts.
    pub(crate) fn add(&self, task_number: u32, used: &ResourceUse) {
        if let MeasuredProcesses::Children { ended, .. } = &self.measured {
            lock(ended).insert(task_number, processor_ms(used));
        }
    }

    /// Judges the attempt. `leaders` are the first processes of its running tasks.
    pub(crate) fn check(&self, leaders: &[LeaderProcess]) -> QuotaCheck {
        let used = self.used(leaders);
        self.seen.fetch_max(millis(used), Ordering::Relaxed);
        self.limit.check(used, self.processors)
    }

    /// Adds to the last result what the results lack: the time of processes for which no task has
    /// waited. The attempt has no running task.
    ///
    /// In a sandbox the sum is exact. Elsewhere, the time of a process that has left its task
    /// counts as of the last poll.
    pub(crate) fn add_unreported(&self, results: &mut [TaskResult]) {
        let used = self.seen.load(Ordering::Relaxed).max(millis(self.used(&[])));
        let reported = results.iter().map(|result| processor_ms(&result.resources)).sum();
        if let Some(last) = results.last_mut() {
            let system_ms = last.resources.system_ms.get_or_insert_default();
            *system_ms = system_ms.saturating_add(used.saturating_sub(reported));
        }
    }

    fn used(&self, leaders: &[LeaderProcess]) -> Duration {
        match &self.measured {
            MeasuredProcesses::Supervisor { pid, before } => time_of_tree(vec![*pid]).saturating_sub(*before),
            MeasuredProcesses::Children { run, ended } => {
                let mut roots = process_table::adopted_of(*run);
                roots.extend(leaders.iter().filter_map(LeaderProcess::running));
                let ended: u64 = lock(ended).values().sum();
                Duration::from_millis(ended) + time_of_tree(roots)
            }
        }
    }
}

/// First process of a task, whose process id may belong to another process once it has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaderProcess {
    pid: Pid,
    started: u64,
}

#[cfg(target_os = "linux")]
impl LeaderProcess {
    /// Returns the process `pid`, which this worker has not reaped.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let started = process_table::ProcessStat::of(pid)?.started;
        Some(Self { pid, started })
    }

    fn running(&self) -> Option<Pid> {
        let stat = process_table::ProcessStat::of(self.pid)?;
        (stat.started == self.started).then_some(self.pid)
    }
}

#[cfg(not(target_os = "linux"))]
impl LeaderProcess {
    /// Returns no process, because there is no `/proc`.
    pub(crate) fn of(_pid: Pid) -> Option<Self> {
        None
    }

    fn running(&self) -> Option<Pid> {
        (self.started > 0).then_some(self.pid)
    }
}

fn processor_ms(used: &ResourceUse) -> u64 {
    used.user_ms.unwrap_or_default().saturating_add(used.system_ms.unwrap_or_default())
}

fn lock(ended: &Mutex<BTreeMap<u32, u64>>) -> MutexGuard<'_, BTreeMap<u32, u64>> {
    ended.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the processor time of the `roots` and their descendants, with that of the children for
/// which they have waited.
fn time_of_tree(roots: Vec<Pid>) -> Duration {
    let mut tree = BTreeSet::new();
    process_table::descendants(roots, &mut tree);
    tree.into_iter().filter_map(Pid::from_raw).map(process_table::processor_time).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LimitSource, MAX_INTERVAL, MIN_INTERVAL, ProcessorLimit};
    #[cfg(target_os = "linux")]
    use super::{ProcessorMeter, ResourceUse, TaskResult};
    #[cfg(target_os = "linux")]
    use crate::exec::job_mark::JobMark;
    use crate::exec::output_quota::QuotaCheck;

    fn limit(secs: u64, source: LimitSource) -> ProcessorLimit {
        ProcessorLimit { time: Duration::from_secs(secs), source }
    }

    fn wait(secs: u64, used_ms: u64, processors: u32) -> Option<Duration> {
        match limit(secs, LimitSource::Budget).check(Duration::from_millis(used_ms), processors) {
            QuotaCheck::Fits(wait) => Some(wait),
            QuotaCheck::Exceeds(_) => None,
        }
    }

    #[test]
    fn job_ends_before_it_exceeds_its_processor_time() {
        assert_eq!(wait(600, 0, 4), Some(MAX_INTERVAL));
        assert_eq!(wait(10, 9_039, 4), Some(Duration::from_micros(200_250)), "all processors may be busy");
        assert_eq!(wait(10, 9_839, 4), Some(MIN_INTERVAL));
        assert_eq!(wait(10, 9_840, 4), None);
        assert_eq!(wait(1, 899, 64), Some(MIN_INTERVAL), "the margin is a tenth at the most");
        assert_eq!(wait(1, 900, 64), None);
    }

    #[test]
    fn message_names_the_limit_and_what_to_do() {
        let text = |source| match limit(1, source).check(Duration::from_secs(1), 1) {
            QuotaCheck::Exceeds(text) => text,
            QuotaCheck::Fits(_) => String::new(),
        };
        let both = "the tasks of the job took 1.00 s of processor time, and";
        assert_eq!(
            text(LimitSource::Order),
            format!("{both} limits.cpu_secs of its order permits 1.00 s: sign an order with more")
        );
        assert!(
            text(LimitSource::Budget)
                .starts_with(&format!("{both} its budget permits 1.00 s: use fewer threads"))
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn task_that_has_ended_counts_once() {
        let mark = JobMark::new();
        let meter = ProcessorMeter::new(limit(10, LimitSource::Order), mark.run(), None).unwrap();
        let used = |ms| ResourceUse { user_ms: Some(ms), system_ms: Some(1), ..ResourceUse::default() };
        for (task, ms) in [(1, 300), (1, 300), (2, 40)] {
            meter.add(task, &used(ms));
        }
        assert_eq!(meter.used(&[]), Duration::from_millis(342));
        let mut results =
            [TaskResult::default(), TaskResult { resources: used(40), ..TaskResult::default() }];
        meter.add_unreported(&mut results);
        assert_eq!(results[1].resources.system_ms, Some(302), "what no result has is that of the last one");
    }

    #[test]
    fn lower_limit_holds() {
        let (budget, order) = (limit(2, LimitSource::Budget), limit(1, LimitSource::Order));
        assert_eq!(ProcessorLimit::lower(Some(budget), Some(order)), Some(order));
        assert_eq!(ProcessorLimit::lower(Some(budget), None), Some(budget));
        assert_eq!(ProcessorLimit::lower(None, None), None);
    }
}
