//! Statistics of the machine and of the worker, sent with each heartbeat (worker spec §3.3 and
//! §9.1, AGQ API spec §5).

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use agenix_protocol::ids::JobId;
use serde_json::{Value, json};
use sysinfo::System;
use tokio::time::Instant;

use crate::exec::spool::room;

/// Counters of the jobs that this worker has run.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    busy_ms: AtomicU64,
    /// True while the worker claims no jobs.
    pub(crate) is_quiet: AtomicBool,
}

impl Counters {
    /// Counts a job that ran for `after`.
    pub(crate) fn ended(&self, completed: bool, after: Duration) {
        let counter = if completed { &self.completed } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.busy_ms.fetch_add(u64::try_from(after.as_millis()).unwrap_or_default(), Ordering::Relaxed);
    }
}

pub(crate) struct HostStats {
    system: Mutex<System>,
    started: Instant,
    /// Reads the number of free bytes of the disk that holds the spool.
    free_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Latest result of `free_bytes`.
    disk_available: AtomicU64,
}

impl HostStats {
    /// Creates the statistics of a worker with this directory of the spool.
    pub(crate) fn new(spool: PathBuf) -> Result<Self, sysinfo::Error> {
        Self::of_disk(move || room(&spool).map_or(0, |room| room.free))
    }

    fn of_disk(free_bytes: impl Fn() -> u64 + Send + Sync + 'static) -> Result<Self, sysinfo::Error> {
        Ok(Self {
            system: Mutex::new(System::new()?),
            started: Instant::now(),
            disk_available: AtomicU64::new(free_bytes()),
            free_bytes: Box::new(free_bytes),
        })
    }

    /// Reads the free space of the disk for the next statistics. A network file system may not
    /// answer for a long time.
    pub(crate) fn read_disk(&self) {
        self.disk_available.store((self.free_bytes)(), Ordering::Relaxed);
    }

    /// Returns the statistics of a worker with the running `jobs`, with the memory of the machine
    /// and the latest known space of the disk.
    pub(crate) fn take(&self, counters: &Counters, jobs: &[JobId]) -> Value {
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        system.refresh_cpu_usage();
        system.refresh_memory();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (completed, failed) = (read(&counters.completed), read(&counters.failed));
        let average = read(&counters.busy_ms).checked_div(completed + failed).unwrap_or_default();
        json!({
            "quiet": counters.is_quiet.load(Ordering::Relaxed),
            "active_jobs": jobs.len(),
            "active_job_ids": jobs,
            "completed_jobs_total": completed,
            "completed_jobs_since_start": completed,
            "failed_jobs_total": failed,
            "avg_job_duration_ms": average,
            "uptime_seconds": self.started.elapsed().as_secs(),
            "cpu_usage_percent": (f64::from(system.global_cpu_usage()) * 10.0).round() / 10.0,
            "memory_mb": system.used_memory() / (1024 * 1024),
            "disk_available_gb": read(&self.disk_available) / (1024 * 1024 * 1024),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use super::{Counters, HostStats};

    #[test]
    fn statistics_have_all_fields_of_both_specifications() {
        let counters = Counters::default();
        counters.ended(true, Duration::from_millis(30));
        counters.ended(false, Duration::from_millis(10));
        let stats = HostStats::new("/".into()).unwrap().take(&counters, &["job-1".parse().unwrap()]);
        assert_eq!(stats["active_job_ids"][0], "job-1");
        let is = |field: &str, value: u64| assert_eq!(stats[field], value, "{field}");
        is("active_jobs", 1);
        is("completed_jobs_total", 1);
        is("completed_jobs_since_start", 1);
        is("failed_jobs_total", 1);
        is("avg_job_duration_ms", 20);
        for field in ["uptime_seconds", "cpu_usage_percent", "memory_mb", "disk_available_gb"] {
            assert!(stats[field].is_number(), "{field}: {stats}");
        }
    }

    #[test]
    fn statistics_have_the_last_known_space_of_a_disk_that_may_not_answer() {
        let (disk, answers) = mpsc::channel::<u64>();
        let answers = Mutex::new(answers);
        disk.send(3 << 30).unwrap();
        let stats = HostStats::of_disk(move || answers.lock().unwrap().try_recv().unwrap()).unwrap();
        let free = || stats.take(&Counters::default(), &[])["disk_available_gb"].clone();
        assert_eq!(free(), 3);
        assert_eq!(free(), 3, "nothing reads the disk for it");
        disk.send(2 << 30).unwrap();
        stats.read_disk();
        assert_eq!(free(), 2);
    }
}
