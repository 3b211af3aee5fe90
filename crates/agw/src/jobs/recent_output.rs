//! Output of the jobs that users follow. The output stays available for a while after the end of
//! the job, because a follower still needs the last bytes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use agenix_protocol::ids::JobId;
use tokio::time::Instant;

use crate::exec::live_output::LiveOutput;

/// Time after the last request until the output of a job expires.
const RETENTION: Duration = Duration::from_secs(30);

/// Followed jobs with the time of the last request, the attempt and the output.
pub(crate) struct RecentOutput {
    jobs: HashMap<JobId, (Instant, u32, Arc<LiveOutput>)>,
    /// Maximum number of files that are kept open, because tasks need files too.
    most_files: usize,
}

impl RecentOutput {
    pub(crate) fn new(most_files: usize) -> Self {
        Self { jobs: HashMap::new(), most_files }
    }

    /// Records a request for the output of a job. Returns the attempt and the output of the
    /// `running` job, or of the cached one if the job does not run.
    pub(crate) fn of(
        &mut self,
        job_id: &JobId,
        running: Option<(u32, Arc<LiveOutput>)>,
        now: Instant,
    ) -> Option<(u32, Arc<LiveOutput>)> {
        self.expire(now);
        let known =
            || self.jobs.get(job_id).map(|(_, attempt, live_output)| (*attempt, Arc::clone(live_output)));
        let (attempt, live_output) = running.or_else(known)?;
        self.jobs.insert(job_id.clone(), (now, attempt, Arc::clone(&live_output)));
        self.evict_over_limit(job_id);
        Some((attempt, live_output))
    }

    /// Evicts the least recently requested jobs, except `latest`, until few enough files are open.
    fn evict_over_limit(&mut self, latest: &JobId) {
        let mut open: usize = self.jobs.values().map(|(.., live_output)| live_output.files()).sum();
        while open > self.most_files {
            let others = self.jobs.iter().filter(|(job_id, _)| *job_id != latest);
            let Some(oldest) = others.min_by_key(|(_, (asked, ..))| *asked).map(|(job_id, _)| job_id.clone())
            else {
                return;
            };
            open -= self.jobs.remove(&oldest).map_or(0, |(.., live_output)| live_output.files());
        }
    }

    /// Removes the jobs without a request for [`RETENTION`].
    pub(crate) fn expire(&mut self, now: Instant) {
        self.jobs.retain(|_, (asked, ..)| now.duration_since(*asked) < RETENTION);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::{RETENTION, RecentOutput};
    use crate::exec::live_output::{LiveOutput, OutputStreams};

    const MAX_FILES: usize = 256;

    #[test]
    fn recent_output_evicts_the_oldest_job_at_the_file_limit() {
        let (mut recent_output, start) = (RecentOutput::new(MAX_FILES), Instant::now());
        let file = Arc::new(tempfile::tempfile().unwrap().into());
        for number in 0..MAX_FILES as u64 {
            let live_output = LiveOutput::default();
            let (stdout, stderr) = (Some(Arc::clone(&file)), Some(Arc::clone(&file)));
            live_output.add(OutputStreams {
                task_number: 1,
                command: "sh".into(),
                reads: None,
                stdout,
                stderr,
            });
            let job = format!("j{number}").parse().unwrap();
            let now = start + std::time::Duration::from_millis(number);
            assert!(recent_output.of(&job, Some((1, Arc::new(live_output))), now).is_some());
        }
        assert_eq!(Arc::strong_count(&file), MAX_FILES + 1);
        assert!(recent_output.of(&"j0".parse().unwrap(), None, start).is_none(), "the oldest went first");
        let latest = format!("j{}", MAX_FILES - 1).parse().unwrap();
        assert!(recent_output.of(&latest, None, start).is_some());
    }

    #[test]
    fn recent_output_keeps_a_job_while_it_is_requested() {
        let (mut recent_output, start, job) =
            (RecentOutput::new(MAX_FILES), Instant::now(), "j".parse().unwrap());
        assert!(recent_output.of(&job, None, start).is_none());
        assert_eq!(recent_output.of(&job, Some((2, Arc::default())), start).unwrap().0, 2);
        let later = start + RETENTION / 2;
        assert_eq!(recent_output.of(&job, None, later).unwrap().0, 2);
        assert_eq!(recent_output.of(&job, Some((3, Arc::default())), later).unwrap().0, 3);
        assert_eq!(recent_output.of(&job, None, later + RETENTION * 9 / 10).unwrap().0, 3);
        assert!(recent_output.of(&job, None, later + RETENTION * 2).is_none());
    }
}
