//! What is changed by its id: actions and jobs cancelled and tried again, plans deleted, queues paused, workers drained.

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId, QueueName, WorkerId},
    reserved_keys::{READY, queue_of},
};

use crate::{
    cli::ServerArgs,
    documents::{ActionCancelled, ActionRetried, JobRef, PlanRef, QueueRef, WorkerRef},
    error::CliError,
    output::{Output, counted},
    util::path_lookup::nearest,
};

pub(super) async fn cancel_action(
    server: &ServerArgs,
    id: &ActionId,
    output: Output,
) -> Result<(), CliError> {
    let cancelled = server.connect().await?.cancel_action(id).await?;
    output.show("action.cancel", &ActionCancelled { action_id: id.clone(), cancelled }, |_| {
        let which =
            counted(cancelled, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} cancelled; those that had ended stay as they are")
    })
}

pub(super) async fn retry_action(server: &ServerArgs, id: &ActionId, output: Output) -> Result<(), CliError> {
    let retried = server.connect().await?.retry_action(id).await?;
    output.show("action.retry", &ActionRetried { action_id: id.clone(), retried }, |_| {
        let which = counted(retried, &format!("job of action {id} is"), &format!("jobs of action {id} are"));
        format!("{which} tried again; watch it with `agx action watch {id}`")
    })
}

pub(super) async fn cancel_job(server: &ServerArgs, id: &JobId, output: Output) -> Result<(), CliError> {
    server.connect().await?.cancel_job(id).await?;
    output.show("job.cancel", &JobRef { job_id: id.clone() }, |_| format!("job {id} is cancelled"))
}

pub(super) async fn retry_job(
    server: &ServerArgs,
    id: &JobId,
    force: bool,
    output: Output,
) -> Result<(), CliError> {
    server.connect().await?.retry_job(id, force).await?;
    output.show("job.retry", &JobRef { job_id: id.clone() }, |_| format!("job {id} is tried again"))
}

pub(super) async fn delete_plan(server: &ServerArgs, id: &PlanId, output: Output) -> Result<(), CliError> {
    if !server.connect().await?.delete_plan(id).await? {
        return Err(CliError::not_found("plan", id, "see the plans with `agx plan list`"));
    }
    output.show("plan.delete", &PlanRef { plan_id: id.clone() }, |_| format!("plan {id} is gone"))
}

pub(super) async fn pause(
    server: &ServerArgs,
    queue: &QueueName,
    pauses: bool,
    output: Output,
) -> Result<(), CliError> {
    let mut connection = server.connect().await?;
    let stats = connection.queue_stats().await?;
    if pauses && stats.ready_of(queue.as_str()).is_none() {
        // Any name may be that of a queue; one that nobody uses may be a slip.
        let names = stats.others.keys().map(|key| queue_of(key)).chain([READY]);
        let meant = nearest(queue.as_str(), names).map(|name| format!("; did you mean '{name}'?"));
        output.note(&format!("agx: no job waits in the queue {queue}{}", meant.unwrap_or_default()));
    }
    connection.pause_queue(queue, pauses).await?;
    let (kind, what) = if pauses {
        ("queue.pause", "is paused: its jobs wait; those that run go on")
    } else {
        ("queue.resume", "goes on")
    };
    output.show(kind, &QueueRef { queue: queue.clone() }, |_| format!("the queue {queue} {what}"))
}

pub(super) async fn drain(
    server: &ServerArgs,
    id: &WorkerId,
    drains: bool,
    output: Output,
) -> Result<(), CliError> {
    server.connect().await?.drain_worker(id, drains).await?;
    let (kind, what) = if drains {
        ("worker.drain", "takes no more jobs, and finishes those it has")
    } else {
        ("worker.resume", "takes jobs again")
    };
    output.show(kind, &WorkerRef { worker_id: id.clone() }, |_| format!("the worker {id} {what}"))
}
