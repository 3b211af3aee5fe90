//! Dashboard: static files for the browser, login by key, and a JSON form of the RESP commands. The
//! dashboard has no rules of its own, and shows only data that commands return.

mod event_stream;

use std::sync::Arc;

use agenix_protocol::{
    documents::{JobStatus, Plan, Status, parse},
    ids::ActionId,
    request::{CommandAccess, Page, Request, Search},
    resp::Reply,
};
use agenix_rules::{action, rejection::Rejection};
use axum::{
    Extension,
    body::Body,
    extract::Path,
    http::{HeaderMap, HeaderValue, Method, Response, header},
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    app::{Caller, connection_name},
    auth::{keyring::Identity, session_key::KeyHash},
    http::{
        HttpState, Shared,
        auth::{
            refuse_key,
            role::refuse_agent,
            session::{ConfirmedUser, DashboardSession, confirmed_user, session_user},
        },
        extract::JsonBody,
        outputs::{self, OutputPath},
        peer::Peer,
        response::{ApiError, HttpResult, forbidden, no_content, ok, with_status},
        stream::StreamPermit,
    },
    resp::{audit, dispatch},
    service,
};

const PAGE: &str = include_str!("index.html");
/// The script of the page, which uses no framework. The files of the script share one scope. A
/// constant that a file reads while the script loads is in that file or in a file before it.
const SCRIPT: &str = concat!(
    "'use strict';\n",
    include_str!("scripts/drawing.js"),
    include_str!("scripts/hidden_characters.js"),
    include_str!("scripts/formatting.js"),
    include_str!("scripts/state.js"),
    include_str!("scripts/api.js"),
    include_str!("scripts/controls.js"),
    include_str!("scripts/components.js"),
    include_str!("scripts/throughput.js"),
    include_str!("scripts/views/overview.js"),
    include_str!("scripts/views/approvals.js"),
    include_str!("scripts/views/action.js"),
    include_str!("scripts/views/job.js"),
    include_str!("scripts/views/task_results.js"),
    include_str!("scripts/views/workers.js"),
    include_str!("scripts/views/dead.js"),
    include_str!("scripts/views/login.js"),
    include_str!("scripts/navigation.js"),
    include_str!("scripts/event_stream.js"),
    include_str!("scripts/session.js"),
    include_str!("scripts/start.js"),
);
const STREAM: &str = include_str!("stream.js");
const STYLE: &str = include_str!("style.css");

/// CSP level 3: the page loads only files of agq, and no other site may embed it or get its forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Commands that the dashboard may run. None of these commands waits.
const COMMANDS: [&str; 23] = [
    "INFO",
    "BUDGET.GET",
    "APPROVAL.LIST",
    "PLAN.APPROVE",
    "PLAN.REJECT",
    "PLAN.GET",
    "PLAN.LIST",
    "ACTION.LIST",
    "ACTION.STATUS",
    "ACTION.CANCEL",
    "ACTION.RETRY",
    "JOB.STATUS",
    "JOB.LIST",
    "JOB.RETRY",
    "JOB.CANCEL",
    "JOB.EXPLAIN",
    "JOBS.SEARCH",
    "WORKER.LIST",
    "WORKER.DRAIN",
    "WORKER.RESUME",
    "QUEUE.STATS",
    "QUEUE.PAUSE",
    "QUEUE.RESUME",
];
/// Maximum number of commands in one request.
const MAX_COMMANDS: usize = 100;
/// Maximum number of recent actions and of recent dead jobs.
const MAX_RECENT: usize = 50;
/// Maximum number of actions to search for recent ones. The actions of the newest jobs are added,
/// because the newest actions may be beyond this bound.
const MAX_ACTIONS_READ: usize = 2000;
const MAX_JOBS_READ: usize = 200;

pub(super) async fn page() -> Response<Body> {
    file(PAGE, "text/html; charset=utf-8")
}

pub(super) async fn script() -> Response<Body> {
    file(SCRIPT, "text/javascript; charset=utf-8")
}

