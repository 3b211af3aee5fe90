//! Matrix of lists, over HTTP and RESP: the key of a worker lists no record and no owner.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::{
    request::{Command, CommandKind, Request as CommandRequest},
    resp::Reply,
};
use agenix_rules::budget::Budget;
use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use bytes::Bytes;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::{is_allowed, peer, routes_of};
use crate::{
    app::{AppState, Caller},
    auth::keyring::{Identity, Role, SessionKeys},
    http::openapi::{ROWS, path_of},
    resp::dispatch,
    service::budgets,
    startup::services::without_tasks,
};

/// Part of every id, name, input and key that the records of this test have.
const MARK: &str = "marked";
/// Lists of records over HTTP, which clients may see.
const LISTS: [&str; 8] =
    ["/jobs", "/dead-letter", "/budgets", "/rate-limits", "/cron", "/workflows", "/approvals", "/events"];

fn caller(identity: Identity) -> Arc<Caller> {
    Arc::new(Caller::new("connection:1".into(), 1, "test", Some(identity)))
}

async fn run(app: &Arc<AppState>, identity: Identity, words: &[&str]) -> Reply {
    let words: Vec<Bytes> = words.iter().map(|word| Bytes::from((*word).to_owned())).collect();
    let (command, request) =
        CommandRequest::parse(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    dispatch::run(Arc::clone(app), caller(identity), command, request).await.reply
}

/// Stores records of each kind, and a budget.
async fn store_records(app: &Arc<AppState>) {
    let budget = Budget { per_hours: 24, jobs: Some(5), ..Budget::default() };
    budgets::set_all(app, BTreeMap::from([(format!("{MARK}-client"), Some(budget))])).await.unwrap();
    let bound = r#"{"plan_id":"marked-bound","max_running":1,"tasks":[{"task_number":1,"command":"true"}]}"#;
    let plan = r#"{"plan_id":"marked-plan","tasks":[{"task_number":1,"command":"true"}]}"#;
    let keyed = r#"{"action_id":"marked-keyed","plan_id":"marked-plan","inputs":[{"user":"marked-user"}],"concurrency":{"key":"user:{{input.user}}"}}"#;
    let bounded = r#"{"action_id":"marked-bounded","plan_id":"marked-bound","inputs":[{}]}"#;
    let schedule = r#"{"name":"marked-schedule","expression":"0 3 * * *","action":{"plan_id":"marked-plan","inputs":[{}]}}"#;
    let workflow = r#"{"name":"marked-workflow","steps":[{"plan_id":"marked-plan","inputs":[{}]}]}"#;
    for words in [
        ["PLAN.SUBMIT", bound],
        ["PLAN.SUBMIT", plan],
        ["ACTION.SUBMIT", keyed],
        ["ACTION.SUBMIT", bounded],
        ["SCHEDULE.SET", schedule],
        ["WORKFLOW.SUBMIT", workflow],
    ] {
        let reply = run(app, Identity::of_session_key(), &words).await;
        assert!(matches!(&reply, Reply::Simple(text) if text.starts_with("OK")), "{words:?}: {reply:?}");
    }
}

async fn body_of(routes: &TowerToHyperService<Router>, path: &str, role: Role) -> String {
    let request = Request::builder().uri(path).header(header::HOST, "agq").extension(peer(Some(role)));
    let response = routes.call(request.body(Body::empty()).unwrap()).await.unwrap();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn http_lists_no_record_and_no_owner_for_the_key_of_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    store_records(&app).await;
    let routes = routes_of(Arc::clone(&app), SessionKeys::default());
    for (method, path, documented, ..) in ROWS {
        let whole = path_of(path);
        // A stream has no end.
        if *method != "get" || path.contains('{') || *path == "/events/stream" {
            continue;
        }
        let seen = body_of(&routes, &whole, Role::Worker).await;
        assert!(!seen.contains(MARK), "{whole}: {seen}");
        assert!(!LISTS.contains(path) || !is_allowed(Role::Worker, documented), "{whole}");
    }
    for path in ["/jobs", "/rate-limits", "/cron", "/workflows"] {
        let seen = body_of(&routes, &path_of(path), Role::Client).await;
        assert!(seen.contains(MARK), "{path}: {seen}");
    }
    for (role, has_budgets) in [(Role::Admin, true), (Role::Client, true), (Role::Worker, false)] {
        let seen = body_of(&routes, "/metrics", role).await;
        assert_eq!(seen.contains("agq_budget_limit{name=\"marked-client\""), has_budgets, "{role}");
    }
}

#[tokio::test]
async fn every_list_has_pages() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    store_records(&app).await;
    let routes = routes_of(Arc::clone(&app), SessionKeys::default());
    for (path, list) in [
        ("/queues", "queues"),
        ("/rate-limits", "rate_limits"),
        ("/cron", "crons"),
        ("/workflows", "workflows"),
        ("/jobs", "jobs"),
    ] {
        let page = async |query: &str| -> Value {
            let body = body_of(&routes, &format!("{}?{query}", path_of(path)), Role::Client).await;
            serde_json::from_str(&body).unwrap()
        };
        let whole = page("limit=200").await;
        let total = whole[list].as_array().unwrap().len();
        assert_eq!(whole["pagination"], json!({"total": total, "has_more": false}), "{path}");
        let first = page("limit=1").await;
        assert_eq!(first[list], json!([whole[list][0]]), "{path}");
        assert_eq!(first["pagination"]["has_more"], total > 1, "{path}");
        let rest = page("limit=200&cursor=1").await;
        assert_eq!(rest[list].as_array().unwrap().len(), total - 1, "{path}");
        assert_eq!(page("limit=x").await["error"]["code"], "invalid_request", "{path}");
    }
}

#[tokio::test]
async fn resp_lists_no_record_and_no_owner_for_the_key_of_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    store_records(&app).await;
    let mut seen_by_clients = Vec::new();
    for command in Command::all().filter(|command| command.kind == CommandKind::Read) {
        if CommandRequest::parse(&[Bytes::from(command.name)]).is_err() {
            continue;
        }
        if Role::Worker.may_use(command) {
            let reply = run(&app, Identity::new(Role::Worker, "w"), &[command.name]).await;
            assert!(!format!("{reply:?}").contains(MARK), "{}: {reply:?}", command.name);
        } else if Role::Client.may_use(command) {
            let reply = run(&app, Identity::new(Role::Client, "c"), &[command.name]).await;
            seen_by_clients.extend(format!("{reply:?}").contains(MARK).then_some(command.name));
        }
    }
    assert_eq!(
        seen_by_clients,
        ["PLAN.LIST", "ACTION.LIST", "SCHEDULE.LIST", "METRICS"],
        "these lists need the key of a client"
    );
    // With a pattern, these commands list plans and actions.
    for name in ["KEYS", "SCAN"] {
        assert!(!Role::Worker.may_use(Command::find(name).unwrap()), "{name}");
    }
}
