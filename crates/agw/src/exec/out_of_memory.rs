//! Evidence that the kernel killed a process for lack of memory: the counter `oom_kill` of the
//! control group (version 2) of the processes, which includes the groups below it. Tasks run in the
//! group of the worker, and sandboxed tasks in that of their supervisor if it has its own.

use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::OnceLock};

use rustix::process::Signal;

/// Maximum size of the file `memory.events`, which has a few short lines.
const MAX_BYTES: usize = 4096;

/// File `memory.events` of a control group. The file stays open, because each start of a task reads
/// it.
#[derive(Debug)]
pub(crate) struct MemoryEvents(File);

impl MemoryEvents {
    /// Opens the events of the group in the directory `group`. The first group of the system has no
    /// events.
    pub(crate) fn of(group: &Path) -> Option<Self> {
        File::open(group.join("memory.events")).ok().map(Self)
    }

    /// Returns the number of processes of the group that the kernel has killed for lack of memory.
    pub(crate) fn kills(&self) -> Option<u64> {
        let mut text = [0; MAX_BYTES];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse_kills(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

/// Returns [`MemoryEvents::kills`] of the worker's control group. `None` without version 2, in the
/// first group of the system, and on other systems than Linux.
pub(crate) fn kills() -> Option<u64> {
    static EVENTS: OnceLock<Option<MemoryEvents>> = OnceLock::new();
    #[cfg(target_os = "linux")]
    let own = agenix_sandbox::control_group::own_group;
    #[cfg(not(target_os = "linux"))]
    let own = || None::<std::path::PathBuf>;
    EVENTS.get_or_init(|| MemoryEvents::of(&own()?)).as_ref()?.kills()
}

/// Returns true if the kernel was out of memory when it killed a process that this worker did not
/// kill, or a child whose end the process reports as a shell does. `exit_code` is the exit code of
/// the process, as of a shell. `before` is [`kills`] at the start of the process, and `after` reads
/// [`kills`] at its end.
pub(crate) fn was_cause(
    exit_code: i32,
    (before, after): (Option<u64>, impl FnOnce() -> Option<u64>),
) -> bool {
    let has_risen = || before.zip(after()).is_some_and(|(before, after)| after > before);
    exit_code == 128 + Signal::KILL.as_raw() && has_risen()
}

/// Reason in [`text`].
const REASON: &str = "was killed by the kernel, which was out of memory";

/// Returns true if `stderr` ends with [`text`].
pub(crate) fn is_named_in(stderr: &[u8]) -> bool {
    let last = stderr.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    last.starts_with(b"agw: ") && String::from_utf8_lossy(last).contains(REASON)
}

/// Returns the text for the stderr of a task that was killed for lack of memory.
pub(crate) fn text(task_number: u32, peak_memory_bytes: Option<u64>) -> String {
    let peak = peak_memory_bytes.map(|bytes| format!("; its peak memory was {} MiB", bytes >> 20));
    let peak = peak.unwrap_or_default();
    format!("agw: task {task_number} {REASON}{peak}\n")
}

fn parse_kills(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_named_in, parse_kills, text, was_cause};

    #[test]
    fn lack_of_memory_needs_a_kill_and_a_risen_counter() {
        assert!(was_cause(137, (Some(0), || Some(1))));
        for (exit_code, before, after) in [
            (137, Some(1), Some(1)),
            (137, None, Some(1)),
            (137, Some(1), None),
            (137, None, None),
            (137, Some(2), Some(1)),
            (143, Some(0), Some(1)),
            (9, Some(0), Some(1)),
            (0, Some(0), Some(1)),
        ] {
            assert!(!was_cause(exit_code, (before, || after)), "{exit_code} {before:?} {after:?}");
        }
    }

    #[test]
    fn counter_is_that_of_processes_and_not_of_groups() {
        let events = "low 0\nhigh 3\nmax 12\noom 7\noom_kill 5\noom_group_kill 1\n";
        assert_eq!(parse_kills(events), Some(5));
        assert_eq!(["", "low 0\n", "oom_kill\n", "oom_kill x\n"].map(parse_kills), [None; 4]);
    }

    #[test]
    fn text_names_the_peak_memory_if_it_is_known() {
        let line = "agw: task 2 was killed by the kernel, which was out of memory";
        assert_eq!(text(2, None), format!("{line}\n"));
        assert!(is_named_in(format!("sort: no\n{}", text(2, Some(1))).as_bytes()));
        assert!(!is_named_in(format!("{line}\nsort: no\n").as_bytes()));
        assert_eq!(text(2, Some(512 << 20)), format!("{line}; its peak memory was 512 MiB\n"));
    }
}
