//! HTTP interface of agq: the Open Job Spec (OJS), the dashboard, health checks and metrics. The
//! handlers translate between HTTP and the operations of `service`, as the handlers of `resp` do.
//! Rules about jobs are in `rules`.
//!
//! Life of a request:
//!
//! 1. [`connection`] parses HTTP/1.1 on a stream of `net` and adds the [`Peer`](peer::Peer) to each
//!    request.
//! 2. [`auth::authenticate`] checks the [`form`], assigns a request id, and proves the identity of
//!    the sender.
//! 3. The router below selects a handler. The handler's role extractor from [`auth::role`] refuses
//!    a sender whose role does not allow the route.
//! 4. The extractors of [`extract`] read the body and parse ids. Then the handler calls `service`.
//! 5. [`response`] formats the document or the error. A request that changes something gets an
//!    audit entry.
//!
//! An event stream ([`events`], [`dashboard`]) keeps its connection until the client leaves; see
//! [`stream`].

mod admin;
mod approvals;
mod auth;
mod budgets;
mod connection;
mod dashboard;
mod events;
mod extract;
mod fallback;
mod form;
mod health;
pub(crate) mod job_view;
mod jobs;
mod list_query;
mod lists;
mod openapi;
mod outputs;
mod peer;
mod queues;
mod ranges;
mod response;
mod stream;
#[cfg(test)]
mod tests;
mod workers;
mod workflows;

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{delete, get, post, put},
};
use futures_util::future::BoxFuture;

use crate::{
    app::AppState,
    net::{AccessControl, ProtocolHandler},
};

struct HttpState {
    app: Arc<AppState>,
    access_control: Arc<AccessControl>,
    sessions: auth::session::DashboardSessions,
    is_tls: bool,
}

type Shared = axum::extract::State<Arc<HttpState>>;

pub(crate) fn handler(
    app: &Arc<AppState>,
    access_control: &Arc<AccessControl>,
    is_tls: bool,
) -> ProtocolHandler {
    let sessions = auth::session::DashboardSessions::new(&app.clock.uuid());
    let (app, access_control) = (Arc::clone(app), Arc::clone(access_control));
    let state = Arc::new(HttpState { app, access_control, sessions, is_tls });
    let router = router(&state);
    let serve = move |accepted, number, stop| -> BoxFuture<'static, ()> {
        Box::pin(connection::serve_connection(Arc::clone(&state), router.clone(), (accepted, number), stop))
    };
    ProtocolHandler { serve: Box::new(serve), rejection: connection::too_many_connections }
}

fn router(state: &Arc<HttpState>) -> Router {
    let v1 = Router::new()
        .merge(job_routes())
        .merge(worker_routes())
        .merge(queue_routes())
        .merge(admin_routes())
        .merge(schedule_routes())
        .route("/health", get(health::health))
        .route("/openapi.json", get(openapi::openapi));
    Router::new()
        .nest("/ojs/v1", v1)
        .route("/", get(dashboard::page))
        .nest("/dashboard", dashboard_routes())
        .route("/ojs/manifest", get(health::manifest))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(fallback::no_such_path)
        .method_not_allowed_fallback(fallback::no_such_method)
        .layer(middleware::from_fn_with_state(Arc::clone(state), auth::authenticate))
        .with_state(Arc::clone(state))
}

type Routes = Router<Arc<HttpState>>;

/// Routes of the dashboard, which authenticate by session.
fn dashboard_routes() -> Routes {
    Router::new()
        .route("/app.js", get(dashboard::script))
        .route("/stream.js", get(dashboard::stream))
        .route("/style.css", get(dashboard::style))
        .route("/login", post(dashboard::login))
        .route("/logout", post(dashboard::logout))
        .route("/session", get(dashboard::session))
        .route("/command", post(dashboard::command))
        .route("/recent", get(dashboard::recent))
        .route("/history", get(dashboard::history))
        .route("/jobs/{id}/tasks/{task}/{stream}", get(dashboard::output))
        .route("/events", get(dashboard::events))
}

