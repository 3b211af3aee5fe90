//! Lists: pages of jobs, dead letters, events.

use std::sync::Arc;

use agenix_protocol::{
    documents::{OjsJob, Status},
    request::{Access, Search},
};
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Desk,
    answer::{Answer, Refusal, object, ok, pagination, raw},
    asked::Guest,
    jobs::shown,
};
use crate::{commands::ojs, events::Event};

/// How many entries a page has where nothing is said, and at most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 200;
/// How far into a list anyone may go: what is passed over is looked at.
const MAX_OFFSET: usize = 10_000;

/// Which part of a list, and which entries, are wanted.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    limit: Option<String>,
    per_page: Option<String>,
    page: Option<String>,
    cursor: Option<String>,
    offset: Option<String>,
    state: Option<String>,
    queue: Option<String>,
    types: Option<String>,
    queues: Option<String>,
}

fn number(name: &str, told: Option<&String>) -> Result<Option<usize>, Refusal> {
    let wrong = || Refusal::invalid(format!("{name} is to be a whole number from 0 on"));
    told.map(|told| told.parse().map_err(|_| wrong())).transpose()
}

impl Wanted {
    /// How many are passed over, and how many are wanted.
    fn part(&self) -> Result<(usize, usize), Refusal> {
        let limit = number("limit", self.limit.as_ref().or(self.per_page.as_ref()))?.unwrap_or(PAGE);
        let limit = limit.clamp(1, MAX_PAGE);
        let offset = match number("page", self.page.as_ref())? {
            Some(page) => page.saturating_sub(1).saturating_mul(limit),
            None => number("cursor", self.cursor.as_ref().or(self.offset.as_ref()))?.unwrap_or_default(),
        };
        if offset > MAX_OFFSET {
            return Err(Refusal::invalid(format!(
                "only the first {MAX_OFFSET} entries of a list can be paged through"
            )));
        }
        Ok((offset, limit))
    }

    fn page_number(&self) -> usize {
        self.page.as_ref().and_then(|page| page.parse().ok()).unwrap_or(1).max(1)
    }

    /// The words of a list with commas; `None` where all are wanted.
    fn words(told: Option<&String>) -> Option<Vec<String>> {
        told.map(|told| told.split(',').map(|word| word.trim().to_owned()).collect())
    }
}

/// The status behind a state, and the state where several have that status.
fn status_of(state: &str) -> Result<Status, Refusal> {
    match state {
        "available" | "scheduled" | "retryable" | "pending" => Ok(Status::Pending),
        "active" => Ok(Status::Running),
        "completed" => Ok(Status::Completed),
        "cancelled" => Ok(Status::Cancelled),
        "discarded" => Ok(Status::Failed),
        other => Err(Refusal::invalid(format!(
            "state is '{}': use available, scheduled, pending, active, retryable, completed, cancelled or discarded",
            super::asked::shown(other)
        ))),
    }
}

/// A page of the jobs that are wanted, the newest first, and whether there are more.
async fn page_of_jobs(desk: &Desk, wanted: &Wanted) -> Result<(Vec<OjsJob>, usize, bool), Refusal> {
    let (offset, limit) = wanted.part()?;
    let status = wanted.state.as_deref().map(status_of).transpose()?;
    let sought = |status| Search { status, limit: MAX_OFFSET, ..Search::default() };
    let mut ids = desk.house.store.search(sought(status)).await?;
    if status == Some(Status::Failed) {
        ids.extend(desk.house.store.search(sought(Some(Status::Dead))).await?);
        ids.sort_by(|a, b| b.cmp(a));
    }
    let (mut page, mut passed) = (Vec::new(), 0);
    for job_id in ids {
        let Some(stored) = desk.house.store.job(&job_id).await? else { continue };
        let state = stored.job.state.ojs_name();
        let is_wanted = wanted.state.as_deref().is_none_or(|wanted| wanted == state)
            && wanted.queue.as_deref().is_none_or(|queue| queue == stored.queue);
        if !is_wanted {
            continue;
        }
        if page.len() == limit {
            return Ok((page, offset, true));
        }
        if passed < offset {
            passed += 1;
        } else {
            page.push(shown(&stored)?);
        }
    }
    Ok((page, offset, false))
}

