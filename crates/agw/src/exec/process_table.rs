//! Process table of Linux: `/proc` (proc(5)). All lists are empty on other systems.

use std::{collections::BTreeSet, fs, time::Duration};

use rustix::process::{Pid, getpid};

use crate::exec::job_mark::{RunNumber, run_of};

/// Maximum number of listed processes, because a task may start processes without end.
const MAX_PROCESSES: usize = 100_000;

/// Fields of `/proc/PID/stat`.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: i32,
    /// Process group.
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Time of the start, which distinguishes processes with the same process id.
    pub(crate) started: u64,
}

#[cfg(target_os = "linux")]
impl ProcessStat {
    /// Returns the fields of `pid`, or `None` if there is no such process.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, in parentheses, may have any characters.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // Field 22 of proc_pid_stat(5), after 6 that are read.
        let started = fields.nth(15)?.parse().ok()?;
        Some(Self { parent, group, session, started })
    }
}

/// Returns all processes that this process can see.
#[cfg(target_os = "linux")]
pub(crate) fn processes() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Returns the process id and the name, for messages.
#[cfg(target_os = "linux")]
pub(crate) fn name(pid: Pid) -> String {
    let pid = pid.as_raw_pid();
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&name).trim_end().escape_debug())
}

/// Returns the environment with which `pid` was started. The result is empty if the process has
/// ended, during exec(2), and if this worker may not read the environment.
pub(crate) fn environment(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default()
}

/// Returns the children that `thread` of `process` has started or adopted.
pub(crate) fn children_of(process: Pid, thread: Pid) -> Vec<Pid> {
    let path = format!("/proc/{}/task/{}/children", process.as_raw_pid(), thread.as_raw_pid());
    let listed = fs::read_to_string(path).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Returns the children of this worker that have the mark of `run` and were started or adopted by
/// its first thread, which adopts the processes whose parents have ended.
pub(crate) fn adopted_of(run: RunNumber) -> Vec<Pid> {
    let of_run = |pid: &Pid| run_of(&environment(*pid)) == Some(run);
    children_of(getpid(), getpid()).into_iter().filter(of_run).collect()
}

/// Returns the processor time of `pid`, and of the children for which `pid` has waited. The time is
/// zero if the process has ended.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time(pid: Pid) -> Duration {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let ticks = ticks(&String::from_utf8_lossy(&stat)).unwrap_or_default();
    Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time(_pid: Pid) -> Duration {
    Duration::ZERO
}

/// Returns the sum of utime, stime, cutime and cstime, fields 14 to 17 of proc_pid_stat(5).
#[cfg(target_os = "linux")]
fn ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    fields.take(4).map(|field| field.parse::<u64>().ok()).sum()
}

/// Adds `roots` and all their descendants to `found`, up to [`MAX_PROCESSES`] processes.
pub(crate) fn descendants(mut roots: Vec<Pid>, found: &mut BTreeSet<i32>) {
    while let Some(pid) = roots.pop() {
        if found.len() < MAX_PROCESSES && found.insert(pid.as_raw_pid()) {
            let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
            let numbers = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            roots.extend(numbers.filter_map(Pid::from_raw).flat_map(|thread| children_of(pid, thread)));
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{ProcessStat, ticks};

    #[test]
    fn stat_is_read_past_any_name() {
        let rest = "5 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 3000000 200 18446744073709551615";
        for stat in [format!("7 (a) Z 9) S 1 {rest}"), format!("7 (sh) Z 1 {rest}")] {
            let expected = ProcessStat { parent: 1, group: 5, session: 6, started: 777 };
            assert_eq!(ProcessStat::parse(&stat), Some(expected), "{stat}");
        }
        assert_eq!(ProcessStat::parse("7 (sh"), None);
    }

    #[test]
    fn processor_time_has_that_of_waited_for_children() {
        let stat = "7 (a) Z 9) S 1 5 6 0 -1 4194560 1 0 0 0 1 20 300 4000 20 0 1 0 777";
        assert_eq!(ticks(stat), Some(4321));
        assert_eq!(ticks("7 (sh) Z 1 5"), Some(0));
        assert_eq!(ticks("7 (sh"), None);
    }
}
