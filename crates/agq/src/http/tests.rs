//! Test of every documented route with every role.

mod audit;
mod changes;
mod lists;
mod workers;

use std::sync::Arc;

use agenix_protocol::request::CommandAccess;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    app::AppState,
    auth::keyring::{Identity, Keyring, Role, SessionKeys},
    http::{
        HttpState,
        auth::session::DashboardSessions,
        openapi::{ROWS, path_of},
        peer::{ConnectionSlot, Peer},
        router,
    },
    net::AccessControl,
    startup::services::without_tasks,
};

/// Name of every id in a path, and of the worker that sends the requests.
const NAME: &str = "quiet";

fn routes(dir: &std::path::Path, keys: SessionKeys) -> TowerToHyperService<Router> {
    routes_of(without_tasks(dir, |_| {}), keys)
}

fn routes_of(app: Arc<AppState>, keys: SessionKeys) -> TowerToHyperService<Router> {
    let keyring = Arc::new(Keyring::new(keys));
    let access_control = Arc::new(AccessControl::new(keyring, &app.settings.limits));
    let sessions = DashboardSessions::new("a-5eed0001");
    TowerToHyperService::new(router(&Arc::new(HttpState { app, access_control, sessions, is_tls: false })))
}

fn peer(role: Option<Role>) -> Peer {
    let certified = role.map(|role| Identity::new(role, NAME));
    let (_closing, has_closed) = watch::channel(false);
    let slot = ConnectionSlot::default();
    Peer { number: 1, ip: None, shown: "test".into(), certified, has_closed, slot }
}

/// Sends a request of an admin. Returns the status and the body of the answer.
async fn send_as_admin(
    routes: &TowerToHyperService<Router>,
    method: &str,
    path: &str,
    body: String,
) -> (StatusCode, Value) {
    let (status, text) = send_for_text(routes, method, path, body).await;
    (status, serde_json::from_str(&text).unwrap())
}

/// Does the same as [`send_as_admin`], and returns the body as text.
async fn send_for_text(
    routes: &TowerToHyperService<Router>,
    method: &str,
    path: &str,
    body: String,
) -> (StatusCode, String) {
    let request = Request::builder()
        .method(method)
        .uri(format!("/ojs/v1{path}"))
        .header(header::HOST, "agq")
        .header(header::CONTENT_TYPE, "application/json")
        .extension(peer(Some(Role::Admin)))
        .body(Body::from(body))
        .unwrap();
    let response = routes.call(request).await.unwrap();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

fn is_allowed(role: Role, documented: &str) -> bool {
    match documented {
        "none" => true,
        "all" => role != Role::Agent,
        "client" => role.allows(CommandAccess::Client),
        "worker" => role.allows(CommandAccess::Worker),
        "admin" => role.allows(CommandAccess::Admin),
        other => panic!("{other} is not a role"),
    }
}

#[tokio::test]
async fn routes_allow_exactly_the_roles_that_the_openapi_document_names() {
    let dir = tempfile::tempdir().unwrap();
    let routes = routes(dir.path(), SessionKeys::default());
    for (method, path, documented, _, body, _) in ROWS {
        let path = path_of(path);
        let parts = path.split('/').map(|part| if part.starts_with('{') { NAME } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        for role in [None, Some(Role::Admin), Some(Role::Client), Some(Role::Worker), Some(Role::Agent)] {
            let request = Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(&path)
                .header(header::HOST, "agq")
                .header(header::CONTENT_TYPE, "application/json")
                .extension(peer(role))
                .body(Body::from(if body.is_some() { "{}" } else { "" }))
                .unwrap();
            let status = routes.call(request).await.unwrap().status();
            let refused = match role {
                None => (*documented != "none").then_some(StatusCode::UNAUTHORIZED),
                Some(role) => (!is_allowed(role, documented)).then_some(StatusCode::FORBIDDEN),
            };
            let is_refusal = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
            assert_eq!(is_refusal.then_some(status), refused, "{method} {path} {role:?}: {status}");
        }
    }
}

#[tokio::test]
async fn key_of_an_agent_opens_neither_http_nor_the_dashboard() {
    let dir = tempfile::tempdir().unwrap();
    let mut keys = SessionKeys::default();
    let (agent, client) = ("a".repeat(64), "c".repeat(64));
    keys.add(Role::Agent, "one", &agent).unwrap();
    keys.add(Role::Client, "alice", &client).unwrap();
    let routes = routes(dir.path(), keys);
    for (key, login, queues) in
        [(&agent, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN), (&client, StatusCode::OK, StatusCode::OK)]
    {
        let request = || Request::builder().header(header::HOST, "agq").extension(peer(None));
        let body = Body::from(format!(r#"{{"key":"{key}"}}"#));
        let sent = request().method("POST").uri("/dashboard/login");
        let sent = sent.header(header::CONTENT_TYPE, "application/json").body(body).unwrap();
        assert_eq!(routes.call(sent).await.unwrap().status(), login);
        let sent = request().uri("/ojs/v1/queues").header(header::AUTHORIZATION, format!("Bearer {key}"));
        assert_eq!(routes.call(sent.body(Body::empty()).unwrap()).await.unwrap().status(), queues);
    }
}
