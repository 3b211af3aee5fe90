//! Shortage of a resource of the machine: open files, processes, memory, the spool. A job that
//! meets a shortage waits until other jobs have released some of the resource, because the job did
//! not cause the shortage.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::io::Errno;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use crate::{
    clock,
    exec::{cancel::CancelToken, spool::SpoolError},
};

/// First wait of a job; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// Maximum of one wait.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Duration after which a shortage lasts if all jobs wait, because none will release the resource.
const LASTING: Duration = Duration::from_secs(30);
/// Interval between two checks whether a shortage lasts.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Duration of a shortage after a failed start, longer than the [`MAX_WAIT`] between starts.
const CURRENT: Duration = Duration::from_secs(3);

/// Returns true if `error` reports a resource limit of a process, a user or the machine, or any
/// error of the spool.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let of_descriptors = is_descriptor_shortage(error);
    let of_spool = error.get_ref().is_some_and(|inner| inner.is::<SpoolError>());
    of_descriptors || of_spool || matches!(errno(error), Some(Errno::AGAIN | Errno::NOSPC | Errno::DQUOT))
}

/// Returns true if `error` reports a lack of file descriptors or memory. This check is for files of
/// the user, because a full disk there is an error of the user and not a shortage.
pub(crate) fn is_descriptor_shortage(error: &io::Error) -> bool {
    matches!(errno(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// State of the starts of tasks.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    state: Mutex<ShortageState>,
    /// Notified when the only job that has processes is to fail.
    sole_holder: Notify,
}

#[derive(Debug, Default)]
struct ShortageState {
    /// Times of the first and of the latest failure since the last successful start.
    failed: Option<(Instant, Instant)>,
    reason: String,
    /// True if the latest failure was a lack of processes.
    lacks_processes: bool,
    /// Number of waiting jobs.
    waiting: usize,
    /// Number of jobs that have processes and wait for the start of a further one.
    holders: usize,
}

/// Guard of a waiting job. A drop of the guard ends the wait.
pub(crate) struct WaitGuard<'s> {
    shortage: &'s Shortage,
    next: Duration,
}

/// Guard of a job that has processes and waits for the start of a further one.
struct HolderGuard<'s>(&'s Shortage);

