//! What a task has started that has left its process group (setsid(2), a daemon's double fork):
//! found by its parents, and where those have ended by a variable that it inherits. This needs
//! Linux' /proc; elsewhere nothing is found.

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

/// The variable that every task has, with a value of its own.
pub(crate) const VARIABLE: &str = "AGW_RUN";
/// Most processes of one task that are looked at: a task that starts more without end is not
/// followed for ever.
const MOST: usize = 100_000;

/// This run of the worker: numbers of processes are used again.
static WORKER: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().simple().to_string());

/// The value of the variable for one task.
#[derive(Debug)]
pub(crate) struct Mark(String);

impl Mark {
    /// One that no other task has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(format!("{}-{}", *WORKER, NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// Whether an environment, as /proc has it, holds the variable with this value.
    fn is_in(&self, environment: &[u8]) -> bool {
        let wanted = format!("{VARIABLE}={}", self.0);
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }
}

/// A process outside of its task's group. Its number is not used again as long as this is there to
/// be asked.
#[derive(Debug)]
pub(crate) struct Escaped {
    pid: Pid,
    descriptor: OwnedFd,
}

/// Finds those of a task that are outside of its `group`, besides `known`. `parent` is the task's
/// first process, as long as its number cannot be that of another one.
pub(crate) fn find(group: Pid, parent: Option<Pid>, mark: &Mark, known: &[Escaped]) -> Vec<Escaped> {
    let adopted = children_of(getpid(), getpid()).into_iter().filter(|&pid| bears(pid, mark));
    let known: BTreeSet<i32> = known.iter().map(|known| known.pid.as_raw_pid()).collect();
    let roots = adopted.chain(parent).chain(known.iter().filter_map(|&pid| Pid::from_raw(pid)));
    let left_it = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|its| its != group);
    let new = family(roots.collect()).into_iter().filter_map(Pid::from_raw);
    new.filter(|pid| !known.contains(&pid.as_raw_pid())).filter(left_it).filter_map(Escaped::open).collect()
}

/// Sends a signal to each.
pub(crate) fn signal(escaped: &[Escaped], signal: Signal) {
    for process in escaped {
        process.signal(signal);
    }
}

/// Whether all of them have ended.
pub(crate) fn have_ended(escaped: &[Escaped]) -> bool {
    escaped.iter().all(Escaped::has_ended)
}

impl Escaped {
    /// Takes hold of a process; one that cannot be held is killed at once.
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
        // One that has ended is what we want.
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

/// These processes, those that they have started and so on.
fn family(mut roots: Vec<Pid>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    while let Some(pid) = roots.pop() {
        if found.len() < MOST && found.insert(pid.as_raw_pid()) {
            let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
            let numbers = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            roots.extend(numbers.filter_map(Pid::from_raw).flat_map(|thread| children_of(pid, thread)));
        }
    }
    found
}

/// What a thread of a process has started, and what it has adopted.
pub(crate) fn children_of(process: Pid, thread: Pid) -> Vec<Pid> {
    let path = format!("/proc/{}/task/{}/children", process.as_raw_pid(), thread.as_raw_pid());
    let listed = fs::read_to_string(path).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn bears(pid: Pid, mark: &Mark) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    environment.is_ok_and(|environment| mark.is_in(&environment))
}

#[cfg(test)]
mod tests {
    use super::{Mark, VARIABLE};

    #[test]
    fn a_mark_is_one_tasks_alone() {
        let (one, other) = (Mark::new(), Mark::new());
        let environment = |mark: &Mark| format!("A=b\0{VARIABLE}={}\0C=d\0", mark.value());
        assert!(one.is_in(environment(&one).as_bytes()) && !one.is_in(environment(&other).as_bytes()));
        assert!(!one.is_in(format!("X{VARIABLE}={}", one.value()).as_bytes()));
    }
}
