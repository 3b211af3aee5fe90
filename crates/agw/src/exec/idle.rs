//! Idle timeout: notices that the tasks of a stage have written nothing for some time.
//!
//! The output is in files and behind counters, so its size is compared at intervals, and nothing is
//! read. Output to a device, such as /dev/null, has no size, and does not count.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::exec::spool::SpoolFile;

/// Bounds of the interval between two polls of the sizes.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Output of one task, of which only the size counts.
#[derive(Default)]
pub(crate) struct WrittenOutput {
    pub(crate) files: Vec<Arc<SpoolFile>>,
    /// Counter of the pipe to the next task.
    pub(crate) counter: Option<Arc<AtomicU64>>,
}

impl WrittenOutput {
    fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len()));
        let piped = self.counter.as_ref().map_or(0, |counter| counter.load(Ordering::Relaxed));
        files.fold(piped, u64::wrapping_add)
    }
}

/// Last change of the sizes of a stage's outputs.
struct LastChange {
    sizes: Vec<u64>,
    since: Instant,
}

impl LastChange {
    /// Returns the time that is left of `limit` at `now`, when the outputs have `sizes`.
    fn left(&mut self, sizes: Vec<u64>, now: Instant, limit: Duration) -> Duration {
        if sizes != self.sizes {
            *self = Self { sizes, since: now };
        }
        limit.saturating_sub(now.saturating_duration_since(self.since))
    }
}

/// Waits until none of the outputs has changed for `limit`. Without a limit, the wait never ends.
pub(crate) async fn idle(outputs: &[Arc<WrittenOutput>], limit: Option<Duration>) {
    let Some(limit) = limit else { return pending().await };
    let sizes = || outputs.iter().map(|output| output.bytes()).collect::<Vec<_>>();
    let interval = (limit / 10).clamp(MIN_INTERVAL, MAX_INTERVAL);
    let mut last = LastChange { sizes: sizes(), since: Instant::now() };
    loop {
        let left = last.left(sizes(), Instant::now(), limit);
        if left.is_zero() {
            return;
        }
        sleep(left.min(interval)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, atomic::AtomicU64},
        time::Duration,
    };

    use tokio::time::Instant;

    use super::{LastChange, WrittenOutput};
    use crate::exec::spool::SpoolFile;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn idle_timeout_counts_from_the_last_output_of_any_task() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut last = LastChange { sizes: vec![0, 0], since: begun };
        let mut left = |sizes: [u64; 2], seconds| last.left(sizes.into(), at(seconds), LIMIT).as_secs();
        assert_eq!([left([0, 0], 3), left([1, 0], 4), left([1, 0], 8), left([1, 7], 8)], [2, 5, 1, 5]);
        assert_eq!([left([1, 7], 13), left([1, 7], 99)], [0, 0]);
        assert_eq!(left([0, 7], 99), 5, "a file that is cut has changed, too");
    }

    #[test]
    fn written_output_is_the_size_of_files_and_pipes() {
        let file: Arc<SpoolFile> = Arc::new(tempfile::tempfile().unwrap().into());
        let written =
            WrittenOutput { files: vec![Arc::clone(&file)], counter: Some(Arc::new(AtomicU64::new(7))) };
        (&**file).write_all(b"abc").unwrap();
        assert_eq!((written.bytes(), WrittenOutput::default().bytes()), (10, 0));
    }
}
