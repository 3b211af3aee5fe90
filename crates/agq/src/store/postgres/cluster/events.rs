//! Events for other programs that listen at the database, by NOTIFY (the AgentPG spec, External
//! Event Consumers): a channel and a JSON document.

use agenix_rules::{action::Action, job::Job};
use serde_json::json;

use crate::store::postgres::cluster::notify_bus::BusMessage;

const CREATED: &str = "agq_jobs_created";
const STATE: &str = "agq_job_state";
const FINALIZED: &str = "agq_job_finalized";

pub(crate) fn created(action: &Action, jobs: usize) -> BusMessage {
    let Action { action_id, plan_id, queue, .. } = action;
    let event = json!({ "action_id": action_id, "plan_id": plan_id, "queue": queue, "jobs": jobs });
    BusMessage::Event(CREATED, event.to_string())
}

/// Returns the event for a change of a job, if its state has changed.
pub(crate) fn moved(before: &Job, after: &Job) -> impl Iterator<Item = BusMessage> {
    let is_moved = before.state != after.state;
    let state = is_moved.then(|| {
        let event = json!({
            "job_id": after.job_id,
            "action_id": after.action_id,
            "plan_id": after.plan_id,
            "state": after.state.as_str(),
            "previous_state": before.state.as_str(),
            "attempt": after.attempt,
            "worker_id": after.holder,
        });
        BusMessage::Event(STATE, event.to_string())
    });
    let finalized = (is_moved && after.is_ended()).then(|| {
        let event = json!({
            "job_id": after.job_id,
            "action_id": after.action_id,
            "plan_id": after.plan_id,
            "state": after.state.as_str(),
            "status": after.status().as_str(),
        });
        BusMessage::Event(FINALIZED, event.to_string())
    });
    state.into_iter().chain(finalized)
}