/// How many jobs are kept of the state that is wanted, or at all.
async fn total_of(desk: &Desk, wanted: &Wanted) -> Result<u64, Refusal> {
    let all = ojs::queue_states(&desk.house).await?;
    let of_queue = all.iter().filter(|(name, ..)| wanted.queue.as_ref().is_none_or(|queue| queue == name));
    let sum = of_queue.map(|(_, counts, _)| match &wanted.state {
        None => counts.iter().sum(),
        Some(state) => super::queues::counts(counts)[state.as_str()].as_u64().unwrap_or_default(),
    });
    Ok(sum.sum())
}

/// `GET jobs`
pub(super) async fn jobs(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Query(wanted): Query<Wanted>,
) -> Answer {
    guest.may(Access::Client)?;
    let (jobs, offset, _) = page_of_jobs(&desk, &wanted).await?;
    let pagination = pagination(total_of(&desk, &wanted).await?, offset, jobs.len());
    Ok(ok(&object([("jobs", raw(&jobs)), ("pagination", raw(&pagination))])?))
}

/// `GET admin/jobs`
pub(super) async fn admin_jobs(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Query(wanted): Query<Wanted>,
) -> Answer {
    guest.may(Access::Admin)?;
    let (jobs, _, _) = page_of_jobs(&desk, &wanted).await?;
    let total = total_of(&desk, &wanted).await?;
    Ok(ok(&object([("items", raw(&jobs)), ("pagination", raw(&numbered(total, &wanted)?))])?))
}

/// Pages by their numbers, as the admin extension has them.
fn numbered(total: u64, wanted: &Wanted) -> Result<Value, Refusal> {
    Ok(json!({"total": total, "page": wanted.page_number(), "per_page": wanted.part()?.1}))
}

/// `GET dead-letter`
pub(super) async fn dead_letters(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Query(wanted): Query<Wanted>,
) -> Answer {
    guest.may(Access::Client)?;
    let (offset, limit) = wanted.part()?;
    let (total, jobs) = ojs::dead_letters(&desk.house, offset, limit).await?;
    let jobs = jobs.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let pagination = pagination(total, offset, jobs.len());
    Ok(ok(&object([("jobs", raw(&jobs)), ("pagination", raw(&pagination))])?))
}

/// `GET admin/dead-letter`
pub(super) async fn admin_dead_letters(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Query(wanted): Query<Wanted>,
) -> Answer {
    guest.may(Access::Admin)?;
    let (offset, limit) = wanted.part()?;
    let (total, jobs) = ojs::dead_letters(&desk.house, offset, limit).await?;
    let items = jobs.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    Ok(ok(&object([("items", raw(&items)), ("pagination", raw(&numbered(total, &wanted)?))])?))
}

/// `GET admin/dead-letter/stats`
pub(super) async fn dead_letter_stats(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(Access::Admin)?;
    let (total, _) = ojs::dead_letters(&desk.house, 0, 0).await?;
    Ok(ok(&json!({"total": total, "retention_seconds": desk.house.settings.keep_dead_ms / 1000})))
}

/// `GET events`
pub(super) async fn events(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Query(wanted): Query<Wanted>,
) -> Answer {
    guest.may(Access::Client)?;
    let limit = number("limit", wanted.limit.as_ref())?.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let after = number("cursor", wanted.cursor.as_ref())?.unwrap_or_default();
    let (types, queues) = (Wanted::words(wanted.types.as_ref()), Wanted::words(wanted.queues.as_ref()));
    let is_wanted = |event: &Event| {
        types.as_ref().is_none_or(|types| types.iter().any(|word| word == event.kind))
            && queues.as_ref().is_none_or(|queues| queues.contains(&event.queue))
    };
    let (events, has_more) = desk.house.events.after(after as u64, limit, is_wanted);
    let cursor = events.last().map_or(after as u64, |event| event.number);
    let shown: Vec<Value> = events.iter().map(event_of).collect();
    Ok(ok(&json!({"events": shown, "cursor": cursor.to_string(), "has_more": has_more})))
}

fn event_of(event: &Event) -> Value {
    let mut data = json!({
        "job_id": event.job_id,
        "job_type": event.job_type,
        "queue": event.queue,
        "attempt": event.attempt,
    });
    if let Some(duration_ms) = event.duration_ms {
        data["duration_ms"] = duration_ms.into();
    }
    json!({
        "specversion": "1.0",
        "id": format!("evt_{}", event.number),
        "type": event.kind,
        "source": "agq",
        "time": event.at,
        "subject": event.job_id,
        "data": data,
    })
}
