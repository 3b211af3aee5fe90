//! Memory and processor time of a process, from /proc of Linux.

use std::fs;

/// Ticks per second in /proc, which are the same on every Linux.
const TICKS_PER_SEC: f64 = 100.0;

/// Returns the peak of the resident memory in MB.
pub(crate) fn peak_mb(pid: u32) -> Option<f64> {
    memory_mb(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM:")
}

/// Returns the resident memory in MB.
pub(crate) fn resident_mb(pid: u32) -> Option<f64> {
    memory_mb(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Returns the processor time in seconds.
pub(crate) fn busy_secs(pid: u32) -> Option<f64> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|ticks| ticks / TICKS_PER_SEC)
}

fn memory_mb(status: &str, name: &str) -> Option<f64> {
    let kib = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = kib.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// Returns the sum of the fields 14 and 15. The second field, the name, may contain spaces.
fn ticks(stat: &str) -> Option<f64> {
    let (_, after_the_name) = stat.rsplit_once(')')?;
    let mut times = after_the_name.split_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    Some(times.next()?? + times.next()??)
}

#[cfg(test)]
mod tests {
    use super::{memory_mb, ticks};

    #[test]
    fn status_and_stat_of_linux_are_parsed() {
        let status = "Name:\tagq\nVmHWM:\t  250000 kB\nVmRSS:\t  125000 kB\n";
        assert_eq!(memory_mb(status, "VmHWM:"), Some(256.0));
        assert_eq!(memory_mb(status, "VmRSS:"), Some(128.0));
        assert_eq!(memory_mb(status, "VmSwap:"), None);
        assert_eq!(ticks("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20"), Some(42.0));
        assert_eq!(ticks("7 (agq) S 1"), None);
    }
}
