//! Handlers of lists: jobs, dead letters, events.

use agenix_protocol::{documents::Status, ids::JobId, request::Search};
use axum::extract::Query;
use serde_json::{Value, json, value::RawValue};

use crate::{
    http::{
        HttpState, Shared,
        auth::role::{RequireAdmin, RequireClient},
        events::envelope,
        job_view::job_view,
        list_query::{ListQuery, MAX_OFFSET, MAX_PAGE},
        response::{ApiError, HttpResult, object, ok, pagination, quoted, raw},
    },
    registry::event_log::{LoggedEvent, NewEvents},
    service::{dead_letters, queues},
    store::{StoreError, StoredJob},
};

/// Jobs up to the last possible page, and one that shows whether more follow.
const MAX_JOBS_READ: usize = MAX_OFFSET + MAX_PAGE + 1;
/// Maximum bytes of a page, because each result may have megabytes. The first job may exceed the
/// maximum.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Returns the status of jobs in `state`. Several states share the status of pending jobs.
fn status_of(state: &str) -> HttpResult<Status> {
    match state {
        "available" | "scheduled" | "retryable" | "pending" => Ok(Status::Pending),
        "active" => Ok(Status::Running),
        "completed" => Ok(Status::Completed),
        "cancelled" => Ok(Status::Cancelled),
        "discarded" => Ok(Status::Failed),
        other => Err(ApiError::invalid(format!(
            "state is '{}': use available, scheduled, pending, active, retryable, completed, cancelled or discarded",
            quoted(other)
        ))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paging {
    /// A page has the start of the next one, and may therefore be shorter than requested.
    ByCursor,
    /// The page number determines the start. Jobs have no results.
    ByNumber,
}

struct PageOfJobs {
    jobs: Vec<Box<RawValue>>,
    offset: usize,
    bytes: usize,
    has_more: bool,
}

impl PageOfJobs {
    /// Reads the jobs among `ids` that match `query`.
    async fn of(state: &HttpState, ids: Vec<JobId>, query: &ListQuery, paging: Paging) -> HttpResult<Self> {
        let (offset, limit) = query.range()?;
        let (mut page, mut passed) = (Self { jobs: Vec::new(), offset, bytes: 0, has_more: false }, 0);
        for job_id in ids {
            let Some(job) = state.app.store.job_record(&job_id).await? else { continue };
            if query.state.as_deref().is_some_and(|name| name != job.state.ojs_name()) {
                continue;
            }
            if query.queue.is_none() && passed < offset {
                passed += 1;
                continue;
            }
            let Some(stored) = state.app.store.job(&job_id).await? else { continue };
            if query.queue.as_deref().is_some_and(|queue| queue != stored.queue) {
                continue;
            }
            if passed < offset {
                passed += 1;
                continue;
            }
            if page.jobs.len() == limit || !page.add(&stored, paging)? {
                page.has_more = true;
                break;
            }
        }
        Ok(page)
    }

    /// Returns `false` with cursors, and an error with page numbers, if the page has no room.
    fn add(&mut self, stored: &StoredJob, paging: Paging) -> HttpResult<bool> {
        let mut job = job_view(stored)?;
        if paging == Paging::ByNumber {
            job.result = None;
        }
        let job = raw(&job).map_err(|error| StoreError(format!("a job cannot be written: {error}")))?;
        let bytes = self.bytes.saturating_add(job.get().len());
        if bytes > MAX_PAGE_BYTES && !self.jobs.is_empty() {
            let too_large = format!(
                "the jobs of this page have more than {MAX_PAGE_BYTES} bytes: ask for fewer with per_page"
            );
            return match paging {
                Paging::ByCursor => Ok(false),
                Paging::ByNumber => Err(ApiError::invalid(too_large)),
            };
        }
        self.bytes = bytes;
        self.jobs.push(job);
        Ok(true)
    }

    /// Answers with `{jobs, pagination}`.
    fn by_cursor(&self, total: u64) -> HttpResult {
        let pagination = pagination(total, self.offset, self.jobs.len(), self.has_more);
        Ok(ok(&object([("jobs", raw(&self.jobs)), ("pagination", raw(&pagination))])?))
    }

    /// Answers with `{items, pagination}`.
    fn by_number(&self, total: u64, query: &ListQuery) -> HttpResult {
        Ok(ok(&object([("items", raw(&self.jobs)), ("pagination", raw(&numbered(total, query)?))])?))
    }
}

/// Returns the ids of the jobs that may match `query`, the newest first.
async fn candidates(state: &HttpState, query: &ListQuery) -> HttpResult<Vec<JobId>> {
    let status = query.state.as_deref().map(status_of).transpose()?;
    let search =
        |status| state.app.store.search(Search { status, limit: MAX_JOBS_READ, ..Search::default() }, None);
    let mut ids = match query.state.as_deref() {
        // A search among all pending jobs reads the newest only, and might not reach the jobs in
        // these states.
        Some("scheduled" | "retryable") => state.app.store.peek_scheduled(MAX_JOBS_READ).await?,
        Some("discarded") => {
            let mut ids = search(status).await?;
            ids.extend(search(Some(Status::Dead)).await?);
            ids
        }
        _ => return Ok(search(status).await?),
    };
    ids.sort_by(|a, b| b.cmp(a));
    Ok(ids)
}

/// Returns the number of jobs in the state and the queue of `query`.
async fn total_of(state: &HttpState, query: &ListQuery) -> HttpResult<u64> {
    let all = queues::queue_states(&state.app).await?;
    let of_queue = all.iter().filter(|(name, ..)| query.queue.as_ref().is_none_or(|queue| queue == name));
    let sum = of_queue.map(|(_, counts, _)| match &query.state {
        None => counts.iter().sum(),
        Some(state) => super::queues::counts(counts)[state.as_str()].as_u64().unwrap_or_default(),
    });
    Ok(sum.sum())
}

pub(super) async fn jobs(state: Shared, _: RequireClient, Query(query): Query<ListQuery>) -> HttpResult {
    let page = PageOfJobs::of(&state, candidates(&state, &query).await?, &query, Paging::ByCursor).await?;
    page.by_cursor(total_of(&state, &query).await?)
}

pub(super) async fn admin_jobs(state: Shared, _: RequireAdmin, Query(query): Query<ListQuery>) -> HttpResult {
    let page = PageOfJobs::of(&state, candidates(&state, &query).await?, &query, Paging::ByNumber).await?;
    page.by_number(total_of(&state, &query).await?, &query)
}

/// Returns the `pagination` object of the admin extension.
fn numbered(total: u64, query: &ListQuery) -> HttpResult<Value> {
    Ok(json!({"total": total, "page": query.page_number(), "per_page": query.range()?.1}))
}

/// Returns the number of dead letters, and a page of them.
async fn dead_letter_page(
    state: &HttpState,
    mut query: ListQuery,
    paging: Paging,
) -> HttpResult<(u64, PageOfJobs)> {
    (query.state, query.queue) = (None, None);
    let (total, ids) = dead_letters::dead_letters(&state.app, MAX_JOBS_READ).await?;
    Ok((total, PageOfJobs::of(state, ids, &query, paging).await?))
}

pub(super) async fn dead_letters(
    state: Shared,
    _: RequireClient,
    Query(query): Query<ListQuery>,
) -> HttpResult {
    let (total, page) = dead_letter_page(&state, query, Paging::ByCursor).await?;
    page.by_cursor(total)
}

pub(super) async fn admin_dead_letters(
    state: Shared,
    _: RequireAdmin,
    Query(query): Query<ListQuery>,
) -> HttpResult {
    let (total, page) = dead_letter_page(&state, query.clone(), Paging::ByNumber).await?;
    page.by_number(total, &query)
}

pub(super) async fn dead_letter_stats(state: Shared, _: RequireAdmin) -> HttpResult {
    let (total, _) = dead_letters::dead_letters(&state.app, 0).await?;
    Ok(ok(&json!({"total": total, "retention_seconds": state.app.settings.keep_dead_ms / 1000})))
}

pub(super) async fn events(state: Shared, _: RequireClient, Query(query): Query<ListQuery>) -> HttpResult {
    let limit = query.page_size()?;
    let (types, queues) = (ListQuery::words(query.types.as_ref()), ListQuery::words(query.queues.as_ref()));
    let is_wanted = |event: &LoggedEvent| {
        types.as_ref().is_none_or(|types| types.iter().any(|word| word == event.kind))
            && queues.as_ref().is_none_or(|queues| queues.contains(&event.queue))
    };
    let log = &state.app.events;
    let NewEvents { events, has_more, up_to, has_gap } =
        log.follow_from(query.cursor.as_deref(), limit, is_wanted);
    let shown: Vec<Value> = events.iter().map(|event| envelope(log, event)).collect();
    let cursor = log.cursor(up_to);
    Ok(ok(&json!({"events": shown, "cursor": cursor, "has_more": has_more, "has_gap": has_gap})))
}
