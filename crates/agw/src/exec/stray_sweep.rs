//! Sweep of stray processes: ends the processes that runs of jobs have left behind at their end.
//!
//! The kernel makes an orphan a child of this worker (`subreaper`), so a worker without adopted
//! children has no stray process. An adopted process belongs to the run whose mark it has. A
//! process without a mark belongs to one of the runs that are running when the worker first sees
//! the process, and is ended after the last of these runs. A process that was not started below
//! this worker is left alone, as an orphan of `docker exec` where the worker is the first process
//! of a container.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, getpid, kill_process},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use crate::exec::{
    inherited_limit,
    job_mark::{self, RunNumber, run_of},
    process_table::{ProcessStat, descendants, environment, name},
    stray_processes::StrayProcess,
    subreaper,
};

/// Interval of the search that runs besides the searches at the end of a job.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Maximum time of one sweep. A killed process may hang in a system call.
const BOUND: Duration = Duration::from_secs(5);
/// Maximum number of searches of one sweep, because processes may start others without end.
const ROUNDS: u32 = 50;
/// Time until a process that is in exec(2) has a readable environment.
const EXEC_TIME: Duration = Duration::from_millis(1);
/// Maximum interval between two checks whether killed processes have ended.
const MAX_PAUSE: Duration = Duration::from_millis(20);

static SEEN: Mutex<SeenProcesses> = Mutex::new(SeenProcesses { unmarked: Vec::new(), unended: Vec::new() });

/// Adopted processes from earlier searches.
struct SeenProcesses {
    unmarked: Vec<UnmarkedProcess>,
    /// Processes that could not be ended.
    unended: Vec<StrayProcess>,
}

/// Process below this worker without a mark.
struct UnmarkedProcess {
    process: StrayProcess,
    /// Runs that may have started the process.
    runs: BTreeSet<RunNumber>,
}

/// Process that could not be ended.
#[derive(Debug)]
pub(crate) struct UnendedProcess {
    /// Run that has left the process behind, if the process has a mark.
    pub(crate) run: Option<RunNumber>,
    /// Process id and name.
    pub(crate) name: String,
}

/// Processes that one search has found.
#[derive(Default)]
struct Found {
    killed: Vec<StrayProcess>,
    unended: Vec<UnendedProcess>,
    /// Adopted processes that have ended, whose children are adopted only from then on.
    ended: BTreeSet<i32>,
    /// True if another search may find more.
    is_incomplete: bool,
}

/// Searches every [`LOOK_EVERY`], and never returns.
pub(crate) async fn watch() {
    loop {
        sleep(LOOK_EVERY).await;
        subreaper::reap();
        if subreaper::has_adopted() {
            // A read of an environment may hang, and heartbeats share this thread.
            drop(spawn_blocking(kill).await);
        }
    }
}

/// Ends the processes of all runs that have ended, until none is left. Returns the processes that
/// could not be ended. The call costs one read of a file if there is no adopted process.
pub(crate) async fn end() -> Vec<UnendedProcess> {
    let (mut unended, mut known) = (Vec::new(), BTreeSet::new());
    if !subreaper::has_adopted() {
        return unended;
    }
    let end = Instant::now() + BOUND;
    for _ in 0..ROUNDS {
        let found = kill();
        unended.extend(found.unended);
        if found.killed.is_empty() {
            if found.is_incomplete {
                sleep(EXEC_TIME).await;
            } else if found.ended.is_subset(&known) {
                return unended;
            }
            known = found.ended;
            continue;
        }
        let mut pause = Duration::from_millis(1);
        while !found.killed.iter().all(StrayProcess::has_ended) && Instant::now() < end {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        found.killed.iter().for_each(StrayProcess::reap);
        if Instant::now() >= end {
            unended.extend(give_up(found.killed));
            return unended;
        }
    }
    warn!("ended jobs may have left processes behind; the worker goes on searching for them");
    unended
}

/// Gives up the killed processes that have not ended, because they may hang in a system call.
fn give_up(killed: Vec<StrayProcess>) -> Vec<UnendedProcess> {
    let running: Vec<_> = killed.into_iter().filter(|process| !process.has_ended()).collect();
    let names =
        running.iter().map(|process| UnendedProcess::new(process.pid(), "it was killed, and still runs"));
    let names = names.collect();
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).unended.extend(running);
    names
}

