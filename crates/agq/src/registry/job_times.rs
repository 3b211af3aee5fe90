//! Histograms of the waits and the run times of jobs since agq started, by queue.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use agenix_protocol::{reserved_keys::READY, time::Timestamp};
use agenix_rules::job::{Job, JobState};
use prometheus_client::{
    encoding::text::encode_registry,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

use crate::{
    store::{Claim, JobChange},
    sync::lock,
};

/// Maximum number of queues with histograms of their own. The maximum bounds the number of time
/// series.
const MAX_QUEUES: usize = 50;
/// Label of all further queues. No queue has this name, because names have no parentheses.
const OTHER: &str = "(other)";
/// Maximum number of lanes whose queues are known. The lanes of running jobs are known again after
/// the next claim from them.
const MAX_LANES: usize = 10_000;
/// Upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0];

type ByQueue = Family<[(&'static str, String); 1], Histogram, fn() -> Histogram>;

pub(crate) struct JobTimes {
    registry: Registry,
    waits: ByQueue,
    runs: ByQueue,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    queues: BTreeMap<String, QueueTimes>,
    /// Histograms of the queue of each lane, because a job names its lane only.
    lanes: HashMap<u32, QueueTimes>,
}

#[derive(Clone)]
struct QueueTimes {
    wait: Histogram,
    run: Histogram,
}

impl Default for JobTimes {
    fn default() -> Self {
        let family = || ByQueue::new_with_constructor(|| Histogram::new(BUCKETS));
        let (waits, runs, mut registry) = (family(), family(), Registry::default());
        let help = "Time from the submission of a job to its first claim";
        registry.register("agq_job_wait_seconds", help, waits.clone());
        let help = "Time from a claim to the report of its end";
        registry.register("agq_job_run_seconds", help, runs.clone());
        let times = Self { registry, waits, runs, known: Mutex::default() };
        times.of_queue(&mut lock(&times.known), READY);
        times
    }
}

impl JobTimes {
    /// Adds the wait of a job at its first claim, from its submission.
    pub(crate) fn claimed(&self, claim: &Claim) {
        let mut known = lock(&self.known);
        let times = match known.lanes.get(&claim.job.lane) {
            Some(times) => times.clone(),
            None => self.of_lane(&mut known, claim.job.lane, &claim.queue),
        };
        drop(known);
        if let Some(wait) = wait(&claim.job) {
            times.wait.observe(wait);
        }
    }

    /// Adds the run time of a job whose attempt `change` has ended.
    pub(crate) fn reported(&self, change: &JobChange, now: Timestamp) {
        let Some(run) = run(change, now) else { return };
        let mut known = lock(&self.known);
        let times = known.lanes.get(&change.before.lane).cloned();
        // The job was claimed before the start of agq, or from another node.
        let times = times.unwrap_or_else(|| self.of_queue(&mut known, OTHER));
        drop(known);
        times.run.observe(run);
    }

    /// Appends the histograms in the text format of Prometheus.
    pub(crate) fn write(&self, text: &mut String) {
        encode_registry(text, &self.registry).expect("writing to a String cannot fail");
    }

    fn of_lane(&self, known: &mut Known, lane: u32, queue: &str) -> QueueTimes {
        let times = self.of_queue(known, queue);
        if known.lanes.len() >= MAX_LANES {
            known.lanes.clear();
        }
        known.lanes.insert(lane, times.clone());
        times
    }

    fn of_queue(&self, known: &mut Known, queue: &str) -> QueueTimes {
        let has_room = known.queues.len() < MAX_QUEUES;
        let label = if has_room || known.queues.contains_key(queue) { queue } else { OTHER };
        let new = || {
            let labels = [("queue", label.to_owned())];
            QueueTimes {
                wait: self.waits.get_or_create_owned(&labels),
                run: self.runs.get_or_create_owned(&labels),
            }
        };
        known.queues.entry(label.to_owned()).or_insert_with(new).clone()
    }
}

/// Returns the wait of a claimed job in seconds, if this claim is its first.
fn wait(job: &Job) -> Option<f64> {
    let claimed_at = job.started_at.filter(|_| job.attempt == 1)?;
    Some(seconds(claimed_at.ms_since(job.created_at)))
}

/// Returns the run time in seconds, if `change` has ended an attempt.
fn run(change: &JobChange, now: Timestamp) -> Option<f64> {
    let has_ended = change.before.state == JobState::Active && change.after.state != JobState::Active;
    let claimed_at = change.before.started_at.filter(|_| has_ended)?;
    Some(seconds(now.ms_since(claimed_at)))
}

#[expect(clippy::cast_precision_loss, reason = "a histogram needs no more than 52 bits")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        ids::{ActionId, JobId, PlanId},
        time::Timestamp,
    };
    use agenix_rules::{
        action::Action,
        job::{Job, JobParams, JobState, QueuePosition},
    };

    use super::{JobTimes, MAX_QUEUES, run, wait};
    use crate::store::{Claim, JobChange};

    /// Returns a job that was submitted at 1000 ms and claimed 2500 ms later.
    fn claimed(lane: u32, attempt: u32) -> Job {
        let (action_id, plan_id) = (ActionId::new("a").unwrap(), PlanId::new("p").unwrap());
        let action = Action::new(action_id, plan_id, Timestamp(0));
        let place = QueuePosition { lane, seq: 1 };
        let terms = JobParams::default();
        let job = Job::new(JobId::new("j").unwrap(), &action, 0, place, &terms, Timestamp(1000));
        Job { state: JobState::Active, attempt, started_at: Some(Timestamp(3500)), ..job }
    }

    fn claim(lane: u32, queue: &str) -> Claim {
        Claim {
            job: claimed(lane, 1),
            queue: queue.into(),
            input: "{}".into(),
            plan: "{}".into(),
            order: None,
            resources: None,
        }
    }

    fn end_of(before: Job) -> JobChange {
        JobChange { after: Job { state: JobState::Completed, ..before.clone() }, before }
    }

    fn text(times: &JobTimes) -> String {
        let mut text = String::new();
        times.write(&mut text);
        text
    }

    #[test]
    fn wait_is_that_of_the_first_claim_and_run_that_of_an_ended_attempt() {
        assert_eq!([wait(&claimed(1, 1)), wait(&claimed(1, 2))], [Some(2.5), None]);
        let end = end_of(claimed(1, 2));
        assert_eq!(run(&end, Timestamp(4750)), Some(1.25));
        let progress = JobChange { after: end.before.clone(), before: end.before };
        assert_eq!(run(&progress, Timestamp(4750)), None);
    }

    #[test]
    fn histograms_are_those_of_the_queue_of_a_lane() {
        let times = JobTimes::default();
        times.claimed(&claim(7, "q"));
        times.reported(&end_of(claimed(7, 1)), Timestamp(4750));
        times.reported(&end_of(claimed(8, 1)), Timestamp(4750));
        let text = text(&times);
        for line in [
            "# TYPE agq_job_wait_seconds histogram",
            "agq_job_wait_seconds_bucket{le=\"1.0\",queue=\"q\"} 0",
            "agq_job_wait_seconds_bucket{le=\"5.0\",queue=\"q\"} 1",
            "agq_job_wait_seconds_sum{queue=\"q\"} 2.5",
            "agq_job_wait_seconds_count{queue=\"ready\"} 0",
            "agq_job_run_seconds_sum{queue=\"q\"} 1.25",
            "agq_job_run_seconds_count{queue=\"(other)\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn number_of_queues_with_own_histograms_is_bounded() {
        let times = JobTimes::default();
        for lane in 0..u32::try_from(3 * MAX_QUEUES).unwrap() {
            times.claimed(&claim(lane, &format!("q{lane}")));
        }
        let text = text(&times);
        let counts = || text.lines().filter(|line| line.starts_with("agq_job_wait_seconds_count"));
        assert_eq!(counts().count(), MAX_QUEUES + 1);
        let others = 2 * MAX_QUEUES + 1;
        let others = format!("agq_job_wait_seconds_count{{queue=\"(other)\"}} {others}");
        assert!(counts().any(|line| line == others), "{text}");
    }
}