fn job_routes() -> Routes {
    Router::new()
        .route("/jobs", post(jobs::enqueue).get(lists::jobs))
        .route("/jobs/batch", post(jobs::enqueue_all))
        .route("/jobs/fetch", post(workers::fetch))
        .route("/jobs/{id}", get(jobs::get).delete(jobs::cancel))
        .route("/jobs/{id}/ack", post(workers::ack_named))
        .route("/jobs/{id}/nack", post(workers::nack_named))
        .route("/jobs/{id}/fail", post(workers::nack_named))
        .route("/jobs/{id}/activate", post(jobs::activate))
        .route("/jobs/{id}/retry", post(jobs::retry))
        .route("/jobs/{id}/tasks/{task}/{stream}", get(outputs::output))
        .route("/jobs/{id}/progress", put(workers::report_progress_named).get(jobs::progress))
        .route("/dead-letter", get(lists::dead_letters))
        .route("/dead-letter/{id}", get(jobs::dead_letter).delete(jobs::forget_dead))
        .route("/dead-letter/{id}/retry", post(jobs::retry_dead))
        .route("/events", get(lists::events))
        .route("/events/stream", get(events::follow))
}

fn worker_routes() -> Routes {
    Router::new()
        .route("/workers", get(admin::workers))
        .route("/workers/register", post(workers::register))
        .route("/workers/deregister", post(workers::deregister))
        .route("/workers/fetch", post(workers::fetch))
        .route("/workers/ack", post(workers::ack))
        .route("/workers/nack", post(workers::nack))
        .route("/workers/progress", post(workers::report_progress))
        .route("/workers/heartbeat", post(workers::heartbeat))
        .route("/workers/beat", post(workers::beat))
        .route("/workers/{id}", delete(workers::deregister_named).get(admin::worker))
        .route("/workers/{id}/health", get(workers::health))
}

fn queue_routes() -> Routes {
    Router::new()
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", get(queues::stats))
        .route("/queues/{queue}/stats", get(queues::stats))
        .route("/queues/{queue}/pause", post(queues::set_paused::<true>))
        .route("/queues/{queue}/resume", post(queues::set_paused::<false>))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{plan}/approve", post(approvals::approve))
        .route("/approvals/{plan}/reject", post(approvals::reject))
        .route("/budgets", get(budgets::list))
        .route("/budgets/{name}", get(budgets::get))
        .route("/rate-limits", get(queues::limits))
        .route("/rate-limits/{key}", get(queues::limit))
}

/// Routes of cron jobs and workflows.
fn schedule_routes() -> Routes {
    Router::new()
        .route("/cron", post(workflows::add_cron).get(workflows::crons))
        .route("/cron/{name}", get(workflows::cron).put(workflows::set_cron).delete(workflows::delete_cron))
        .route("/workflows", post(workflows::submit).get(workflows::list))
        .route("/workflows/{id}", get(workflows::get).delete(workflows::cancel))
}

fn admin_routes() -> Routes {
    Router::new()
        .route("/admin/stats", get(admin::stats))
        .route("/admin/queues", get(admin::queues))
        .route("/admin/queues/{queue}", get(admin::queue))
        .route("/admin/queues/{queue}/pause", post(admin::set_paused::<true>))
        .route("/admin/queues/{queue}/resume", post(admin::set_paused::<false>))
        .route("/admin/queues/{queue}/config", get(admin::config).put(admin::configure))
        .route("/admin/jobs", get(lists::admin_jobs))
        .route("/admin/jobs/bulk/retry", post(admin::retry_all))
        .route("/admin/jobs/{id}", get(admin::job))
        .route("/admin/jobs/{id}/retry", post(admin::retry))
        .route("/admin/jobs/{id}/cancel", post(admin::cancel))
        .route("/admin/workers", get(admin::workers))
        .route("/admin/workers/{id}", get(admin::worker))
        .route("/admin/workers/{id}/{order}", post(admin::set_directive))
        .route("/admin/dead-letter", get(lists::admin_dead_letters))
        .route("/admin/dead-letter/stats", get(lists::dead_letter_stats))
        .route("/admin/dead-letter/{id}", get(admin::dead_letter).delete(admin::forget_dead))
        .route("/admin/dead-letter/{id}/retry", post(admin::retry_dead))
}
