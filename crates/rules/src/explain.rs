//! Explanation of a job that does not run: a reason in a sentence, and the workers that are nearest
//! to running the job (JOB.EXPLAIN).

use agenix_protocol::time::Timestamp;

use crate::{
    concurrency_key,
    job::{Job, JobState},
    limit::Limit,
    worker::{Liveness, Worker},
};

/// Maximum number of listed workers.
pub const NEAREST: usize = 5;

/// Worker that is compared with the needs of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The worker.
    pub worker: Worker,
    /// Needs of the job that the worker does not cover.
    pub missing: Vec<String>,
    /// Part of the quantities that the worker does not offer, in thousandths of each.
    pub shortfall: u64,
    /// Quantities that the worker offers, and that its jobs use now.
    pub occupied: Vec<String>,
    /// True if the job wants quantities, and jobs of the worker use some. Such a worker may have
    /// reserved its free quantities for a larger job.
    pub is_partly_used: bool,
    /// Number of jobs that the worker holds now.
    pub active_jobs: u64,
}

impl Candidate {
    fn could_run(&self) -> bool {
        self.missing.is_empty() && self.worker.wants_jobs()
    }

    fn has_room(&self) -> bool {
        self.active_jobs < u64::from(self.worker.max_concurrent_jobs) && self.occupied.is_empty()
    }
}

/// Returns at most [`NEAREST`] workers, live ones first, then by the number of missing needs, then
/// those that offer most of the quantities.
pub fn nearest(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| {
        let is_dead = candidate.worker.liveness == Liveness::Dead;
        let has_no_room = !candidate.has_room();
        (is_dead, candidate.missing.len(), candidate.shortfall, !candidate.worker.wants_jobs(), has_no_room)
    });
    candidates.truncate(NEAREST);
    candidates
}

/// Returns why the job does not run, as a sentence; `ahead` jobs are before it in its lane.
pub fn reason(
    job: &Job,
    queue: &str,
    paused: bool,
    ahead: u64,
    nearest: &[Candidate],
    now: Timestamp,
) -> String {
    let holder = || job.holder.as_deref().unwrap_or("a worker");
    match job.state {
        JobState::Active if job.is_confirmed => format!("It is running on {}.", holder()),
        JobState::Active => format!("It was given to {}, which has not reported it yet.", holder()),
        JobState::Completed => "It has completed.".into(),
        JobState::Cancelled => "It was cancelled.".into(),
        JobState::Discarded if job.is_dead => "It is dead: JOB.RETRY with FORCE retries it.".into(),
        JobState::Discarded => "It has failed: JOB.RETRY retries it.".into(),
        JobState::Staged => "It has not been released yet.".into(),
        JobState::Scheduled | JobState::Retryable => {
            let seconds = job.available_from().map_or(0, |from| from.ms_since(now).div_ceil(1000));
            let why =
                if job.state == JobState::Retryable { "It failed and will be retried" } else { "It may run" };
            format!("{why} in {seconds} s.")
        }
        JobState::Available if paused => {
            format!("Its queue '{queue}' is paused: QUEUE.RESUME {queue} resumes it.")
        }
        JobState::Available => available(queue, ahead, nearest),
    }
}

/// Returns why the limit `key` delays a job that is available, as a sentence. `None` if the limit
/// permits another start.
pub fn limited(key: &str, limit: &Limit, now: Timestamp) -> Option<String> {
    match limit.terms.concurrency {
        _ if limit.admits(now) => None,
        Some(most) if limit.active >= most => Some(reached(key, limit.active, most)),
        _ => {
            let seconds = limit.begins_at(now).ms_since(now).div_ceil(1000);
            Some(format!("Its limit '{key}' permits the next start in {seconds} s."))
        }
    }
}

fn reached(key: &str, active: u64, most: u64) -> String {
    match concurrency_key::of_limit(key) {
        Some(key) => format!(
            "It waits because {active} of at most {most} jobs with the concurrency key '{key}' are running."
        ),
        None => format!("Its limit '{key}' is reached: {active} of at most {most} jobs are running."),
    }
}

