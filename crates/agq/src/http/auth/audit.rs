//! Audit entries of requests.

use axum::{
    body::Body,
    extract::MatchedPath,
    http::{Request, Response},
};

use crate::{
    auth::{audit_log, keyring::Identity},
    http::{
        HttpState,
        form::may_change,
        peer::Peer,
        response::{ApiError, quoted},
    },
};

/// Entry of a request that may change something, but for reports of workers, as over RESP.
pub(super) struct RequestAudit {
    command: String,
    from: String,
}

/// Routes, not paths, because a name in a path may be any of these words.
const WORKER_ROUTES: [&str; 11] = [
    "/ojs/v1/jobs/fetch",
    "/ojs/v1/jobs/{id}/ack",
    "/ojs/v1/jobs/{id}/nack",
    "/ojs/v1/jobs/{id}/fail",
    "/ojs/v1/jobs/{id}/progress",
    "/ojs/v1/workers/register",
    "/ojs/v1/workers/fetch",
    "/ojs/v1/workers/ack",
    "/ojs/v1/workers/nack",
    "/ojs/v1/workers/heartbeat",
    "/ojs/v1/workers/beat",
];

impl RequestAudit {
    pub(super) fn of(state: &HttpState, request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let is_change =
            may_change(request.method()) && !route.is_some_and(|route| WORKER_ROUTES.contains(&route));
        let from = request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.shown.clone());
        (state.app.audit.is_on() && is_change)
            .then(|| Self { command: format!("{} {}", request.method(), quoted(path)), from })
    }

    pub(super) fn write(self, state: &HttpState, identity: &Identity, response: &Response<Body>) {
        let refusal = response.extensions().get::<ApiError>();
        let outcome = refusal.map_or_else(|| "OK".to_owned(), |refusal| format!("ERR {}", refusal.message));
        state.app.audit.record(&audit_log::AuditEntry {
            at: state.app.clock.now(),
            who: Some(&identity.name),
            role: Some(identity.role),
            from: &self.from,
            command: &self.command,
            target: None,
            outcome: &outcome,
            decision: None,
        });
    }
}
