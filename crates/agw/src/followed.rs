//! The jobs that somebody has asked about lately: what they wrote last is still wanted when they have ended.

use std::{collections::HashMap, sync::Arc, time::Duration};

use agenix_protocol::ids::JobId;
use tokio::time::Instant;

use crate::transcript::Transcript;

/// How long after the last question a job is remembered.
const MEMORY: Duration = Duration::from_secs(30);

/// By job: when it was asked about, its attempt and what it wrote.
#[derive(Default)]
pub(crate) struct Followed(HashMap<JobId, (Instant, u32, Arc<Transcript>)>);

impl Followed {
    /// Somebody asks about a job: the attempt that runs, else the one that is remembered.
    pub(crate) fn of(
        &mut self,
        job_id: &JobId,
        running: Option<(u32, Arc<Transcript>)>,
        now: Instant,
    ) -> Option<(u32, Arc<Transcript>)> {
        self.forget(now);
        let known = || self.0.get(job_id).map(|(_, attempt, transcript)| (*attempt, Arc::clone(transcript)));
        let (attempt, transcript) = running.or_else(known)?;
        self.0.insert(job_id.clone(), (now, attempt, Arc::clone(&transcript)));
        Some((attempt, transcript))
    }

    /// Lets go what was not asked about for a while.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (asked, ..)| now.duration_since(*asked) < MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::{Followed, MEMORY};

    #[test]
    fn a_job_is_remembered_as_long_as_it_is_asked_about() {
        let (mut followed, start, job) = (Followed::default(), Instant::now(), "j".parse().unwrap());
        assert!(followed.of(&job, None, start).is_none());
        assert_eq!(followed.of(&job, Some((2, Arc::default())), start).unwrap().0, 2);
        let later = start + MEMORY / 2;
        assert_eq!(followed.of(&job, None, later).unwrap().0, 2);
        assert_eq!(followed.of(&job, Some((3, Arc::default())), later).unwrap().0, 3);
        assert_eq!(followed.of(&job, None, later + MEMORY * 9 / 10).unwrap().0, 3);
        assert!(followed.of(&job, None, later + MEMORY * 2).is_none());
    }
}