impl Shortage {
    /// Registers a waiting job.
    pub(crate) fn wait(&self) -> WaitGuard<'_> {
        self.lock().waiting += 1;
        WaitGuard { shortage: self, next: FIRST_WAIT }
    }

    /// Records a successful start.
    pub(crate) fn over(&self) {
        self.lock().failed = None;
    }

    /// Returns true if a start has failed within [`CURRENT`]. The worker then claims no jobs.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        self.lock().failed.is_some_and(|(_, latest)| now.duration_since(latest) < CURRENT)
    }

    /// Waits until a shortage lasts although every job of the worker waits, and returns the reason.
    /// `jobs` returns the number of jobs of the worker. If the worker ends, any shortage lasts.
    /// Otherwise, a job that alone has all processes fails first.
    pub(crate) async fn wait_until_lasting(&self, jobs: impl Fn() -> usize, ends: bool) -> String {
        let least = if ends { Duration::ZERO } else { LASTING };
        loop {
            let now = Instant::now();
            if let Some(reason) = self.lasting(jobs(), now, least)
                && (ends || !self.fail_sole_holder(now))
            {
                return reason;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits, for a job that has processes and starts a further one, until no process can be
    /// started although no other job has any. Returns the error with which the job then fails: it
    /// would meet the same shortage again.
    pub(crate) async fn sole_holder_fails(&self) -> io::Error {
        let notified = self.sole_holder.notified();
        self.lock().holders += 1;
        let _holder = HolderGuard(self);
        notified.await;
        io::Error::other(
            "no further process can be started, and no other job of the worker has any: let fewer tasks stream, \
             or raise `ulimit -u` or TasksMax= of agw",
        )
    }

    /// Lets the only job that has processes fail if the machine lacks processes. The other jobs
    /// then have as much time again. Returns false if there is no such job.
    fn fail_sole_holder(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if !state.lacks_processes || state.holders != 1 {
            return false;
        }
        state.failed = state.failed.map(|(_, latest)| (now, latest));
        drop(state);
        self.sole_holder.notify_waiters();
        true
    }

    /// Returns the reason for a shortage of at least `least` while all `jobs` of the worker wait.
    fn lasting(&self, jobs: usize, now: Instant, least: Duration) -> Option<String> {
        let state = self.lock();
        let (first, latest) = state.failed?;
        let lasts = now.duration_since(first) >= least && now.duration_since(latest) < LASTING;
        (lasts && jobs > 0 && state.waiting >= jobs).then(|| state.reason.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ShortageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitGuard<'_> {
    /// Records a failed start, and returns the wait before the next start.
    pub(crate) fn failed(&mut self, error: &io::Error, now: Instant) -> Duration {
        let mut state = self.shortage.lock();
        if state.failed.is_none() {
            warn!(
                "a task cannot be started now and waits: {error}; check `ulimit -n`, `ulimit -u`, and the permissions and the free space of the spool"
            );
        }
        let first = state.failed.map_or(now, |(first, _)| first);
        state.failed = Some((first, now));
        state.reason = error.to_string();
        state.lacks_processes = errno(error) == Some(Errno::AGAIN);
        drop(state);
        let wait = self.next;
        self.next = (wait * 2).min(MAX_WAIT);
        wait
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.shortage.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.failed = None;
        }
    }
}

impl Drop for HolderGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().holders -= 1;
    }
}

/// Maximum wait for the resources that a job needs before its first task.
pub(crate) const RESOURCE_TIMEOUT: Duration = Duration::from_secs(300);

/// Reason why a command was not started.
#[derive(Debug)]
pub(crate) enum Unstarted {
    /// The start failed.
    Failed(io::Error),
    /// The job was stopped while the start waited.
    Stopped,
    /// The time of the task was over while the start waited because of this error.
    TimedOut(io::Error),
}

/// Calls `start` again until it meets no shortage, at most for `timeout`.
pub(crate) async fn retry_on_shortage<T, S: Future<Output = io::Result<T>>>(
    mut start: impl FnMut() -> S,
    timeout: Duration,
    shortage: &Shortage,
    cancel: &CancelToken,
) -> Result<T, Unstarted> {
    let mut wait = None;
    let end = clock::end_of(timeout);
    loop {
        let error = match start().await {
            Err(error) if is_shortage(&error) => error,
            Err(error) => return Err(Unstarted::Failed(error)),
            Ok(started) => {
                // Only the success of a call that has waited shows that the shortage is over: bytes
                // of an input can be written while no process can be started.
                if wait.is_some() {
                    shortage.over();
                }
                return Ok(started);
            }
        };
        let now = Instant::now();
        if now >= end {
            return Err(Unstarted::TimedOut(error));
        }
        let wait = wait.get_or_insert_with(|| shortage.wait());
        let next = now + wait.failed(&error, now);
        tokio::select! {
            biased;
            // No process may start after the stop, because others may run the job already.
            () = cancel.cancelled() => return Err(Unstarted::Stopped),
            () = sleep_until(next.min(end)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready, io, time::Duration};

    use futures_util::FutureExt;
    use rustix::io::Errno;
    use tokio::time::Instant;

    use super::{LASTING, Shortage, Unstarted, is_descriptor_shortage, is_shortage, retry_on_shortage};
    use crate::exec::cancel::CancelToken;

    const LONG: Duration = Duration::from_secs(60);

    fn error(errno: Errno) -> io::Error {
        errno.into()
    }

    #[test]
    fn shortage_errors_differ_from_errors_of_the_job() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT] {
            assert!(is_shortage(&error(errno)), "{errno}");
        }
        for errno in [Errno::TOOBIG, Errno::NAMETOOLONG, Errno::NOENT, Errno::ACCESS, Errno::NOEXEC] {
            assert!(!is_shortage(&error(errno)), "{errno}");
        }
        assert!(!is_shortage(&io::Error::other("its cwd is not a directory")));
        assert!(
            is_descriptor_shortage(&error(Errno::MFILE)) && !is_descriptor_shortage(&error(Errno::NOSPC))
        );
    }

    #[test]
    fn shortage_lasts_while_all_jobs_wait_and_ends_with_a_start() {
        let (shortage, start) = (Shortage::default(), Instant::now());
        let lasting = |jobs, now| shortage.lasting(jobs, now, LASTING);
        let later = start + LASTING;
        let mut one = shortage.wait();
        assert_eq!(one.failed(&error(Errno::MFILE), start), Duration::from_millis(20));
        let of_ending = |jobs| shortage.lasting(jobs, start, Duration::ZERO);
        assert!(of_ending(1).is_some() && of_ending(2).is_none(), "an ending worker waits for no resource");
        assert!(shortage.is_current(start) && lasting(1, start).is_none());
        assert_eq!(one.failed(&error(Errno::MFILE), later), Duration::from_millis(40));
        assert!(lasting(2, later).is_none(), "the other runs");
        assert!(lasting(1, later).unwrap().contains("open files"));
        assert!(!shortage.is_current(later + LASTING));
        shortage.over();
        assert!(lasting(1, later).is_none());
        one.failed(&error(Errno::MFILE), start);
        one.failed(&error(Errno::MFILE), later);
        assert!(lasting(0, later).is_none() && lasting(1, later).is_some());
        drop(one);
        assert!(lasting(1, later).is_none(), "nobody waits");
    }

    #[tokio::test]
    async fn lasting_lack_of_processes_fails_the_only_job_that_has_some() {
        let (shortage, now) = (Shortage::default(), Instant::now());
        let (mut wait, _other) = (shortage.wait(), shortage.wait());
        wait.failed(&error(Errno::AGAIN), now - LASTING);
        wait.failed(&error(Errno::NOSPC), now);
        let [mut one, mut two] = [0; 2].map(|_| Box::pin(shortage.sole_holder_fails()));
        assert!((&mut one).now_or_never().is_none());
        assert!(!shortage.fail_sole_holder(now), "the disk is full");
        wait.failed(&error(Errno::AGAIN), now);
        assert!((&mut two).now_or_never().is_none());
        assert!(!shortage.fail_sole_holder(now), "both jobs have processes");
        drop(two);
        let failed = tokio::select! {
            biased;
            failed = one => failed,
            reason = shortage.wait_until_lasting(|| 2, false) => panic!("all jobs go back: {reason}"),
        };
        assert!(failed.to_string().contains("ulimit -u"), "{failed}");
        assert!(!shortage.fail_sole_holder(now), "no job has processes");
        assert!(shortage.lasting(2, now, LASTING).is_none(), "the other job has as much time again");
    }

    #[tokio::test]
    async fn start_retry_ends_with_the_timeout_of_the_task() {
        let start = || ready(Err::<(), io::Error>(Errno::MFILE.into()));
        let unstarted = retry_on_shortage(
            start,
            Duration::from_millis(30),
            &Shortage::default(),
            &CancelToken::default(),
        )
        .await;
        assert!(
            matches!(&unstarted, Err(Unstarted::TimedOut(error)) if error.to_string().contains("open files")),
            "{unstarted:?}"
        );
    }

    #[tokio::test]
    async fn start_retry_stops_after_a_cancellation() {
        let (starts, cancel) = (Cell::new(0), CancelToken::default());
        let start = || {
            starts.set(starts.get() + 1);
            cancel.cancel();
            // A second start would succeed.
            ready(if starts.get() == 1 { Err(io::Error::from(Errno::AGAIN)) } else { Ok(()) })
        };
        let unstarted = retry_on_shortage(start, LONG, &Shortage::default(), &cancel).await;
        assert!(matches!(unstarted, Err(Unstarted::Stopped)), "{unstarted:?}");
        assert_eq!(starts.get(), 1);
    }

    #[tokio::test]
    async fn start_retry_lasts_until_the_shortage_is_over() {
        let starts = Cell::new(0);
        let start = || {
            starts.set(starts.get() + 1);
            ready(if starts.get() < 3 { Err(io::Error::from(Errno::AGAIN)) } else { Ok(starts.get()) })
        };
        let started = retry_on_shortage(start, LONG, &Shortage::default(), &CancelToken::default()).await;
        assert!(matches!(started, Ok(3)), "{started:?}");
    }
}
