//! Mark of one run of a job: an environment variable that all processes of the run inherit, so that
//! the worker finds processes whose parents have ended.

use std::{
    collections::BTreeSet,
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Environment variable of each task, with the value `WORKER-RUN-TASK`, which no other task has.
pub(crate) const VARIABLE: &str = "AGW_RUN";

/// Unique id of this run of the worker, because the system reuses process ids.
static WORKER: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().simple().to_string());
static RUNS: Mutex<Runs> = Mutex::new(Runs { next: 0, running: BTreeSet::new() });

struct Runs {
    next: u64,
    running: BTreeSet<u64>,
}

/// Number of a run of a job, unique in this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunNumber(u64);

/// Mark of a run of a job or of a helper command. The run lasts until the drop. After the drop, the
/// processes of the run are stray processes.
#[derive(Debug)]
pub(crate) struct JobMark {
    run: u64,
    tasks: AtomicU64,
}

impl JobMark {
    pub(crate) fn new() -> Self {
        let mut runs = runs();
        let run = runs.next;
        runs.next += 1;
        runs.running.insert(run);
        Self { run, tasks: AtomicU64::new(0) }
    }

    pub(crate) fn run(&self) -> RunNumber {
        RunNumber(self.run)
    }

    /// Returns a value of [`VARIABLE`] for one more task.
    pub(crate) fn next_value(&self) -> String {
        format!("{}-{}-{}", *WORKER, self.run, self.tasks.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for JobMark {
    fn drop(&mut self) {
        runs().running.remove(&self.run);
    }
}

/// Returns the id of this worker, with which the marks of all its runs begin.
pub(crate) fn worker() -> &'static str {
    &WORKER
}

/// Returns true if `environment`, as of `/proc/PID/environ`, has a mark of the worker `id`.
#[cfg(target_os = "linux")]
pub(crate) fn is_of_worker(environment: &[u8], id: &str) -> bool {
    values(environment)
        .any(|value| value.strip_prefix(id.as_bytes()).is_some_and(|rest| rest.starts_with(b"-")))
}

/// Returns the run that `environment`, as of `/proc/PID/environ`, has the mark of.
pub(crate) fn run_of(environment: &[u8]) -> Option<RunNumber> {
    let number = values(environment).find_map(|value| value.strip_prefix(WORKER.as_bytes()))?;
    let number = number.strip_prefix(b"-")?.split(|&byte| byte == b'-').next()?;
    std::str::from_utf8(number).ok()?.parse().ok().map(RunNumber)
}

/// Returns the values that `environment` gives to [`VARIABLE`].
fn values(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let variables = environment.split(|&byte| byte == 0);
    variables.filter_map(|variable| variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))
}

/// Returns the runs that have not ended.
#[cfg(any(target_os = "linux", test))]
pub(crate) fn running() -> BTreeSet<RunNumber> {
    runs().running.iter().copied().map(RunNumber).collect()
}

fn runs() -> MutexGuard<'static, Runs> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{JobMark, VARIABLE, run_of, running};

    #[test]
    fn job_mark_is_found_in_the_environment_of_all_its_tasks() {
        let (one, other) = (JobMark::new(), JobMark::new());
        let values = [one.next_value(), one.next_value(), other.next_value()];
        let runs = values.each_ref().map(|value| run_of(format!("A=b\0{VARIABLE}={value}\0").as_bytes()));
        assert_eq!(runs, [Some(one.run()), Some(one.run()), Some(other.run())]);
        assert!(values[0] != values[1] && one.run() != other.run());
        let foreign = [format!("X{VARIABLE}={}\0", values[0]), format!("{VARIABLE}=0-1-2\0"), String::new()];
        for environment in foreign {
            assert_eq!(run_of(environment.as_bytes()), None, "{environment}");
        }
    }

    #[test]
    fn run_lasts_until_its_mark_is_dropped() {
        let mark = JobMark::new();
        let run = mark.run();
        assert!(running().contains(&run));
        drop(mark);
        assert!(!running().contains(&run));
    }
}