impl UnendedProcess {
    fn new(pid: Pid, reason: &str) -> Self {
        let unended = Self { run: run_of(&environment(pid)), name: name(pid) };
        warn!("process {} of an ended job could not be ended: {reason}; end it by hand", unended.name);
        unended
    }
}

/// Stops the processes of all runs that have ended, then kills them, so that none can start another
/// in place of a killed one.
fn kill() -> Found {
    subreaper::reap();
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = Found::default();
    let roots = seen.strays(&job_mark::running(), &mut found);
    for process in with_descendants(roots, &mut found.is_incomplete) {
        let name = name(process.pid());
        match process.signal(Signal::KILL) {
            Err(Errno::PERM) => {
                found.unended.push(UnendedProcess::new(process.pid(), "it runs as another user"));
                seen.unended.push(process);
            }
            _ => {
                debug!("process {name} was left behind by an ended job, and was killed");
                found.killed.push(process);
            }
        }
    }
    found
}

impl SeenProcesses {
    /// Returns the adopted processes all of whose runs have ended. Adds those that have ended to
    /// `found`, and whether a process has to be checked again.
    fn strays(&mut self, running: &BTreeSet<RunNumber>, found: &mut Found) -> Vec<StrayProcess> {
        self.unended.retain(|process| !process.has_ended());
        self.unmarked.retain(|unmarked| !unmarked.process.has_ended());
        let mut strays = Vec::new();
        for pid in subreaper::adopted() {
            if self.unended.iter().any(|process| process.pid() == pid) {
                continue;
            }
            let run = run_of(&environment(pid));
            let process = match StrayProcess::if_running(pid, |stat| stat.parent == getpid().as_raw_pid()) {
                Ok(Some(process)) => process,
                Ok(None) => {
                    found.ended.insert(pid.as_raw_pid());
                    continue;
                }
                Err(_few_descriptors) => {
                    if run.is_some_and(|run| !running.contains(&run)) {
                        let _gone = kill_process(pid, Signal::KILL);
                    }
                    found.is_incomplete = true;
                    continue;
                }
            };
            match run {
                Some(run) if running.contains(&run) => {}
                Some(_) => strays.push(process),
                None => strays.extend(self.unmarked(process, running, &mut found.is_incomplete)),
            }
        }
        strays
    }

    /// Records a process without a mark, and returns the process if all of its runs have ended. A
    /// process has no mark during exec(2), so the call returns the process at the second poll at
    /// the earliest.
    fn unmarked(
        &mut self,
        process: StrayProcess,
        running: &BTreeSet<RunNumber>,
        is_incomplete: &mut bool,
    ) -> Option<StrayProcess> {
        match self.unmarked.iter().position(|seen| seen.process.pid() == process.pid()) {
            Some(at) => {
                self.unmarked[at].runs.is_disjoint(running).then(|| self.unmarked.swap_remove(at).process)
            }
            None => {
                if inherited_limit::is_inherited_by(process.pid()) {
                    self.unmarked.push(UnmarkedProcess { process, runs: running.clone() });
                    *is_incomplete = true;
                }
                None
            }
        }
    }
}

/// Stops `roots` and all their descendants, and returns them.
fn with_descendants(roots: Vec<StrayProcess>, is_incomplete: &mut bool) -> Vec<StrayProcess> {
    let mut stopped = BTreeMap::new();
    let mut new = roots;
    for _ in 0..ROUNDS {
        if new.is_empty() {
            break;
        }
        for process in new.drain(..) {
            let _not_permitted = process.signal(Signal::STOP);
            stopped.insert(process.pid().as_raw_pid(), process);
        }
        let (mut all, pids) = (BTreeSet::new(), stopped.values().map(StrayProcess::pid).collect());
        descendants(pids, &mut all);
        // A child whose parent has ended is adopted, and the next search finds it.
        let is_child = |stat: &ProcessStat| all.contains(&stat.parent);
        for pid in all.iter().filter(|pid| !stopped.contains_key(pid)).filter_map(|&pid| Pid::from_raw(pid)) {
            match StrayProcess::if_running(pid, is_child) {
                Ok(process) => new.extend(process),
                Err(_few_descriptors) => *is_incomplete = true,
            }
        }
    }
    *is_incomplete |= !new.is_empty();
    stopped.into_values().collect()
}
