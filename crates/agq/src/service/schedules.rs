//! Schedules: submit a job or an action at the times of a cron expression. Schedules are the cron
//! jobs of the Open Job Spec.

use agenix_protocol::{documents::to_json, time::Timestamp};
use agenix_rules::{
    cron::{Overlap, Schedule, ScheduleRequest, check_name},
    owner::Owner,
    rejection::Rejection,
    workflow::StepObservation,
};
use serde::Serialize;
use serde_json::value::RawValue;
use tracing::{error, info};

use super::{
    deferred_submission::{self, SubmissionContext},
    lookup,
};
use crate::{
    app::AppState,
    error::{CommandError, Result},
    store::{DocumentChange, DocumentKind, StoreError},
};

fn read(name: &str, json: &str) -> Result<Schedule, StoreError> {
    lookup::parse("schedule", name, json)
}

/// Rejects a schedule whose name exists, unless `replace`.
pub(crate) async fn set(
    app: &AppState,
    owner: Option<&Owner>,
    request: ScheduleRequest,
    replace: bool,
) -> Result<Schedule> {
    let schedule = Schedule { owner: owner.cloned(), ..Schedule::new(request, app.clock.now())? };
    deferred_submission::check_is_closed(&schedule.template)?;
    deferred_submission::check(app, owner, &schedule.template, false).await?;
    let made = schedule.clone();
    let rule = move |known: Option<&str>| {
        if known.is_some() && !replace {
            return Err(Rejection::ScheduleExists(made.name.clone()));
        }
        let known = known.and_then(|known| serde_json::from_str::<Schedule>(known).ok());
        Ok(DocumentChange::Put(to_json(&made.after(known.as_ref()))))
    };
    app.store.update_document(DocumentKind::Cron, &schedule.name, Box::new(rule)).await??;
    // A replaced schedule keeps its history. The schedule is stored, so a failed read is no error.
    Ok(get(app, &schedule.name).await.unwrap_or(schedule))
}

pub(crate) async fn get(app: &AppState, name: &str) -> Result<Schedule> {
    let is_name = check_name(name).is_ok();
    let json = if is_name { app.store.document(DocumentKind::Cron, name).await? } else { None };
    let json = json.ok_or_else(|| Rejection::ScheduleNotFound(name.to_owned()))?;
    Ok(read(name, &json)?)
}

pub(crate) async fn list(app: &AppState) -> Result<Vec<Schedule>> {
    let documents = app.store.documents(DocumentKind::Cron).await?;
    Ok(documents.iter().map(|(name, json)| read(name, json)).collect::<Result<_, _>>()?)
}

pub(crate) async fn delete(app: &AppState, name: &str) -> Result<Schedule> {
    let schedule = get(app, name).await?;
    let id = name.to_owned();
    let rule = move |known: Option<&str>| match known {
        Some(_) => Ok(DocumentChange::Remove),
        None => Err(Rejection::ScheduleNotFound(id.clone())),
    };
    app.store.update_document(DocumentKind::Cron, name, Box::new(rule)).await??;
    Ok(schedule)
}

/// An error of one schedule does not affect the others.
pub(crate) async fn run_due(app: &AppState) -> Result<()> {
    let now = app.clock.now();
    for (name, json) in app.store.documents(DocumentKind::Cron).await? {
        let schedule = match read(&name, &json) {
            Ok(schedule) => schedule,
            Err(error) => {
                error!(%error, "a schedule was skipped");
                continue;
            }
        };
        if schedule.pending_id.is_none() && !schedule.is_due(now) {
            continue;
        }
        if let Err(error) = run(app, &schedule).await {
            error!(schedule = schedule.name, %error, "a schedule could not submit its job or action");
        }
    }
    Ok(())
}

/// Corrects schedules that wait for times calculated before the clock was set back.
pub(crate) async fn reschedule_all(app: &AppState) -> Result<()> {
    let now = app.clock.now();
    for (name, json) in app.store.documents(DocumentKind::Cron).await? {
        if read(&name, &json).is_ok_and(|schedule| schedule.rescheduled(now).is_some()) {
            change(app, &name, move |known| known.rescheduled(now)).await?;
        }
    }
    Ok(())
}

/// Records the id of the run, and then submits under it: idempotent after a crash in between.
async fn run(app: &AppState, schedule: &Schedule) -> Result<()> {
    let decided = match &schedule.pending_id {
        Some(_) => Some(schedule.clone()),
        None => decide(app, schedule).await?,
    };
    let Some((decided, id)) = decided.and_then(|decided| decided.pending_id.clone().map(|id| (decided, id)))
    else {
        return Ok(());
    };
    let context = SubmissionContext { owner: decided.owner.as_ref(), ..SubmissionContext::default() };
    let outcome = deferred_submission::submit(app, &decided.template, &id, context).await;
    if let Err(CommandError::Store(error)) = outcome {
        return Err(error.into());
    }
    // An equal job may stand for the new job.
    let last = outcome.as_ref().ok().cloned().flatten().unwrap_or_else(|| id.clone());
    // A rejected run is not repeated, because it would be rejected again. The next run follows.
    let pending = id.clone();
    change(app, &decided.name, move |known| known.submitted(&pending, &last)).await?;
    outcome?;
    info!(schedule = decided.name, id, "a schedule submitted its job or action");
    Ok(())
}

