//! Escaped processes: descendants of a task that have left the process group of the task, by
//! setsid(2) or the double fork of a daemon. The worker finds an escaped process by its parents or,
//! if these have ended, by an inherited environment variable. The search needs `/proc` of Linux,
//! and finds nothing on other systems.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::OwnedFd,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, getpgid, getpid, kill_process},
};

/// Environment variable that marks each task with a unique value.
pub(crate) const VARIABLE: &str = "AGW_RUN";
/// Maximum number of searched processes of one task, which may start processes without end.
const MOST: usize = 100_000;

/// Unique id of this run of the worker, because the system reuses process ids.
static WORKER: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().simple().to_string());

/// Unique value of [`VARIABLE`] for one task.
#[derive(Debug)]
pub(crate) struct TaskMark(String);

impl TaskMark {
    /// Creates a value that no other task has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(format!("{}-{}", *WORKER, NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// Returns true if `environment`, as of `/proc/PID/environ`, sets [`VARIABLE`] to this value.
    fn is_in(&self, environment: &[u8]) -> bool {
        let wanted = format!("{VARIABLE}={}", self.0);
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }
}

/// Process outside the group of its task. Its pidfd protects other processes from signals.
#[derive(Debug)]
pub(crate) struct StrayProcess {
    pid: Pid,
    descriptor: OwnedFd,
}

/// Finds the processes of a task that are outside the process group `group` and not among `known`.
/// `parent` is the first process of the task, or `None` if its process id may belong to another
/// process.
pub(crate) fn find(
    group: Pid,
    parent: Option<Pid>,
    mark: &TaskMark,
    known: &[StrayProcess],
) -> Vec<StrayProcess> {
    // The process id of a process that has ended may belong to another one.
    let running = known.iter().filter(|known| !known.has_ended()).map(|known| known.pid);
    let mut found = BTreeSet::new();
    descendants(running.chain(parent).collect(), &mut found);
    // Listed last, because a process is adopted if its parent ends during the search above.
    let adopted = children_of(getpid(), getpid()).into_iter().filter(|&pid| has_mark(pid, mark));
    descendants(adopted.collect(), &mut found);
    let known: BTreeSet<i32> = known.iter().map(|known| known.pid.as_raw_pid()).collect();
    let left_it = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|its| its != group);
    let new = found.into_iter().filter_map(Pid::from_raw);
    new.filter(|pid| !known.contains(&pid.as_raw_pid()))
        .filter(left_it)
        .filter_map(StrayProcess::open)
        .collect()
}

pub(crate) fn signal(strays: &[StrayProcess], signal: Signal) {
    for process in strays {
        process.signal(signal);
    }
}

pub(crate) fn have_ended(strays: &[StrayProcess]) -> bool {
    strays.iter().all(StrayProcess::has_ended)
}

impl StrayProcess {
    /// Opens a pidfd for `pid`. A process without a pidfd is killed at once.
    #[cfg(target_os = "linux")]
    fn open(pid: Pid) -> Option<Self> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Some(Self { pid, descriptor }),
            Err(_few_descriptors) => {
                let _gone = kill_process(pid, Signal::KILL);
                None
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open(_pid: Pid) -> Option<Self> {
        None
    }

    fn signal(&self, signal: Signal) {
        // The call fails, without harm, if the process has ended.
        #[cfg(target_os = "linux")]
        let _gone = pidfd_send_signal(&self.descriptor, signal);
        #[cfg(not(target_os = "linux"))]
        let _gone = kill_process(self.pid, signal);
    }

    fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
    }
}

/// Adds `roots` and all their descendants to `found`, up to [`MOST`] processes.
fn descendants(mut roots: Vec<Pid>, found: &mut BTreeSet<i32>) {
    while let Some(pid) = roots.pop() {
        if found.len() < MOST && found.insert(pid.as_raw_pid()) {
            let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
            let numbers = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            roots.extend(numbers.filter_map(Pid::from_raw).flat_map(|thread| children_of(pid, thread)));
        }
    }
}

/// Returns the children that `thread` of `process` has started or adopted.
pub(crate) fn children_of(process: Pid, thread: Pid) -> Vec<Pid> {
    let path = format!("/proc/{}/task/{}/children", process.as_raw_pid(), thread.as_raw_pid());
    let listed = fs::read_to_string(path).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn has_mark(pid: Pid, mark: &TaskMark) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    environment.is_ok_and(|environment| mark.is_in(&environment))
}

#[cfg(test)]
mod tests {
    use super::{TaskMark, VARIABLE};

    #[test]
    fn task_marks_are_unique() {
        let (one, other) = (TaskMark::new(), TaskMark::new());
        let environment = |mark: &TaskMark| format!("A=b\0{VARIABLE}={}\0C=d\0", mark.value());
        assert!(one.is_in(environment(&one).as_bytes()) && !one.is_in(environment(&other).as_bytes()));
        assert!(!one.is_in(format!("X{VARIABLE}={}", one.value()).as_bytes()));
    }
}
