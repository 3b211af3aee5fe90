//! Evidence that the kernel killed a process for lack of memory: the counter `oom_kill` of the
//! worker's cgroup (v2), which includes the cgroups below it. Tasks run in the worker's cgroup.

use std::{fs::File, os::unix::fs::FileExt, path::PathBuf, sync::OnceLock};

use rustix::process::Signal;

/// Maximum size of the file `memory.events`, which has a few short lines.
const MOST_BYTES: usize = 4096;

/// Returns the number of processes of the worker's cgroup that the kernel has killed for lack of
/// memory. `None` without cgroup v2, in its root, and on other systems than Linux.
pub(crate) fn kills() -> Option<u64> {
    // The file stays open, because each start of a task reads it.
    static EVENTS: OnceLock<Option<File>> = OnceLock::new();
    let events = EVENTS.get_or_init(|| {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        File::open(events_path(&own)?).ok()
    });
    let mut text = [0; MOST_BYTES];
    let length = events.as_ref()?.read_at(&mut text, 0).ok()?;
    parse_kills(std::str::from_utf8(text.get(..length)?).ok()?)
}

/// Returns true if the kernel was out of memory when it sent `signal`, which ended a process and
/// which this worker did not send. `before` is [`kills`] at the start; `after` reads it at the end.
pub(crate) fn was_cause(
    signal: Option<i32>,
    (before, after): (Option<u64>, impl FnOnce() -> Option<u64>),
) -> bool {
    let has_risen = || before.zip(after()).is_some_and(|(before, after)| after > before);
    signal == Some(Signal::KILL.as_raw()) && has_risen()
}

/// Returns the text for the stderr of a task that was killed for lack of memory.
pub(crate) fn text(task_number: u32, peak_memory_bytes: Option<u64>) -> String {
    let peak = peak_memory_bytes.map(|bytes| format!("; its peak memory was {} MiB", bytes >> 20));
    let peak = peak.unwrap_or_default();
    format!("agw: task {task_number} was killed by the kernel, which was out of memory{peak}\n")
}

/// Returns the path of `memory.events` for the text of `/proc/self/cgroup`.
fn events_path(own: &str) -> Option<PathBuf> {
    let cgroup = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(cgroup).join("memory.events"))
}

fn parse_kills(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{events_path, parse_kills, text, was_cause};

    #[test]
    fn lack_of_memory_needs_a_kill_and_a_risen_counter() {
        assert!(was_cause(Some(9), (Some(0), || Some(1))));
        for (signal, before, after) in [
            (Some(9), Some(1), Some(1)),
            (Some(9), None, Some(1)),
            (Some(9), Some(1), None),
            (Some(9), None, None),
            (Some(9), Some(2), Some(1)),
            (Some(15), Some(0), Some(1)),
            (None, Some(0), Some(1)),
        ] {
            assert!(!was_cause(signal, (before, || after)), "{signal:?} {before:?} {after:?}");
        }
    }

    #[test]
    fn counter_is_that_of_processes_and_not_of_groups() {
        let events = "low 0\nhigh 3\nmax 12\noom 7\noom_kill 5\noom_group_kill 1\n";
        assert_eq!(parse_kills(events), Some(5));
        assert_eq!(["", "low 0\n", "oom_kill\n", "oom_kill x\n"].map(parse_kills), [None; 4]);
    }

    #[test]
    fn cgroup_is_that_of_version_2() {
        let own = "4:memory:/old\n0::/system.slice/agw.service\n";
        let path = Path::new("/sys/fs/cgroup/system.slice/agw.service/memory.events");
        assert_eq!(events_path(own).as_deref(), Some(path));
        assert_eq!(events_path("0::/\n").as_deref(), Some(Path::new("/sys/fs/cgroup/memory.events")));
        assert_eq!(events_path("4:memory:/old\n"), None);
    }

    #[test]
    fn text_names_the_peak_memory_if_it_is_known() {
        let line = "agw: task 2 was killed by the kernel, which was out of memory";
        assert_eq!(text(2, None), format!("{line}\n"));
        assert_eq!(text(2, Some(512 << 20)), format!("{line}; its peak memory was 512 MiB\n"));
    }
}