/// Records a run, unless the policy is to skip a run while the last one has not ended.
async fn decide(app: &AppState, schedule: &Schedule) -> Result<Option<Schedule>> {
    let (now, at) = (app.clock.now(), schedule.next_run_at);
    let is_busy = match (schedule.overlap_policy, &schedule.last_id) {
        (Overlap::Skip, Some(last)) => {
            deferred_submission::observe(app, schedule.is_action(), last).await? == StepObservation::Underway
        }
        _ => false,
    };
    if is_busy {
        let (schedule, last_id) = (&schedule.name, &schedule.last_id);
        info!(schedule, last_id, "a schedule leaves a run out, because its last job or action has not ended");
    }
    let id = (!is_busy).then(|| deferred_submission::new_id(app));
    // Another node may have recorded the run, or a client may have changed the schedule.
    change(app, &schedule.name, move |known| {
        (known.next_run_at == at && known.is_due(now)).then(|| known.fired(id.clone(), now))
    })
    .await?;
    let json = app.store.document(DocumentKind::Cron, &schedule.name).await?;
    Ok(json.map(|json| read(&schedule.name, &json)).transpose()?)
}

async fn change(
    app: &AppState,
    name: &str,
    change: impl Fn(&Schedule) -> Option<Schedule> + Send + Sync + 'static,
) -> Result<()> {
    let rule = move |known: Option<&str>| {
        let known: Option<Schedule> = known.and_then(|known| serde_json::from_str(known).ok());
        let next = known.as_ref().and_then(&change);
        Ok(next.map_or(DocumentChange::Keep, |next| DocumentChange::Put(to_json(&next))))
    };
    Ok(app.store.update_document(DocumentKind::Cron, name, Box::new(rule)).await??)
}

/// `action` and `job_template` stay as the client wrote them.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduleView {
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Box<RawValue>>,
    created_at: Timestamp,
    enabled: bool,
    expression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_template: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_run_at: Option<Timestamp>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run_at: Option<Timestamp>,
    overlap_policy: Overlap,
    runs: u64,
    timezone: String,
}

pub(crate) fn schedule_view(schedule: Schedule) -> ScheduleView {
    let is_action = schedule.is_action();
    let (action, job_template) =
        if is_action { (Some(schedule.template), None) } else { (None, Some(schedule.template)) };
    ScheduleView {
        action,
        created_at: schedule.created_at,
        enabled: schedule.enabled,
        expression: schedule.expression,
        job_template,
        last_id: schedule.last_id,
        last_run_at: schedule.last_run_at,
        name: schedule.name,
        next_run_at: schedule.next_run_at,
        overlap_policy: schedule.overlap_policy,
        runs: schedule.runs,
        timezone: schedule.timezone,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse_object;

    use super::{change, get, run, set};
    use crate::startup::services::without_tasks;

    #[tokio::test]
    async fn schedule_of_an_open_action_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let schedule =
            br#"{"name":"s","expression":"* * * * *","action":{"plan_id":"p","open":true,"inputs":[{}]}}"#;
        let refused = set(&app, None, parse_object(schedule).unwrap(), false).await.unwrap_err();
        let line = "ERR Invalid schedule: action.open is true, and nobody would close the action of a run: leave open out";
        assert_eq!(refused.line(), line);
        assert!(get(&app, "s").await.is_err());
    }

    #[tokio::test]
    async fn schedule_keeps_a_pending_run_when_another_node_ends_the_run_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let schedule = br#"{"name":"s","expression":"* * * * *","job_template":{"type":"a","args":[]}}"#;
        drop(set(&app, None, parse_object(schedule).unwrap(), false).await.unwrap());
        let now = app.clock.now();
        let fire = async |id: &'static str| {
            change(&app, "s", move |known| Some(known.fired(Some(id.to_owned()), now))).await.unwrap();
        };
        fire("first").await;
        let stalled = get(&app, "s").await.unwrap();
        run(&app, &stalled).await.unwrap();
        fire("second").await;
        // A node that stalled after it had decided the first run continues.
        run(&app, &stalled).await.unwrap();
        let known = get(&app, "s").await.unwrap();
        assert_eq!((known.pending_id.as_deref(), known.last_id.as_deref()), (Some("second"), Some("first")));
    }
}
