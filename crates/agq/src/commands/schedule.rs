//! Schedules: set, shown, and run when their time has come. They are the cron jobs of the Open Job Spec.

use agenix_protocol::documents::to_json;
use agenix_rules::{
    cron::{Overlap, Schedule, Wanted},
    rejection::Rejection,
    workflow::Seen,
};
use tracing::{error, info};

use super::deferred::{self, Context};
use crate::{
    error::CommandError,
    house::House,
    store::{NoteChange, NoteKind, StoreError},
};

fn read(name: &str, json: &str) -> Result<Schedule, StoreError> {
    serde_json::from_str(json)
        .map_err(|error| StoreError(format!("the schedule {name} cannot be read: {error}")))
}

/// Makes a schedule; one of that name is replaced, or in the way.
pub(crate) async fn set(house: &House, wanted: Wanted, replace: bool) -> Result<Schedule, CommandError> {
    let schedule = Schedule::new(wanted, house.clock.now())?;
    deferred::check(house, &schedule.template, false).await?;
    let (json, name) = (to_json(&schedule), schedule.name.clone());
    let rule = move |known: Option<&str>| {
        if known.is_some() && !replace {
            return Err(Rejection::ScheduleExists(name.clone()));
        }
        Ok(NoteChange::Put(json.clone()))
    };
    house.store.decide_note(NoteKind::Cron, &schedule.name, Box::new(rule)).await??;
    Ok(schedule)
}

/// A schedule.
pub(crate) async fn get(house: &House, name: &str) -> Result<Schedule, CommandError> {
    let note = house.store.note(NoteKind::Cron, name).await?;
    let note = note.ok_or_else(|| Rejection::ScheduleNotFound(name.to_owned()))?;
    Ok(read(name, &note)?)
}

/// All schedules, in the order of their names.
pub(crate) async fn list(house: &House) -> Result<Vec<Schedule>, CommandError> {
    let notes = house.store.notes(NoteKind::Cron).await?;
    Ok(notes.iter().map(|(name, note)| read(name, note)).collect::<Result<_, _>>()?)
}

/// Deletes a schedule; as it was.
pub(crate) async fn delete(house: &House, name: &str) -> Result<Schedule, CommandError> {
    let schedule = get(house, name).await?;
    let id = name.to_owned();
    let rule = move |known: Option<&str>| match known {
        Some(_) => Ok(NoteChange::Remove),
        None => Err(Rejection::ScheduleNotFound(id.clone())),
    };
    house.store.decide_note(NoteKind::Cron, name, Box::new(rule)).await??;
    Ok(schedule)
}

/// Submits what schedules say whose time has come.
pub(crate) async fn run_due(house: &House) -> Result<(), CommandError> {
    let now = house.clock.now();
    for schedule in list(house).await? {
        if schedule.pending_id.is_none() && !schedule.is_due(now) {
            continue;
        }
        if let Err(error) = run(house, &schedule).await {
            error!(schedule = schedule.name, %error, "a schedule could not submit what it says");
        }
    }
    Ok(())
}

/// First it is decided, with the id that the run will have, then it is submitted: a crash between the two submits nothing twice.
async fn run(house: &House, schedule: &Schedule) -> Result<(), CommandError> {
    let decided = match &schedule.pending_id {
        Some(_) => Some(schedule.clone()),
        None => decide(house, schedule).await?,
    };
    let Some((decided, id)) = decided.and_then(|decided| decided.pending_id.clone().map(|id| (decided, id)))
    else {
        return Ok(());
    };
    let outcome = deferred::submit(house, &decided.template, &id, Context::default()).await;
    if let Err(CommandError::Store(error)) = outcome {
        return Err(error.into());
    }
    // What a rule refuses now it would refuse again: the next run is another chance.
    change(house, &decided.name, |known| known.pending_id.is_some().then(|| known.submitted())).await?;
    outcome?;
    info!(schedule = decided.name, id, "a schedule submitted what it says");
    Ok(())
}

/// Decides on a run, unless the one before is under way and that is to be waited for.
async fn decide(house: &House, schedule: &Schedule) -> Result<Option<Schedule>, CommandError> {
    let (now, at) = (house.clock.now(), schedule.next_run_at);
    let is_busy = match (schedule.overlap_policy, &schedule.last_id) {
        (Overlap::Skip, Some(last)) => {
            deferred::look(house, schedule.is_action(), last).await? == Seen::Underway
        }
        _ => false,
    };
    let id = (!is_busy).then(|| deferred::new_id(house));
    // Another agq may have been quicker, or somebody may have changed it.
    change(house, &schedule.name, move |known| {
        (known.next_run_at == at && known.is_due(now)).then(|| known.fired(id.clone(), now))
    })
    .await?;
    Ok(house
        .store
        .note(NoteKind::Cron, &schedule.name)
        .await?
        .map(|note| read(&schedule.name, &note))
        .transpose()?)
}

/// Changes a schedule as it is now.
async fn change(
    house: &House,
    name: &str,
    change: impl Fn(&Schedule) -> Option<Schedule> + Send + Sync + 'static,
) -> Result<(), CommandError> {
    let rule = move |known: Option<&str>| {
        let known: Option<Schedule> = known.and_then(|known| serde_json::from_str(known).ok());
        let next = known.as_ref().and_then(&change);
        Ok(next.map_or(NoteChange::Keep, |next| NoteChange::Put(to_json(&next))))
    };
    Ok(house.store.decide_note(NoteKind::Cron, name, Box::new(rule)).await??)
}
