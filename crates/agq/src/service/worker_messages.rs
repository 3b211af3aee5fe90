//! Messages to workers, and events about workers.

use agenix_protocol::{
    documents::{WORKER_UPDATES, WithdrawCall, WorkerEvent, to_json},
    ids::{ActionId, WorkerId},
    reserved_keys::directives_channel,
};
use bytes::Bytes;

use crate::app::{AppState, is_connection};

/// Asks for a heartbeat, whose reply has new directives. A worker that does not subscribe to its
/// channel gets the directives with its next regular heartbeat.
pub(crate) fn notify_worker(app: &AppState, worker_id: &str) {
    if is_connection(worker_id) {
        return;
    }
    app.pubsub.publish(&directives_channel(worker_id).into(), &Bytes::from_static(b"heartbeat"));
}

/// Asks a worker to give up claimed jobs that have not started. A worker that does not subscribe to
/// its channel starts these jobs.
pub(crate) fn withdraw(app: &AppState, worker_id: &str, action_id: &ActionId) {
    if is_connection(worker_id) {
        return;
    }
    let call = to_json(&WithdrawCall { withdraw: action_id.clone() });
    app.pubsub.publish(&directives_channel(worker_id).into(), &call.into());
}

pub(crate) fn publish_worker_event(app: &AppState, worker_id: &WorkerId, event: &str) {
    let event = WorkerEvent { worker_id: worker_id.clone(), event: event.into(), at: app.clock.now() };
    app.pubsub.publish(&Bytes::from_static(WORKER_UPDATES.as_bytes()), &to_json(&event).into());
}
