//! Workers that run their jobs in a sandbox, and the supervisors of these sandboxes, which faults
//! kill or suspend.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{Lab, within};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::{RUNS, ledger::ChaosLedger};

/// Argument of the processes of a supervisor.
const SUPERVISOR: &str = "--sandbox-supervisor";
/// Time within which supervisors of killed workers have to end.
const END_WITHIN: Duration = Duration::from_secs(20);

/// Sandboxes of the workers of a run.
pub(super) struct WorkerSandboxes {
    /// File for `agw --config`. `None` if this machine enforces no sandbox.
    config: Option<PathBuf>,
    /// Directory of the run, which the set-up of its supervisors names.
    directory: String,
    suspended: Vec<(Pid, Instant)>,
}

impl WorkerSandboxes {
    /// Lets tasks of other users write the file of runs, and writes the file for `agw --config`.
    pub(super) fn prepare(lab: &Lab, ledger: &ChaosLedger) -> anyhow::Result<Self> {
        let directory = lab.path().canonicalize()?.display().to_string();
        for (path, mode) in [(lab.path().to_owned(), 0o755), (lab.file(RUNS, ""), 0o666)] {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        let is_enforced = lab.command("agw").arg("sandbox").output().context("agw cannot be started")?;
        if !is_enforced.status.success() {
            ledger.note("runs without a sandbox, because this machine enforces none");
            return Ok(Self { config: None, directory, suspended: Vec::new() });
        }
        let settings = format!("[sandbox]\nmode = \"all\"\nscratch = {directory:?}\n");
        let profile =
            format!("[profiles.reader]\nread = [{directory:?}]\nwrite = [\"{directory}/{RUNS}\"]\n");
        let config = Some(lab.file("agw.toml", &(settings + &profile)));
        Ok(Self { config, directory, suspended: Vec::new() })
    }

    /// Returns the file for a worker that has to run its jobs in a sandbox.
    pub(super) fn config(&self) -> Option<&PathBuf> {
        self.config.as_ref()
    }

    /// Kills a process of a random supervisor of these workers. Returns false if there is no such
    /// process.
    pub(super) fn kill_one(&mut self, workers: &[u32], rng: &mut Rng) -> bool {
        let found = supervisors_of(workers);
        let victim = rng.choice(&found);
        victim.is_some_and(|pid| kill_process(*pid, Signal::KILL).is_ok())
    }

    /// Suspends a process of a random supervisor of these workers until `until`. Returns false if
    /// there is no such process.
    pub(super) fn suspend_one(&mut self, workers: &[u32], until: Instant, rng: &mut Rng) -> bool {
        let found = supervisors_of(workers);
        let Some(&pid) = rng.choice(&found) else { return false };
        self.suspended.push((pid, until));
        kill_process(pid, Signal::STOP).is_ok()
    }

    /// Resumes the supervisors whose suspension is over at `now`, or all of them without a time.
    pub(super) fn resume(&mut self, now: Option<Instant>) {
        let is_over = |(_, until): &(Pid, Instant)| now.is_none_or(|now| *until <= now);
        for (pid, _) in self.suspended.extract_if(.., |entry| is_over(entry)) {
            // The process may have ended, and another process, which is not stopped, may have its
            // id.
            let _has_ended = kill_process(pid, Signal::CONT);
        }
    }

    /// Waits for the supervisors of killed workers. Returns the process ids of those that are left.
    pub(super) fn left(&self) -> Vec<i32> {
        let are_gone = || of_run(&self.directory).is_empty().then_some(());
        match within(END_WITHIN, are_gone) {
            Some(()) => Vec::new(),
            None => of_run(&self.directory),
        }
    }
}

/// Returns the processes of the supervisors that these workers have started.
fn supervisors_of(workers: &[u32]) -> Vec<Pid> {
    let is_worker = |parent: i32| workers.iter().any(|worker| worker.cast_signed() == parent);
    let supervisors: Vec<i32> = pids().filter(|pid| arguments(*pid).contains(SUPERVISOR)).collect();
    let outer: Vec<i32> =
        supervisors.iter().copied().filter(|pid| parent(*pid).is_some_and(is_worker)).collect();
    let is_own =
        |pid: &i32| outer.contains(pid) || parent(*pid).is_some_and(|parent| outer.contains(&parent));
    supervisors.into_iter().filter(is_own).filter_map(Pid::from_raw).collect()
}

/// Returns the supervisors whose set-up names the directory of the run, as far as this user can
/// read the set-up.
fn of_run(directory: &str) -> Vec<i32> {
    let names_it = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(directory)
    };
    pids().filter(|pid| arguments(*pid).contains(SUPERVISOR)).filter(names_it).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn arguments(pid: i32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
