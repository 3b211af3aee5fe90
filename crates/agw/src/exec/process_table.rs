//! Process table of Linux: `/proc` (proc(5)). All lists are empty on other systems.

use std::{collections::BTreeSet, fs};

use rustix::process::Pid;

/// Maximum number of listed processes, because a task may start processes without end.
const MOST: usize = 100_000;

/// Fields of `/proc/PID/stat`.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: i32,
    /// True for a zombie.
    pub(crate) has_ended: bool,
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
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        Some(Self { parent: fields.next()?.parse().ok()?, has_ended })
    }
}

/// Returns the process id and the name, for messages.
#[cfg(target_os = "linux")]
pub(crate) fn name(pid: Pid) -> String {
    let pid = pid.as_raw_pid();
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&name).trim_end().escape_debug())
}

/// Returns the environment with which `pid` was started. It is empty if the process has ended,
/// during exec(2), and if this worker may not read it.
pub(crate) fn environment(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default()
}

/// Returns the children that `thread` of `process` has started or adopted.
pub(crate) fn children_of(process: Pid, thread: Pid) -> Vec<Pid> {
    let path = format!("/proc/{}/task/{}/children", process.as_raw_pid(), thread.as_raw_pid());
    let listed = fs::read_to_string(path).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Adds `roots` and all their descendants to `found`, up to [`MOST`] processes.
pub(crate) fn descendants(mut roots: Vec<Pid>, found: &mut BTreeSet<i32>) {
    while let Some(pid) = roots.pop() {
        if found.len() < MOST && found.insert(pid.as_raw_pid()) {
            let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
            let numbers = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            roots.extend(numbers.filter_map(Pid::from_raw).flat_map(|thread| children_of(pid, thread)));
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::ProcessStat;

    #[test]
    fn stat_is_read_past_any_name() {
        let stat = |text| ProcessStat::parse(text).map(|stat| (stat.parent, stat.has_ended));
        assert_eq!(stat("7 (a) Z 9) S 1 7 7 0 -1 0"), Some((1, false)));
        assert_eq!(stat("7 (sh) Z 12 7 7 0 -1 0"), Some((12, true)));
        assert_eq!(stat("7 (sh"), None);
    }
}