pub(super) async fn stream() -> Response<Body> {
    file(STREAM, "text/javascript; charset=utf-8")
}

pub(super) async fn style() -> Response<Body> {
    file(STYLE, "text/css; charset=utf-8")
}

fn file(text: &'static str, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The next version of agq has other files.
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[derive(Deserialize)]
struct Login {
    key: String,
}

pub(super) async fn login(state: Shared, Extension(peer): Extension<Peer>, sent: JsonBody) -> HttpResult {
    let login: Login = sent.object()?;
    let key = login.key.trim().as_bytes();
    let Some(identity) = state.access_control.keyring.identify(key) else {
        let refusal = refuse_key(&state, Some(&peer)).await;
        return Ok(with_status(refusal.status, &json!({"error": "agq does not know this key."})));
    };
    refuse_agent(&identity)?;
    let begun = state.sessions.begin(KeyHash::of(key), state.app.clock.now(), state.is_tls);
    let (session, cookie) = begun.map_err(|error| ApiError::invalid(error.to_string()))?;
    let mut response = ok(&session_json(&identity, &session));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn session_json(identity: &Identity, session: &DashboardSession) -> Value {
    let (name, role) = (&*identity.name, identity.role.to_string());
    json!({"name": name, "role": role, "csrf": session.csrf.reveal(), "version": env!("CARGO_PKG_VERSION")})
}

pub(super) async fn session(state: Shared, headers: HeaderMap) -> HttpResult {
    let (identity, session) = session_user(&state, &headers)?;
    Ok(ok(&session_json(&identity, &session)))
}

pub(super) async fn logout(state: Shared, headers: HeaderMap) -> HttpResult {
    confirmed_user(&state, &headers)?;
    state.sessions.end(&headers);
    Ok(no_content())
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CommandBody {
    One(Vec<String>),
    Several(Vec<Vec<String>>),
}

pub(super) async fn command(
    state: Shared,
    Extension(peer): Extension<Peer>,
    ConfirmedUser(identity): ConfirmedUser,
    sent: JsonBody,
) -> HttpResult {
    let connection = connection_name(state.app.store.node(), peer.number);
    let caller = Caller::new(connection, peer.number, &peer.shown, Some(identity));
    let caller = Arc::new(Caller { is_introduced: true, ..caller });
    match sent.any::<CommandBody>()? {
        CommandBody::One(words) => Ok(ok(&run(&state, &caller, words).await)),
        CommandBody::Several(all) if all.len() <= MAX_COMMANDS => {
            let mut replies = Vec::with_capacity(all.len());
            for words in all {
                replies.push(run(&state, &caller, words).await);
            }
            Ok(ok(&json!({"replies": replies})))
        }
        CommandBody::Several(all) => {
            Err(ApiError::invalid(format!("there are {} commands, max {MAX_COMMANDS}", all.len())))
        }
    }
}

async fn run(state: &HttpState, caller: &Arc<Caller>, words: Vec<String>) -> Value {
    let words: Vec<Bytes> = words.into_iter().map(Bytes::from).collect();
    let (command, request) = match Request::parse(&words) {
        Ok(parsed) => parsed,
        Err(error) => return json!({"error": error.line()}),
    };
    let may = caller.identity.as_ref().is_some_and(|identity| identity.role.may_use(command));
    if !may || !COMMANDS.contains(&command.name) {
        let name = command.name;
        let text = format!("the dashboard or the role of this key does not allow the command: '{name}'");
        let line = Rejection::NotPermitted(text).line();
        audit::record_refusal(&state.app, caller, command, &request, &line);
        return json!({"error": line});
    }
    let done = dispatch::run(Arc::clone(&state.app), Arc::clone(caller), command, request).await;
    match done.reply {
        Reply::Error(error) => json!({"error": error}),
        reply => json!({"reply": value(reply)}),
    }
}

fn value(reply: Reply) -> Value {
    match reply {
        Reply::Simple(text) => text.into(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into(),
        Reply::Integer(number) => number.into(),
        Reply::Array(replies) => replies.into_iter().map(value).collect(),
        _ => Value::Null,
    }
}

/// `GET /dashboard/recent`: the newest actions, and the newest failed and dead jobs.
pub(super) async fn recent(state: Shared, headers: HeaderMap) -> HttpResult {
    client_user(&state, &headers)?;
    let app = &state.app;
    let page = Page { limit: MAX_ACTIONS_READ, ..Page::default() };
    let newest = app.store.actions(page, std::collections::BTreeMap::new(), None).await?;
    let mut ids: std::collections::BTreeSet<ActionId> = newest.into_iter().collect();
    let newest = Search { limit: MAX_JOBS_READ, ..Search::default() };
    for job_id in app.store.search(newest, None).await? {
        ids.extend(app.store.job_record(&job_id).await?.map(|job| job.action_id));
    }
    let mut actions = Vec::with_capacity(ids.len());
    for action_id in &ids {
        if let Some((action, counts)) = app.store.action(action_id).await? {
            actions.push(action::status(&action, &counts));
        }
    }
    actions.sort_by_key(|action| std::cmp::Reverse(action.created_at));
    actions.truncate(MAX_RECENT);
    let mut plans = serde_json::Map::new();
    for action in &actions {
        let name = action.plan_id.to_string();
        if !plans.contains_key(&name) {
            let plan = app.store.plan(&action.plan_id).await?;
            let mut plan = plan.and_then(|plan| parse::<Plan>(plan.json.as_bytes()).ok());
            plan.as_mut().map(Plan::hide_literal_env);
            plans.insert(name, plan.and_then(|plan| plan.plan_description).unwrap_or_default().into());
        }
    }
    let mut dead = Vec::new();
    for status in [Status::Dead, Status::Failed] {
        let search = Search { status: Some(status), limit: MAX_RECENT, ..Search::default() };
        for job_id in app.store.search(search, None).await? {
            dead.extend(service::jobs::status(app, &job_id).await?.map(summary));
        }
    }
    dead.sort_by_key(|job| std::cmp::Reverse(job.completed_at));
    dead.truncate(MAX_RECENT);
    Ok(ok(&json!({"actions": actions, "dead": dead, "plans": plans})))
}

/// `GET /dashboard/jobs/{id}/tasks/{task}/{stream}`: an output, as the Open Job Spec route returns
/// it. The cookie of the session belongs to `/dashboard` alone. A browser always saves the output,
/// so that no page of a job is in the origin of the dashboard.
pub(super) async fn output(
    state: Shared,
    Path(path): Path<OutputPath>,
    method: Method,
    headers: HeaderMap,
) -> HttpResult {
    client_user(&state, &headers)?;
    outputs::answer(&state.app, &path, true, (&method, &headers)).await
}

/// Requires a session of a client or an admin.
fn client_user(state: &HttpState, headers: &HeaderMap) -> HttpResult<()> {
    let (identity, _) = session_user(state, headers)?;
    if identity.role.allows(CommandAccess::Client) {
        return Ok(());
    }
    Err(forbidden("this key belongs to a worker, whose role does not allow this request"))
}

/// Removes the fields of a job that may be large.
fn summary(job: JobStatus) -> JobStatus {
    JobStatus { inputs: RawValue::NULL.to_owned(), stdout: None, stderr: None, task_results: None, ..job }
}

/// `GET /dashboard/history`: the number of ended jobs at intervals of the last hour.
pub(super) async fn history(state: Shared, headers: HeaderMap) -> HttpResult {
    session_user(&state, &headers)?;
    Ok(ok(&json!({"points": state.app.throughput.history()})))
}

pub(super) async fn events(
    state: Shared,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> HttpResult {
    session_user(&state, &headers)?;
    let (checked_state, app) = (Arc::clone(&state), Arc::clone(&state.app));
    let is_admitted = Box::new(move || session_user(&checked_state, &headers).is_ok());
    let permit = StreamPermit::take(&state, &peer, is_admitted)?;
    Ok(event_stream::events(&app, peer, permit))
}
