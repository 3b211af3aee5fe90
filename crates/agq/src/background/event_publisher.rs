//! Event publisher: turns changes of the store into events for subscribers, of jobs on
//! `job:updates` and of actions on `action:updates:<id>`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agenix_protocol::{
    documents::{JOB_UPDATES, JobEvent, WORKER_UPDATES, WorkerEvent, action_updates, parse, to_json},
    time::Timestamp,
};
use agenix_rules::{
    action,
    job::{Job, JobState},
};
use bytes::Bytes;

use crate::{app::AppState, service::worker_messages::notify_worker, store::ChangeEvent};

/// Number of events between two checks that the subscribers keep up.
const EVENTS_PER_CHECK: usize = 1000;
/// Pause in which slow subscribers can catch up.
const PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSES: usize = 100;

pub(crate) async fn run(app: Arc<AppState>) {
    let notifier = app.store.notifier();
    loop {
        let changes = notifier.changes().await;
        let mut actions = BTreeMap::new();
        for (count, change) in changes.into_iter().enumerate() {
            if count % EVENTS_PER_CHECK == 0 {
                wait_for_subscribers(&app).await;
            }
            match change {
                ChangeEvent::Job { job, was, has_progressed, has_subscribers } => {
                    let now = app.clock.now();
                    app.events.record(was, &job, has_progressed, now);
                    if let Some(holder) = cancelled_holder(was, &job) {
                        notify_worker(&app, holder);
                    }
                    if has_subscribers {
                        app.pubsub.publish(&JOB_UPDATES.into(), &job_event(&job, now));
                    }
                }
                // Only the last status of an action is published, because it changes with each job.
                ChangeEvent::Action(action, counts) => {
                    actions.insert(action.action_id.clone(), (action, counts));
                }
            }
        }
        for (count, (action_id, (action, counts))) in actions.into_iter().enumerate() {
            if count % EVENTS_PER_CHECK == 0 {
                wait_for_subscribers(&app).await;
            }
            let status = to_json(&action::status(&action, &counts));
            app.pubsub.publish(&action_updates(&action_id).into(), &status.into());
        }
    }
}

/// Waits for a bounded time, so that a large submission disconnects only subscribers that do not
/// read.
async fn wait_for_subscribers(app: &AppState) {
    for _ in 0..MAX_PAUSES {
        if app.pubsub.free_capacity() >= 2 * EVENTS_PER_CHECK {
            return;
        }
        app.clock.sleep(PAUSE).await;
    }
}

/// Returns the holder of a job that was cancelled while active. The holder may not know of the
/// cancellation, because another job may have replaced the job.
fn cancelled_holder(was: Option<JobState>, job: &Job) -> Option<&str> {
    let is_lost = was == Some(JobState::Active) && job.state == JobState::Cancelled;
    job.holder.as_deref().filter(|_| is_lost)
}

fn job_event(job: &Job, at: Timestamp) -> Bytes {
    let event = JobEvent {
        job_id: job.job_id.clone(),
        action_id: job.action_id.clone(),
        plan_id: job.plan_id.clone(),
        status: job.status(),
        state: job.state.as_str().into(),
        attempt: job.attempt,
        worker_id: job.holder.clone(),
        at,
        current_task: job.current_task,
        progress_percent: job.progress_percent,
    };
    to_json(&event).into()
}

/// Delivers a message of another node. An event about a worker evicts its waiters and its cached
/// capabilities, because its record has changed.
pub(crate) fn on_peer_message(app: &AppState, channel: &Bytes, payload: &Bytes) {
    if channel == WORKER_UPDATES.as_bytes()
        && let Ok(event) = parse::<WorkerEvent>(payload)
    {
        app.waiters.evict(event.worker_id.as_str());
        app.capabilities.forget(&event.worker_id);
        if matches!(event.event.as_str(), "dead" | "unregistered") {
            app.outcomes.forget(&event.worker_id);
        }
    }
    app.pubsub.publish_here(channel, payload);
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::{
        action::Action,
        job::{self, Job, JobParams, JobState, LeaseOptions, QueuePosition, RuleOutcome},
    };

    use super::cancelled_holder;

    #[test]
    fn events_notify_the_holder_of_a_job_that_is_cancelled() {
        let now = Timestamp(1000);
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), now);
        let place = QueuePosition { lane: 0, seq: 0 };
        let waits = Job::new("j".parse().unwrap(), &action, 0, place, &JobParams::default(), now);
        let runs = job::claimed(&waits, "w", now, LeaseOptions::default());
        let cancelled = |job: &Job| match job::cancelled(job, now) {
            Ok(RuleOutcome::Changed(job)) => *job,
            other => panic!("{other:?}"),
        };
        assert_eq!(cancelled_holder(Some(JobState::Active), &cancelled(&runs)), Some("w"));
        assert_eq!(cancelled_holder(Some(JobState::Available), &cancelled(&waits)), None, "nobody has it");
        assert_eq!(cancelled_holder(Some(JobState::Available), &runs), None, "it has just been claimed");
    }
}
