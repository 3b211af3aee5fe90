//! Memory of the programs under test.

/// Returns the largest resident memory of a process so far, in KiB. Returns `None` if there is no
/// such process.
///
/// A later value can be a little smaller, because each processor of Linux counts the pages of a
/// process for itself, and the kernel does not add up all of these counts.
#[cfg(target_os = "linux")]
pub fn peak_memory_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the resident memory of a process in KiB, because other systems do not report the
/// largest one. Returns `None` if there is no such process.
#[cfg(not(target_os = "linux"))]
pub fn peak_memory_kib(pid: u32) -> Option<u64> {
    let ps = std::process::Command::new("ps").args(["-o", "rss=", "-p", &pid.to_string()]).output().ok()?;
    String::from_utf8(ps.stdout).ok()?.trim().parse().ok()
}
