//! SCHEDULE.*

use agenix_protocol::{request::Page, resp::Reply};
use agenix_rules::{cron::ScheduleRequest, rejection::Rejection};

use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::{CommandResult, json as document, object},
    service::schedules::{self, schedule_view},
    store::DocumentKind,
};

pub(crate) async fn set(app: &AppState, caller: &Caller, json: &[u8]) -> CommandResult {
    let request: ScheduleRequest = object(json, Rejection::InvalidSchedule)?;
    let schedule = schedules::set(app, caller.submitter().owner, request, true).await?;
    let next = schedule.next_run_at.map(|at| at.to_string()).unwrap_or_default();
    Ok(Reply::Simple(format!("OK name={} next_run_at={next}", schedule.name)))
}

pub(crate) async fn get(app: &AppState, name: &str) -> CommandResult {
    match schedules::get(app, name).await {
        Ok(schedule) => Ok(document(&schedule_view(schedule))),
        Err(CommandError::Rejected(Rejection::ScheduleNotFound(_))) => Ok(Reply::Nil),
        Err(error) => Err(error),
    }
}

pub(crate) async fn list(app: &AppState, page: &Page) -> CommandResult {
    let documents = app.store.documents(DocumentKind::Cron).await?;
    Ok(Reply::bulks(page.of(documents.into_iter().map(|(name, _)| name))))
}

pub(crate) async fn delete(app: &AppState, name: &str) -> CommandResult {
    match schedules::delete(app, name).await {
        Ok(_) => Ok(Reply::Integer(1)),
        Err(CommandError::Rejected(Rejection::ScheduleNotFound(_))) => Ok(Reply::Integer(0)),
        Err(error) => Err(error),
    }
}