fn available(queue: &str, ahead: u64, nearest: &[Candidate]) -> String {
    let live = || nearest.iter().filter(|candidate| candidate.worker.liveness == Liveness::Active);
    let able = || live().filter(|candidate| candidate.could_run());
    if live().next().is_none() {
        return "There is no worker.".into();
    }
    if able().next().is_none() {
        let all = live().min_by_key(|candidate| candidate.missing.len());
        let best = all.map(|best| (best.worker.worker_id.as_str(), best.missing.join(", ")));
        return match best {
            Some((worker_id, missing)) if missing.is_empty() => {
                format!("No worker that could run it accepts jobs now; {worker_id} comes closest.")
            }
            Some((worker_id, missing)) => {
                format!("No worker has all that it needs; {worker_id} comes closest and lacks {missing}.")
            }
            None => "There is no worker.".into(),
        };
    }
    if let Some(first) = able().find(|candidate| !candidate.occupied.is_empty())
        && able().all(|candidate| !candidate.has_room())
    {
        let (worker_id, lacks) = (&first.worker.worker_id, first.occupied.join(", "));
        return format!(
            "No worker that could run it has enough free; {worker_id} comes closest and lacks {lacks}; {ahead} jobs like it are before it."
        );
    }
    if able().all(|candidate| !candidate.has_room()) {
        return format!("Every worker that could run it is busy; {ahead} jobs like it are before it.");
    }
    if able().any(|candidate| candidate.has_room() && candidate.is_partly_used) {
        return format!(
            "It is ready; {ahead} jobs like it are before it; a worker keeps what is free for a larger job, or no worker asks for jobs of the queue '{queue}'."
        );
    }
    format!(
        "It is ready; {ahead} jobs like it are before it, and a worker must ask for jobs of the queue '{queue}'."
    )
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{documents::parse, time::Timestamp};

    use super::{Candidate, limited, nearest, reason};
    use crate::{
        action::Action,
        job::{Job, JobParams, JobState, QueuePosition},
        limit::{Limit, LimitTerms},
        worker::{dead, registered},
    };

    const NOW: Timestamp = Timestamp(1000);

    fn candidate(worker_id: &str, missing: &[&str], active_jobs: u64) -> Candidate {
        let registration = format!(r#"{{"worker_id":"{worker_id}","capabilities":[]}}"#);
        let worker = registered(None, &parse(registration.as_bytes()).unwrap(), "c", NOW).unwrap();
        let missing = missing.iter().map(|text| (*text).to_owned()).collect();
        let (shortfall, occupied, is_partly_used) = (0, Vec::new(), false);
        Candidate { worker, missing, shortfall, occupied, is_partly_used, active_jobs }
    }

    fn job() -> Job {
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), NOW);
        let place = QueuePosition { lane: 0, seq: 0 };
        Job::new("j".parse().unwrap(), &action, 0, place, &JobParams::default(), NOW)
    }

    #[test]
    fn nearest_sorts_by_missing_needs_and_dead_workers_last() {
        let gone = Candidate { worker: dead(&candidate("gone", &[], 0).worker), ..candidate("gone", &[], 0) };
        let all = vec![gone, candidate("far", &["tool a", "tool b"], 0), candidate("near", &["tool a"], 0)];
        let names: Vec<String> =
            nearest(all).into_iter().map(|near| near.worker.worker_id.to_string()).collect();
        assert_eq!(names, ["near", "far", "gone"]);
    }

    #[test]
    fn worker_that_offers_most_comes_closest() {
        let small = Candidate { shortfall: 900, ..candidate("small", &["cpus 8 (it offers 0.8)"], 0) };
        let large = Candidate { shortfall: 500, ..candidate("large", &["cpus 8 (it offers 4)"], 1) };
        let near = nearest(vec![small, large]);
        assert_eq!(
            reason(&job(), "ready", false, 0, &near, NOW),
            "No worker has all that it needs; large comes closest and lacks cpus 8 (it offers 4)."
        );
        let full = Candidate { occupied: vec!["cpus 3 (1 of 4 is free)".into()], ..candidate("w", &[], 0) };
        assert_eq!(
            reason(&job(), "ready", false, 2, &[candidate("busy", &[], 1), full], NOW),
            "No worker that could run it has enough free; w comes closest and lacks cpus 3 (1 of 4 is free); 2 jobs like it are before it."
        );
    }

    #[test]
    fn worker_with_running_jobs_may_keep_what_is_free_for_a_larger_job() {
        let of = |workers: &[Candidate]| reason(&job(), "q", false, 1, workers, NOW);
        let partly_used = Candidate { is_partly_used: true, ..candidate("w", &[], 0) };
        assert_eq!(
            of(&[candidate("idle", &[], 0), partly_used.clone()]),
            "It is ready; 1 jobs like it are before it; a worker keeps what is free for a larger job, or no worker asks for jobs of the queue 'q'."
        );
        assert!(of(&[Candidate { active_jobs: 1, ..partly_used }]).starts_with("Every worker"));
    }

    #[test]
    fn limited_names_the_used_up_bound_of_the_limit() {
        let limit = |concurrency, rate| Limit {
            terms: LimitTerms { concurrency, rate, period_ms: 5000 },
            ..Limit::default()
        };
        let of = |limit: Limit| limited("k", &limit, NOW);
        assert_eq!(of(limit(Some(2), None).begun(NOW)), None);
        let full = of(limit(Some(1), None).begun(NOW)).unwrap();
        assert_eq!(full, "Its limit 'k' is reached: 1 of at most 1 jobs are running.");
        let key = limited("concurrency:client:alice:user:7", &limit(Some(1), None).begun(NOW), NOW).unwrap();
        assert_eq!(
            key,
            "It waits because 1 of at most 1 jobs with the concurrency key 'user:7' are running."
        );
        let used_up = of(limit(None, Some(1)).begun(NOW)).unwrap();
        assert_eq!(used_up, "Its limit 'k' permits the next start in 5 s.");
    }

    #[test]
    fn reason_is_a_sentence_for_each_cause() {
        let of = |job: &Job, paused, near: &[Candidate]| reason(job, "ready", paused, 3, near, NOW);
        assert_eq!(of(&job(), false, &[]), "There is no worker.");
        let without = [candidate("w", &["tool jq"], 0)];
        assert_eq!(
            of(&job(), false, &without),
            "No worker has all that it needs; w comes closest and lacks tool jq."
        );
        assert!(of(&job(), true, &without).starts_with("Its queue 'ready' is paused"));
        assert!(
            of(&job(), false, &[candidate("w", &[], 1)])
                .starts_with("Every worker that could run it is busy; 3")
        );
        assert!(of(&job(), false, &[candidate("w", &[], 0)]).starts_with("It is ready; 3 jobs"));
        let later = Job { state: JobState::Scheduled, due_at: Some(Timestamp(3500)), ..job() };
        assert_eq!(of(&later, false, &[]), "It may run in 3 s.");
    }
}
